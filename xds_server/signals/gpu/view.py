"""`/api/v1/gpus`: every known GPU, with its health and the cause of it."""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fleet.gpu.faults import describe, health
from fleet.signals import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.gpu.reading import GpuReading
    from fleet.settings import FaultSettings
    from xds_server.signals.gpu.reports import GpuSource


def gpu_view(readings: Mapping[str, GpuSource], now: float, faults: FaultSettings) -> list[dict[str, Any]]:
    """One entry a host or page, in the order of their names. Plain data."""
    sources = {
        _without_secrets(name) if source.source is Source.DCGM else name: source
        for name, source in readings.items()
    }
    return [
        {
            "node": name,
            "source": source.source.label,
            "age_seconds": round(max(0.0, now - source.reading.sampled_at), 3),
            "connected": source.ended_at is None,
            "unavailable": source.reading.unavailable,
            "driver_version": source.reading.driver_version,
            "gpus": [_gpu(gpu, now, faults) for gpu in source.reading.gpus],
        }
        for name, source in sorted(sources.items(), key=itemgetter(0))
    ]


def _gpu(gpu: GpuReading, now: float, faults: FaultSettings) -> dict[str, Any]:
    rated = health(gpu.events(now), now, faults)
    entry = asdict(gpu)
    entry["clocks_reasons"] = None if gpu.clocks_reasons is None else sorted(gpu.clocks_reasons)
    entry["health_score"] = rated.score
    entry["health_cause"] = None if rated.cause is None else describe(rated.cause.kind, rated.cause.code)
    entry["faults"] = [
        {
            "kind": fault.kind,
            "code": fault.code,
            "times": fault.times,
            "age_seconds": round(max(0.0, now - fault.at), 3),
            "meaning": describe(fault.kind, fault.code),
        }
        for fault in gpu.faults
    ]
    return entry


def _without_secrets(url: str) -> str:
    """A page's URL without what may be a secret."""
    parts = urlsplit(url)
    return f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
