"""Weights over time, as Warmroute's admin API reports them, and figures of their swing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.cluster import Cluster
    from warmroute.demo.load import LoadRun

_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Point:
    """The weights at one moment."""

    at_seconds: float
    """From the start of the load."""
    shares: tuple[float, ...]
    """Each engine's weight over the equal share: 1 is fair."""


async def record(cluster: Cluster, load: LoadRun, points: list[Point]) -> None:
    """Append a point several times a second, until cancelled."""
    while True:
        page = await cluster.get_json(cluster.admin_address, "/api/v1/endpoints") or {}
        entries = {entry["address"]: entry for entry in page.get("endpoints", ())}
        weights_now = [entries.get(address, {}).get("weight") for address in cluster.engines]
        weights = [float(weight) for weight in weights_now if weight is not None]
        if len(weights) == len(weights_now):
            mean = fmean(weights)
            points.append(Point(load.elapsed_seconds, tuple(weight / mean for weight in weights)))
        await asyncio.sleep(_POLL_SECONDS)


def between(points: Sequence[Point], since: float, until: float) -> list[Point]:
    """Return the points of a time."""
    return [point for point in points if since <= point.at_seconds < until]


def swing(points: Sequence[Point]) -> float | None:
    """How far the engine that moved most went from its least to its greatest share; None without points."""
    if not points:
        return None
    rows = list(zip(*(point.shares for point in points), strict=True))
    return max((max(row) - min(row) for row in rows), default=0.0)


def overshoots(shares: Sequence[float], before: float, settled: float, band_ratio: float = 0.1) -> int:
    """How often a share that goes from `before` to `settled` passes the latter by more than the band."""
    way = settled - before
    past = [(share - settled) * way > 0 and abs(share - settled) > band_ratio * settled for share in shares]
    return sum(now and not earlier for earlier, now in pairwise([False, *past]))


def settled_after(points: Sequence[Point], engine: int, settled: float, band_ratio: float) -> float | None:
    """Return the moment from which on a share stays in the band for good; None: it does not."""
    inside = [abs(point.shares[engine] - settled) <= band_ratio * settled for point in points]
    if not inside or not inside[-1]:
        return None
    outside = [number for number, good in enumerate(inside) if not good]
    return points[outside[-1] + 1 if outside else 0].at_seconds
