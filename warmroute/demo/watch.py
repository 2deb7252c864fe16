"""What the live table shows: one row an engine, as Warmroute sees it, or as the engines say themselves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from warmroute.demo.report import ratio
from warmroute.demo.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmroute.demo.cluster import Cluster
    from warmroute.demo.load import LoadRun
    from warmroute.demo.stats import Outcome

_RECENT: Final = 100
"""P99 and hit ratio of an engine, where the client works them out, cover this many of its answers."""
_GAUGES: Final = {
    "vllm:kv_cache_usage_perc": "memory_used_ratio",
    "vllm:num_requests_waiting": "queue_depth",
    "vllm:num_requests_running": "running",
    "llamacpp:requests_deferred": "queue_depth",
    "llamacpp:requests_processing": "running",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One engine at one moment. None is unknown."""

    address: str
    weight: int | None = None
    memory_used_ratio: float | None = None
    queue_depth: float | None = None
    latency_p99_seconds: float | None = None
    in_flight: int | None = None
    prefix_hit_ratio: float | None = None
    requests: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """All that the live table shows."""

    rows: Sequence[Row]
    elapsed_seconds: float
    sent: int
    in_flight: int
    failures: int
    status: Mapping[str, Any] = field(default_factory=dict)
    """Warmroute's /api/v1/status; empty for Envoy alone."""


def stage(view: View, total_seconds: float) -> str:
    """Progress of a run of `total_seconds`, in words."""
    if view.elapsed_seconds < total_seconds:
        return f"{view.elapsed_seconds:.1f} of {total_seconds:g} s"
    return "waiting for the last answers" if view.in_flight else "done"


async def observe(cluster: Cluster, load: LoadRun) -> View:
    """Read everything once; parts that do not answer now are unknown."""
    entries: dict[str, Mapping[str, Any]] = {}
    status: Mapping[str, Any] = {}
    if cluster.settings.router == "envoy":
        pages = await asyncio.gather(*(cluster.get(address, "/metrics") for address in cluster.engines))
        entries = {
            address: entry_of(page or b"") for address, page in zip(cluster.engines, pages, strict=True)
        }
    else:
        entries = by_address(await cluster.get_json(cluster.admin_address, "/api/v1/endpoints"))
        status = await warmroute_status(cluster)
    rows = [row(address, entries.get(address, {}), load.outcomes) for address in cluster.engines]
    failures = sum(outcome.failure is not None for outcome in load.outcomes)
    return View(rows, load.elapsed_seconds, load.started, load.in_flight, failures, status)


async def warmroute_status(cluster: Cluster) -> dict[str, Any]:
    """Return /api/v1/status; apart, that of xds with the picks of ext-proc."""
    status: dict[str, Any] = await cluster.get_json(cluster.admin_address, "/api/v1/status") or {}
    if cluster.settings.router == "apart":
        other = await cluster.get_json(cluster.ext_proc_admin_address, "/api/v1/status") or {}
        status = {**other, **status, "picks": other.get("picks")}
    return status


def entry_of(page: bytes) -> dict[str, Any]:
    """Read the few gauges of an engine's page that the table shows, as an entry of /api/v1/endpoints."""
    load: dict[str, float] = {}
    for line in page.decode(errors="replace").splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in _GAUGES:
            load[_GAUGES[name]] = float(line.rpartition(" ")[2])
    if "running" not in load:
        return {"load": load}
    return {"in_flight": int(load["running"] + load.get("queue_depth", 0)), "load": load}


def by_address(document: Any) -> dict[str, Mapping[str, Any]]:
    """Return the entries of /api/v1/endpoints by their addresses."""
    return {entry["address"]: entry for entry in (document or {}).get("endpoints", ())}


def row(address: str, entry: Mapping[str, Any], outcomes: Sequence[Outcome]) -> Row:
    """Join an engine's entry and its load with the client's figures; the former has priority.

    Both have an `in_flight`: the entry's is the count of now, the load's that of the last scrape.
    """
    load = entry.get("load") or {}
    served = [o for o in outcomes if o.served == address and o.failure is None]
    recent = served[-_RECENT:]
    hits = ratio(sum(o.cached_tokens or 0 for o in recent), sum(o.prompt_tokens or 0 for o in recent))
    p99 = percentile([o.ttft_seconds for o in recent if o.ttft_seconds is not None], 0.99)
    return Row(
        address,
        weight=entry.get("weight"),
        memory_used_ratio=load.get("memory_used_ratio"),
        queue_depth=load.get("queue_depth"),
        latency_p99_seconds=_first(load.get("latency_p99_seconds"), p99),
        in_flight=entry.get("in_flight"),
        prefix_hit_ratio=_first(load.get("prefix_hit_ratio"), hits),
        requests=len(served),
    )


def _first(reported: float | None, measured: float | None) -> float | None:
    return measured if reported is None else reported
