"""From a host's GPUs to one endpoint's signals. Pure.

Of several GPUs the worst decides where one full, hot or broken GPU holds the engine up (memory, temperature,
power, health); utilisation is their mean, memory in bytes their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fleet.gpu.faults import health
from fleet.gpu.reading import HARDWARE_SLOWDOWN
from fleet.signals import Source, valid_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.gpu.reading import GpuReading, NodeReading
    from fleet.settings import FaultSettings


class Part(NamedTuple):
    """A GPU, or a MIG slice with the GPU that it is of."""

    gpu: GpuReading
    memory_used_bytes: int | None
    memory_total_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuSignals:
    """The signals of one endpoint's GPUs."""

    numbers: Mapping[str, float]
    """By the name of the signal; what is unknown is left out."""
    sampled_at: float
    source: Source
    until: float | None = None
    """When a fault ends, so that the health score may be another one; None: not by itself."""
    missing: bool = False
    """Whether the endpoint names a GPU that is not there, or there is none at all."""


def signals_of(
    reading: NodeReading, chosen: tuple[str, ...], source: Source, now: float, faults: FaultSettings
) -> GpuSignals:
    """Combine the chosen GPUs.

    Args:
        reading: of the endpoint's host.
        chosen: UUIDs or indices of GPUs, UUIDs of MIG slices, or `GPU-UUID/INSTANCE` for a slice; empty: all
            GPUs, and of those that are cut, all slices.
        source: of the reading.
        now: on the clock of the reading.
        faults: how long a fault counts.
    """
    parts = _parts(reading.gpus, chosen)
    missing = not parts if not chosen else len(_named(parts, chosen)) < len(chosen)
    if not parts:
        return GpuSignals({}, reading.sampled_at, source, missing=True)
    gpus = {part.gpu.uuid: part.gpu for part in parts}.values()
    rated = [health(gpu.events(now), now, faults) for gpu in gpus]
    ends = [rating.until for rating in rated if rating.until is not None]
    throttled = [_throttled(gpu) for gpu in gpus if gpu.clocks_reasons is not None]
    busy = [gpu.utilisation_ratio for gpu in gpus if gpu.utilisation_ratio is not None]
    total = [part.memory_total_bytes for part in parts]
    values = {
        "gpu_memory_used_ratio": _highest(_ratio(p.memory_used_bytes, p.memory_total_bytes) for p in parts),
        "gpu_memory_total_bytes": None if missing or None in total else sum(filter(None, total)),
        "gpu_utilisation_ratio": _mean(busy),
        "gpu_temperature_celsius": _highest(g.temperature_celsius for g in gpus),
        "gpu_power_ratio": _highest(_ratio(g.power_watts, g.power_limit_watts) for g in gpus),
        "gpu_throttled_ratio": _mean(throttled),
        "gpu_health_score": min(rating.score for rating in rated),
    }
    return GpuSignals(valid_values(values), reading.sampled_at, source, min(ends, default=None), missing)


def _parts(gpus: Iterable[GpuReading], chosen: tuple[str, ...]) -> list[Part]:
    """Return the chosen parts: of a GPU that is chosen itself no slices."""
    parts = []
    for gpu in gpus:
        whole = gpu.uuid in chosen or (gpu.index is not None and str(gpu.index) in chosen)
        slices = [
            mig
            for mig in (() if whole else gpu.mig_slices)
            if not chosen or mig.uuid in chosen or f"{gpu.uuid}/{mig.instance}" in chosen
        ]
        parts += [Part(gpu, mig.memory_used_bytes, mig.memory_total_bytes) for mig in slices]
        if whole or not (chosen or slices):
            parts.append(Part(gpu, gpu.memory_used_bytes, gpu.memory_total_bytes))
    return parts


def _named(parts: list[Part], chosen: tuple[str, ...]) -> set[str]:
    names: set[str] = set()
    for gpu in (part.gpu for part in parts):
        names |= {gpu.uuid, str(gpu.index)}
        for mig in gpu.mig_slices:
            names |= {mig.uuid, f"{gpu.uuid}/{mig.instance}"}
    return names & set(chosen)


def _throttled(gpu: GpuReading) -> float:
    return float(bool(HARDWARE_SLOWDOWN & (gpu.clocks_reasons or frozenset())))


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
