"""`/api/v1/gpus`: every GPU that is known, with its health and why."""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fleet.gpu.faults import describe, health

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.gpu.reading import GpuReading
    from fleet.settings import FaultSettings
    from xds_server.signals.gpu.reports import Held


def gpu_view(readings: Mapping[str, Held], now: float, faults: FaultSettings) -> list[dict[str, Any]]:
    """One entry a host or page, in the order of their names. Plain data."""
    shown = {_shown(name) if held.source == "dcgm" else name: held for name, held in readings.items()}
    return [
        {
            "node": name,
            "source": held.source,
            "age_seconds": round(max(0.0, now - held.reading.sampled_at), 3),
            "connected": held.ended_at is None,
            "unavailable": held.reading.unavailable,
            "driver_version": held.reading.driver_version,
            "gpus": [_gpu(gpu, now, faults) for gpu in held.reading.gpus],
        }
        for name, held in sorted(shown.items(), key=itemgetter(0))
    ]


def _gpu(gpu: GpuReading, now: float, faults: FaultSettings) -> dict[str, Any]:
    rated = health(gpu.events(now), now, faults)
    told = asdict(gpu)
    told["clocks_reasons"] = None if gpu.clocks_reasons is None else sorted(gpu.clocks_reasons)
    told["health_score"] = rated.score
    told["health_cause"] = None if rated.cause is None else describe(rated.cause.kind, rated.cause.code)
    told["faults"] = [
        {
            "kind": fault.kind,
            "code": fault.code,
            "times": fault.times,
            "age_seconds": round(max(0.0, now - fault.at), 3),
            "meaning": describe(fault.kind, fault.code),
        }
        for fault in gpu.faults
    ]
    return told


def _shown(url: str) -> str:
    """A page's URL without what may be a secret."""
    parts = urlsplit(url)
    return f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
