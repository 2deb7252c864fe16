"""A session of NVML, and the fields of its GPUs: an error makes its own field unknown and no other one.

Names and units are those of nvidia-ml-py's `pynvml.py`: power in mW, memory in bytes, utilisation in percent.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fleet.gpu.reading import (
    RECOVERY_ACTIONS,
    GpuReading,
    MigSlice,
    NvLink,
    PeerLink,
    RemappedRows,
    clocks_reasons,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warmroute.gpu_agent.metrics import AgentMetrics

Value = TypeVar("Value")
LINK_OF_LEVEL: Final = ((10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS"))
"""NVML_TOPOLOGY_* up to the number, in the terms of `nvidia-smi topo -m`."""
EVENT_WAIT_MS: Final = 1
MAX_EVENTS: Final = 64
"""Events read in one sample; NVML keeps the others for the next."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU in a session of NVML."""

    handle: Any
    uuid: str
    index: int
    bus_id: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Fields that hardly ever change and take many calls."""

    name: str | None
    nvlinks: tuple[NvLink, ...] | None
    peers: tuple[PeerLink, ...] | None


class Fields:
    """Reads fields of GPUs and counts those that cannot be read."""

    def __init__(self, nvml: Any, count: Callable[[str, str], None]) -> None:
        self._nvml = nvml
        self._count = count
        self._ends_session = frozenset(
            (
                nvml.NVML_ERROR_UNINITIALIZED,
                nvml.NVML_ERROR_DRIVER_NOT_LOADED,
                nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
                nvml.NVML_ERROR_GPU_IS_LOST,
                nvml.NVML_ERROR_GPU_NOT_FOUND,
            )
        )
        self.answered = 0
        """Fields read since the last `begin`."""
        self.failed = 0
        """Fields since then that failed, apart from those that are not supported."""
        self.reset_required = False

    def begin(self) -> None:
        """Start counting for another GPU."""
        self.answered = self.failed = 0
        self.reset_required = False

    def read(self, field: str, call: Callable[[], Value]) -> Value | None:
        """Read one field; None if NVML does not return it.

        Raises:
            NVMLError: the GPU or the driver is gone.
        """
        try:
            value = call()
        except self._nvml.NVMLError as error:
            if error.value in self._ends_session:
                raise
            self._count(field, type(error).__name__.removeprefix("NVMLError_"))
            self.reset_required |= error.value == self._nvml.NVML_ERROR_RESET_REQUIRED
            unsupported = (self._nvml.NVML_ERROR_NOT_SUPPORTED, self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            self.failed += error.value not in unsupported
            return None
        except AttributeError:  # a module that is older than this reader
            self._count(field, "NotInModule")
            return None
        self.answered += 1
        return value

    def scaled(self, field: str, call: Callable[[], int], unit: float) -> float | None:
        """Return a number in units of `unit`."""
        value = self.read(field, call)
        return None if value is None else value * unit

    def memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Return bytes used and in total; memory that the driver reserves counts as used."""
        memory = self.read("memory", lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle))
        return (None, None) if memory is None or not memory.total else (int(memory.used), int(memory.total))

    def temperature(self, handle: Any) -> float | None:
        """Return the temperature of the chip in degrees Celsius."""
        nvml = self._nvml

        def call() -> int:
            try:
                value: int = nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU)
            except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_ArgumentVersionMismatch):
                # An older driver.
                value = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            return value

        return self.scaled("temperature", call, 1.0)

    def clocks(self, handle: Any) -> frozenset[str] | None:
        """Return the reasons of the current clocks."""
        nvml = self._nvml

        def call() -> int:
            try:
                mask: int = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
            except nvml.NVMLError_FunctionNotFound:  # an older driver
                mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            return mask

        mask = self.read("clocks_event_reasons", call)
        return None if mask is None else clocks_reasons(mask)

    def ecc(self, handle: Any, kind: int, field: str) -> int | None:
        """Return the memory errors of a kind since the driver was loaded."""
        nvml = self._nvml
        return self.read(
            field, lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC))
        )

    def remapped_rows(self, handle: Any) -> RemappedRows | None:
        """Return the counts of remapped rows."""
        rows = self.read("remapped_rows", lambda: self._nvml.nvmlDeviceGetRemappedRows(handle))
        if rows is None:
            return None
        correctable, uncorrectable, pending, failed = rows
        return RemappedRows(correctable, uncorrectable, bool(pending), bool(failed))

    def retirement_pending(self, handle: Any) -> bool | None:
        """Whether a page waits for a reset to be retired (GPUs before Ampere)."""
        status = self.read(
            "retirement_pending", lambda: self._nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)
        )
        return None if status is None else status == self._nvml.NVML_FEATURE_ENABLED

    def recovery_action(self, handle: Any) -> str | None:
        """Return the action that the driver requests for the GPU."""
        nvml = self._nvml

        def call() -> int:
            field = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
            if field.nvmlReturn != nvml.NVML_SUCCESS:
                raise nvml.NVMLError(field.nvmlReturn)
            return int(field.value.uiVal)

        action = self.read("recovery_action", call)
        if self.reset_required:
            return "gpu_reset"
        return None if action is None else RECOVERY_ACTIONS.get(action, f"action_{action}")

    def mig(self, handle: Any) -> tuple[bool | None, tuple[MigSlice, ...]]:
        """Return whether MIG is enabled, and the slices."""
        nvml = self._nvml
        mode = self.read("mig_mode", lambda: nvml.nvmlDeviceGetMigMode(handle))
        if mode is None:
            return None, ()
        if mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return False, ()
        most = self.read("mig_devices", lambda: int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0
        return True, tuple(mig for number in range(most) if (mig := self._slice(handle, number)) is not None)

    def _slice(self, handle: Any, number: int) -> MigSlice | None:
        nvml = self._nvml

        def call() -> Any:
            try:
                return nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            except nvml.NVMLError_NotFound:  # a place that no slice takes
                return None

        mig = self.read("mig_device", call)
        if mig is None:
            return None
        uuid = self.read("mig_uuid", lambda: text(nvml.nvmlDeviceGetUUID(mig)))
        if uuid is None:
            return None
        used, total = self.memory(mig)
        return MigSlice(
            uuid,
            self.read("mig_instance", lambda: int(nvml.nvmlDeviceGetGpuInstanceId(mig))),
            self.read("mig_name", lambda: text(nvml.nvmlDeviceGetName(mig))),
            used,
            total,
        )

    def surroundings(self, device: Device, others: Mapping[str, Device]) -> Surroundings:
        """Read name, NVLinks, and the link to each other GPU (`others`: by UUID)."""
        return Surroundings(
            self.read("name", lambda: text(self._nvml.nvmlDeviceGetName(device.handle))),
            self._nvlinks(device, {other.bus_id: uuid for uuid, other in others.items()}),
            self._peers(device, others),
        )

    def _nvlinks(self, device: Device, by_bus: Mapping[str, str]) -> tuple[NvLink, ...] | None:
        nvml, links = self._nvml, []
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                state = nvml.nvmlDeviceGetNvLinkState(device.handle, link)
            except (nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotSupported):
                break  # the GPU has no more links
            except nvml.NVMLError as error:
                self.read("nvlink", raising(error))
                return None
            active = state == nvml.NVML_FEATURE_ENABLED
            peer = self._nvlink_peer(device.handle, link, by_bus) if active else None
            links.append(NvLink(link, active, peer))
        return tuple(links)

    def _nvlink_peer(self, handle: Any, link: int, by_bus: Mapping[str, str]) -> str | None:
        nvml = self._nvml
        kind = self.read("nvlink_peer", lambda: nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link))
        if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return "switch"
        pci = self.read("nvlink_peer", lambda: nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link))
        return None if pci is None else by_bus.get(bus_id(pci))

    def _peers(self, device: Device, others: Mapping[str, Device]) -> tuple[PeerLink, ...] | None:
        peers = []
        for uuid, other in others.items():
            if uuid != device.uuid and (link := self._link(device.handle, other.handle)) is not None:
                peers.append(PeerLink(uuid, link))
        return tuple(peers)

    def _link(self, one: Any, other: Any) -> str | None:
        nvml = self._nvml
        p2p = self.read(
            "p2p", lambda: nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        )
        if p2p == nvml.NVML_P2P_STATUS_OK:
            return "NVLINK"
        level = self.read("topology", lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(one, other))
        if level is None:
            return None
        return next((link for most, link in LINK_OF_LEVEL if level <= most), None)


def bus_id(info: Any) -> str:
    """Return the PCI address of NVML's structure, spelt alike for a GPU and for the peer of a link."""
    return text(info.busId).lower()


def text(value: Any) -> str:
    """Return a text of NVML as str: some versions of its module return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def raising(error: Exception) -> Callable[[], None]:
    """Return a call that raises an earlier error, for `Fields.read`."""

    def call() -> None:
        raise error

    return call


class Session:
    """A running NVML. Every method may raise the module's `NVMLError` when the driver is gone."""

    def __init__(self, nvml: Any, metrics: AgentMetrics) -> None:
        """`nvml` must be initialised."""
        self.nvml = nvml
        self.fields = Fields(nvml, metrics.field_error)
        self.devices: dict[str, Device] = {}
        self.driver_version: str | None = None
        self._metrics = metrics
        self._events: Any = None
        self._by_handle: Mapping[Any, str] = {}

    def open(self) -> None:
        """Find the GPUs and listen to their XID events."""
        self._find_devices()
        self._by_handle = {_key(device.handle): uuid for uuid, device in self.devices.items()}
        self.driver_version = self.fields.read(
            "driver_version", lambda: text(self.nvml.nvmlSystemGetDriverVersion())
        )
        self._events = self.fields.read("xid", self.nvml.nvmlEventSetCreate)
        for device in self.devices.values():
            self._watch(device)

    def _find_devices(self) -> None:
        for index in range(self.nvml.nvmlDeviceGetCount()):
            try:
                handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = text(self.nvml.nvmlDeviceGetUUID(handle))
                self.devices[uuid] = Device(handle, uuid, index, self._bus_id(handle))
            except self.nvml.NVMLError as error:
                if not about_one_gpu(self.nvml, error):
                    raise
                self._metrics.field_error("handle", error_name(error))

    def _bus_id(self, handle: Any) -> str:
        return self.fields.read("pci", lambda: bus_id(self.nvml.nvmlDeviceGetPciInfo(handle))) or ""

    def _watch(self, device: Device) -> None:
        nvml, xid = self.nvml, self.nvml.nvmlEventTypeXidCriticalError

        def call() -> None:
            if nvml.nvmlDeviceGetSupportedEventTypes(device.handle) & xid:
                nvml.nvmlDeviceRegisterEvents(device.handle, xid, self._events)

        if self._events is None:
            return
        try:
            self.fields.read("xid", call)
        except nvml.NVMLError as error:
            if not about_one_gpu(nvml, error):
                raise

    def xids(self) -> list[tuple[str, int]]:
        """Return UUID and code of each XID since the last call."""
        nvml = self.nvml
        events: list[tuple[str, int]] = []
        while self._events is not None and len(events) < MAX_EVENTS:
            try:
                data = nvml.nvmlEventSetWait_v2(self._events, EVENT_WAIT_MS)
            except nvml.NVMLError_Timeout:
                break
            except nvml.NVMLError as error:
                if not about_one_gpu(nvml, error):  # Reading the GPUs shows which one is gone.
                    self.fields.read("xid", raising(error))
                break
            events.append((self._by_handle.get(_key(data.device), ""), int(data.eventData)))
        return events

    def gpu(self, device: Device, around: Surroundings) -> GpuReading:
        """Read one GPU, without its faults."""
        nvml, fields, handle = self.nvml, self.fields, device.handle
        fields.begin()
        used, total = fields.memory(handle)
        utilisation = fields.read("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        mig_enabled, slices = fields.mig(handle)
        reading = GpuReading(
            uuid=device.uuid,
            index=device.index,
            name=around.name,
            memory_used_bytes=used,
            memory_total_bytes=total,
            utilisation_ratio=None if utilisation is None or mig_enabled else utilisation.gpu / 100,
            temperature_celsius=fields.temperature(handle),
            power_watts=fields.scaled("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle), 0.001),
            power_limit_watts=fields.scaled(
                "power_limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle), 0.001
            ),
            clocks_reasons=fields.clocks(handle),
            ecc_corrected_total=fields.ecc(handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, "ecc_corrected"),
            ecc_uncorrected_total=fields.ecc(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, "ecc_uncorrected"
            ),
            remapped_rows=fields.remapped_rows(handle),
            retirement_pending=fields.retirement_pending(handle),
            mig_enabled=mig_enabled,
            mig_slices=slices,
            nvlinks=around.nvlinks,
            pcie_generation=fields.read("pcie", lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            pcie_width=fields.read("pcie", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            peers=around.peers,
            recovery_action=fields.recovery_action(handle),
        )
        if not fields.answered and fields.failed:
            raise nvml.NVMLError(nvml.NVML_ERROR_UNKNOWN)  # No field can be read: the session is broken.
        return reading

    def close(self) -> None:
        """Shut NVML down; without a driver there is nothing left to free."""
        steps = [("shutdown", self.nvml.nvmlShutdown)]
        if self._events is not None:
            steps.insert(0, ("event_set", lambda: self.nvml.nvmlEventSetFree(self._events)))
        for field, step in steps:
            try:
                step()
            except self.nvml.NVMLError as error:
                self._metrics.field_error(field, error_name(error))


def about_one_gpu(nvml: Any, error: Any) -> bool:
    """Whether an error means the loss of one GPU, not of the driver."""
    return error.value in {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_GPU_NOT_FOUND}


def error_name(error: Any) -> str:
    """An NVML error's name."""
    return type(error).__name__.removeprefix("NVMLError_")


def _key(handle: Any) -> Any:
    """Return the identity of a handle's GPU: the value of the opaque pointer."""
    return ctypes.cast(handle, ctypes.c_void_p).value
