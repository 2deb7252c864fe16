"""From settings to sources: one line for each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.service.turns import Turns
from xds_server.endpoints.dns import DnsSource
from xds_server.endpoints.file import FileSource
from xds_server.endpoints.lookup import Lookup
from xds_server.endpoints.source import EndpointSource, StaticSource, TroubleReport
from xds_server.endpoints.special import Screen

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from fleet.endpoint import Endpoint
    from fleet.settings import DiscoverySettings, PoolSettings
    from xds_server.endpoints.source import SourceMetrics

    Factory = Callable[["PoolSettings", "DiscoverySettings | None", SourceMetrics], "ReportedSource"]


Key = tuple[str, "DiscoverySettings | None"]
"""Pool and source; None: the endpoints.status in the settings."""


@dataclass(frozen=True, slots=True)
class ReportedSource:
    """A source with its reporter."""

    source: EndpointSource
    trouble: TroubleReport


@dataclass(slots=True)
class RunningSource:
    """A source that runs, with its newest endpoints."""

    made: ReportedSource
    basis: tuple[object, ...]
    endpoints: tuple[Endpoint, ...] | None = None
    """None: unknown yet."""
    initial: bool = False
    """Whether it runs since the start: its first endpoints were probably served before this process."""
    task: asyncio.Task[None] | None = None


def keys(pool: PoolSettings) -> tuple[Key, ...]:
    """The pool's sources, in the order of their precedence for duplicates."""
    return ((pool.name, None), *((pool.name, entry) for entry in pool.discovery))


def basis(pool: PoolSettings, entry: DiscoverySettings | None) -> tuple[object, ...]:
    """The settings that a source's endpoints depend on, apart from the source's own."""
    listed = pool.endpoints if entry is None else ()
    own = pool.models, pool.engine, pool.tls is not None, pool.kv_events
    return *own, pool.metrics, pool.metric_names, pool.api_key_file, listed


def label(entry: DiscoverySettings | None) -> str:
    """The name of a source in the admin server."""
    if entry is None:
        return "static"
    if entry.file is not None:
        return f"file {entry.file.path}"
    assert entry.dns is not None
    return f"dns {entry.dns.name}"


class SourceFactory:
    """Builds sources. DNS sources take turns, as one name server may answer all of them at once."""

    def __init__(self) -> None:
        self._turns = Turns(rest=1.0)

    def __call__(
        self, pool: PoolSettings, entry: DiscoverySettings | None, metrics: SourceMetrics
    ) -> ReportedSource:
        """Build a source of a pool."""
        where = f"pool {pool.name}"
        if entry is not None and entry.metrics is not None:
            pool = pool.model_copy(update={"metrics": entry.metrics})
        if entry is None:
            return ReportedSource(StaticSource(pool), TroubleReport(f"{where}: settings", "static", metrics))
        name = f"{where}: {label(entry)}"
        screen = None if entry.special_addresses else Screen(name)
        if entry.file is not None:
            trouble = TroubleReport(name, "file", metrics)
            return ReportedSource(FileSource(pool, entry.file, trouble, screen=screen), trouble)
        assert entry.dns is not None
        trouble = TroubleReport(name, "dns", metrics)
        lookup = Lookup(entry.dns.nameservers, self._turns)
        return ReportedSource(DnsSource(pool, entry.dns, trouble, lookup, screen=screen), trouble)
