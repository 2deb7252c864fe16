"""A host's GPUs at one moment. Frozen; unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleet.gpu.faults import FaultEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOCKS_EVENT_REASONS: Final[Mapping[int, str]] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of NVML's clocks event reasons; DCGM exports the same."""
HARDWARE_SLOWDOWN: Final = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})
"""Reasons by which hardware slows the clocks down."""

RECOVERY_ACTIONS: Final[Mapping[int, str]] = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
"""NVML's NVML_GPU_RECOVERY_ACTION_*: the action that the driver requests for a GPU."""


def clocks_reasons(mask: int) -> frozenset[str]:
    """Return the names of the set bits; bits without a name are left out."""
    return frozenset(name for bit, name in CLOCKS_EVENT_REASONS.items() if mask & bit)


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Memory rows put aside for spare ones."""

    correctable: int
    uncorrectable: int
    pending: bool
    """Whether a row waits for a reset."""
    failed: bool
    """Whether a row could not be remapped."""


@dataclass(frozen=True, slots=True)
class MigSlice:
    """A part of a GPU that acts as a GPU of its own."""

    uuid: str
    """Empty if the source lacks it."""
    instance: int | None = None
    """The GPU instance's number within its GPU."""
    name: str | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink of a GPU."""

    link: int
    active: bool | None = None
    peer: str | None = None
    """UUID of the GPU at the other end, or `switch`; None: unknown."""


@dataclass(frozen=True, slots=True)
class PeerLink:
    """The way to another GPU of the host, in the terms of `nvidia-smi topo -m`."""

    uuid: str
    link: str
    """NVLINK, PIX, PXB, PHB, NODE or SYS."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU."""

    uuid: str
    index: int | None = None
    name: str | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilisation_ratio: float | None = None
    """Share of the time in which a kernel ran, 0 to 1."""
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    """The limit in force."""
    clocks_reasons: frozenset[str] | None = None
    """Why the clocks are what they are, of `CLOCKS_EVENT_REASONS`."""
    ecc_corrected_total: int | None = None
    """Since the driver was loaded."""
    ecc_uncorrected_total: int | None = None
    remapped_rows: RemappedRows | None = None
    retirement_pending: bool | None = None
    mig_enabled: bool | None = None
    mig_slices: tuple[MigSlice, ...] = ()
    nvlinks: tuple[NvLink, ...] | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    peers: tuple[PeerLink, ...] | None = None
    recovery_action: str | None = None
    """One of `RECOVERY_ACTIONS`."""
    faults: tuple[FaultEvent, ...] = ()
    """Since the last start of the agent, the driver or the GPU."""
    lost: bool = False
    """It no longer answers."""

    def events(self, now: float) -> tuple[FaultEvent, ...]:
        """Return its faults and states, the states as of `now`."""
        states = []
        if self.lost:
            states.append("lost")
        if self.remapped_rows is not None and self.remapped_rows.failed:
            states.append("row_remap_failed")
        if self.remapped_rows is not None and self.remapped_rows.pending:
            states.append("row_remap_pending")
        if self.retirement_pending:
            states.append("retirement_pending")
        if self.recovery_action not in {None, "none"}:
            states.append(f"recovery_{self.recovery_action}")
        return (*self.faults, *(FaultEvent("state", state, now) for state in states))


@dataclass(frozen=True, slots=True)
class NodeReading:
    """Every GPU of a host at one moment."""

    sampled_at: float
    """Seconds on this process's monotonic clock."""
    gpus: tuple[GpuReading, ...] = ()
    unavailable: str = ""
    """Why no GPU can be read; empty: they can."""
    driver_version: str | None = None
