"""A stand-in for the module pynvml on a machine with GPUs.

Constants, structures and error classes are those of the real module; functions have its names, arguments and
results. Faults: `fail` one call, `lose` a GPU, `driver` away or replaced, `hang` inside any call.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from typing import Any

import pynvml

LEVELS = {"internal": 0, "single": 10, "multiple": 20, "hostbridge": 30, "node": 40, "system": 50}


@dataclass
class FakeMig:
    """A slice of one."""

    uuid: str
    instance: int
    used: int
    total: int


@dataclass
class FakeGpu:
    """What one GPU answers."""

    uuid: str
    bus: str
    used: int = 60 * 2**30
    total: int = 80 * 2**30
    utilisation: int = 75
    temperature: int = 61
    power_mw: int = 350_000
    limit_mw: int = 700_000
    clocks: int = 0x4
    corrected: int = 3
    uncorrected: int = 0
    remapped: tuple[int, int, int, int] = (1, 0, 0, 0)
    retirement_pending: int = 0
    recovery: int = 0
    migs: list[FakeMig] | None = None
    """None: MIG is off."""
    nvlinks: list[str] = field(default_factory=list)
    """Bus id of the other end, `switch`, or empty for a link that is down."""
    lost: bool = False


class FakeNvml:
    """Behaves as the module; one object is one machine."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.driver = "580.65.06"
        self.init_error: int | None = None
        """What nvmlInit ends with, and after it every other call."""
        self.failing: dict[str, int] = {}
        """Function to the error that it ends with."""
        self.p2p_nvlink = False
        self.level = "node"
        self.hanging = threading.Event()
        self.hanging.set()
        """Cleared: every call waits until it is set."""
        self.inside = 0
        self.most_inside = 0
        self.calls = 0
        self.starts = 0
        self.shutdowns = 0
        self._initialised = False
        self._xids: list[tuple[FakeGpu, int]] = []
        self._watched: set[str] = set()
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        """Constants, structures and errors of the real module; functions that are not faked are refused."""
        value = getattr(pynvml, name)
        if name.startswith("nvml") and callable(value) and not isinstance(value, type):
            raise AssertionError(f"the fake has no {name}")
        return value

    def xid(self, gpu: FakeGpu, code: int) -> None:
        """The driver reports an XID."""
        self._xids.append((gpu, code))

    # What stands for the driver.

    def _enter(self, name: str) -> None:
        with self._lock:
            self.calls += 1
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            self.hanging.wait()
        finally:
            with self._lock:
                self.inside -= 1
        if name != "nvmlInit":
            if not self._initialised:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
            if self.init_error is not None:
                raise pynvml.NVMLError(self.init_error)
        if name in self.failing:
            raise pynvml.NVMLError(self.failing[name])

    def _gpu(self, handle: Any, name: str) -> FakeGpu:
        self._enter(name)
        place = ctypes.cast(handle, ctypes.c_void_p).value
        gpu = self.gpus[(place or 0) // 0x1000 - 1]
        if gpu.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return gpu

    @staticmethod
    def _handle(index: int, mig: int = 0) -> Any:
        return ctypes.cast(0x1000 * (index + 1) + mig, pynvml.c_nvmlDevice_t)

    def _mig(self, handle: Any, gpu: FakeGpu) -> FakeMig | None:
        place = ctypes.cast(handle, ctypes.c_void_p).value or 0
        return gpu.migs[place % 0x1000 - 1] if gpu.migs is not None and place % 0x1000 else None

    # The module's functions.

    def nvmlInit(self) -> None:  # noqa: N802
        self._enter("nvmlInit")
        if self.init_error is not None:
            raise pynvml.NVMLError(self.init_error)
        self.starts += 1
        self._initialised = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shutdowns += 1
        self._enter("nvmlShutdown")
        self._initialised = False
        self._watched.clear()

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        self._enter("nvmlSystemGetDriverVersion")
        return self.driver

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._enter("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        handle = self._handle(index)
        self._gpu(handle, "nvmlDeviceGetHandleByIndex")
        return handle

    def nvmlDeviceGetUUID(self, handle: Any) -> str:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetUUID")
        mig = self._mig(handle, gpu)
        return gpu.uuid if mig is None else mig.uuid

    def nvmlDeviceGetName(self, handle: Any) -> str:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetName")
        return "NVIDIA H100 80GB HBM3" + (" MIG 1g.10gb" if self._mig(handle, gpu) else "")

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetPciInfo")
        return pynvml.nvmlPciInfo_t(busId=gpu.bus.encode())

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:  # noqa: N802
        assert version is None
        gpu = self._gpu(handle, "nvmlDeviceGetMemoryInfo")
        part = self._mig(handle, gpu) or gpu
        return pynvml.c_nvmlMemory_t(total=part.total, used=part.used, free=part.total - part.used)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetUtilizationRates")
        if gpu.migs is not None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return pynvml.c_nvmlUtilization_t(gpu=gpu.utilisation, memory=10)

    def nvmlDeviceGetTemperatureV(self, handle: Any, sensor: int) -> int:  # noqa: N802
        return self._gpu(handle, "nvmlDeviceGetTemperatureV").temperature

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:  # noqa: N802
        return self._gpu(handle, "nvmlDeviceGetTemperature").temperature

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:  # noqa: N802
        return self._gpu(handle, "nvmlDeviceGetPowerUsage").power_mw

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:  # noqa: N802
        return self._gpu(handle, "nvmlDeviceGetEnforcedPowerLimit").limit_mw

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:  # noqa: N802
        return self._gpu(handle, "nvmlDeviceGetCurrentClocksEventReasons").clocks

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:  # noqa: N802
        return self._gpu(handle, "nvmlDeviceGetCurrentClocksThrottleReasons").clocks

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int:  # noqa: N802
        assert counter == pynvml.NVML_VOLATILE_ECC
        gpu = self._gpu(handle, "nvmlDeviceGetTotalEccErrors")
        return gpu.uncorrected if kind == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED else gpu.corrected

    def nvmlDeviceGetRemappedRows(self, handle: Any) -> tuple[int, int, int, int]:  # noqa: N802
        return self._gpu(handle, "nvmlDeviceGetRemappedRows").remapped

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: Any) -> int:  # noqa: N802
        return self._gpu(handle, "nvmlDeviceGetRetiredPagesPendingStatus").retirement_pending

    def nvmlDeviceGetFieldValues(self, handle: Any, ids: list[int]) -> Any:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetFieldValues")
        assert ids == [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        values = (pynvml.c_nvmlFieldValue_t * 1)()
        values[0].value.uiVal = gpu.recovery
        return values

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:  # noqa: N802
        on = int(self._gpu(handle, "nvmlDeviceGetMigMode").migs is not None)
        return [on, on]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:  # noqa: N802
        self._gpu(handle, "nvmlDeviceGetMaxMigDeviceCount")
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetMigDeviceHandleByIndex")
        if gpu.migs is None or index >= len(gpu.migs):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self._handle(self.gpus.index(gpu), index + 1)

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetGpuInstanceId")
        mig = self._mig(handle, gpu)
        assert mig is not None
        return mig.instance

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: Any) -> int:  # noqa: N802
        self._gpu(handle, "nvmlDeviceGetCurrPcieLinkGeneration")
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: Any) -> int:  # noqa: N802
        self._gpu(handle, "nvmlDeviceGetCurrPcieLinkWidth")
        return 16

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetNvLinkState")
        if link >= len(gpu.nvlinks):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(bool(gpu.nvlinks[link]))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, link: int) -> int:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetNvLinkRemoteDeviceType")
        switch = gpu.nvlinks[link] == "switch"
        return int(pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if switch else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceGetNvLinkRemotePciInfo")
        return pynvml.nvmlPciInfo_t(busId=gpu.nvlinks[link].encode())

    def nvmlDeviceGetP2PStatus(self, one: Any, other: Any, index: int) -> int:  # noqa: N802
        assert index == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        self._gpu(one, "nvmlDeviceGetP2PStatus")
        self._gpu(other, "nvmlDeviceGetP2PStatus")
        return int(pynvml.NVML_P2P_STATUS_OK if self.p2p_nvlink else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED)

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any) -> int:  # noqa: N802
        self._gpu(one, "nvmlDeviceGetTopologyCommonAncestor")
        self._gpu(other, "nvmlDeviceGetTopologyCommonAncestor")
        return LEVELS[self.level]

    def nvmlEventSetCreate(self) -> Any:  # noqa: N802
        self._enter("nvmlEventSetCreate")
        return pynvml.c_nvmlEventSet_t()

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> int:  # noqa: N802
        self._gpu(handle, "nvmlDeviceGetSupportedEventTypes")
        return int(pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypePState)

    def nvmlDeviceRegisterEvents(self, handle: Any, types: int, events: Any) -> None:  # noqa: N802
        gpu = self._gpu(handle, "nvmlDeviceRegisterEvents")
        assert types == pynvml.nvmlEventTypeXidCriticalError
        self._watched.add(gpu.uuid)

    def nvmlEventSetWait_v2(self, events: Any, timeout_ms: int) -> Any:  # noqa: N802
        self._enter("nvmlEventSetWait_v2")
        while self._xids:
            gpu, code = self._xids.pop(0)
            if gpu.uuid in self._watched:
                return pynvml.c_nvmlEventData_t(
                    device=self._handle(self.gpus.index(gpu)),
                    eventType=pynvml.nvmlEventTypeXidCriticalError,
                    eventData=code,
                    gpuInstanceId=0xFFFFFFFF,
                    computeInstanceId=0xFFFFFFFF,
                )
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)

    def nvmlEventSetFree(self, events: Any) -> None:  # noqa: N802
        self._enter("nvmlEventSetFree")
