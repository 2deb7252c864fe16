"""A session of NVML, from its start to its shutdown: the GPUs, their XID events, their readings."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from fleet.gpu.reading import GpuReading
from warmroute.gpu_agent.fields import Device, Fields, Surroundings, bus_id, raising, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warmroute.gpu_agent.metrics import AgentMetrics

EVENT_WAIT_MS: Final = 1
MAX_EVENTS: Final = 64
"""Events read in one sample; NVML keeps the others for the next."""


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
