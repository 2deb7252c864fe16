"""The interface of every source of endpoints, and how a source reports its errors.

A further kind of source is one more file with a class of this shape and one line in `factory.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from fleet.settings.membership import endpoint_of
from xds_server.endpoints.gate import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.endpoint import Endpoint
    from fleet.settings import PoolSettings

    OnEndpoints = Callable[[tuple[Endpoint, ...]], None]

logger = logging.getLogger(__name__)

KINDS = ("static", "file", "dns")


class EndpointSource(Protocol):
    """Discovers endpoints of one pool."""

    @property
    def name(self) -> str:
        """The name in logs, such as `file /etc/chat.yaml`."""

    async def run(self, on_endpoints: OnEndpoints) -> None:
        """Call `on_endpoints` with the whole set after each discovery, until cancelled or the set is final.

        Unknown is not empty: an error does not call `on_endpoints`, so that the last set stays. An empty set
        is passed only if the source is certain that there are no endpoints.
        """


class StaticSource:
    """Passes the endpoints of the settings once."""

    def __init__(self, pool: PoolSettings) -> None:
        self.name = f"pool {pool.name}: settings"
        self._endpoints = tuple(endpoint_of(pool, entry) for entry in pool.endpoints)

    async def run(self, on_endpoints: OnEndpoints) -> None:
        """Pass them and end."""
        on_endpoints(self._endpoints)


class SourceMetrics:
    """Metrics of all sources together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.errors = Counter(
            "warmroute_endpoint_source_errors",
            "Errors of sources of endpoints, by kind of source; the last endpoints stay",
            ["source"],
            registry=registry,
        )
        for kind in KINDS:
            self.errors.labels(kind)
        self.failing = Gauge(
            "warmroute_endpoint_sources_failing",
            "Sources of endpoints whose newest attempt failed",
            registry=registry,
        )
        self._failing: set[int] = set()

    def set_failing(self, reporter: TroubleReport, *, failing: bool) -> None:
        """Count a reporter among the failing ones or not."""
        if failing:
            self._failing.add(id(reporter))
        else:
            self._failing.discard(id(reporter))
        self.failing.set(len(self._failing))


class TroubleReport:
    """Counts one source's errors and logs each change of its state once."""

    def __init__(self, name: str, kind: str, metrics: SourceMetrics) -> None:
        self._name = name
        self._errors = metrics.errors.labels(kind)
        self._metrics = metrics
        self._text = ""

    def failed(self, text: str) -> None:
        """Record an error; `text` stays the same as long as the state does."""
        self._errors.inc()
        if text != self._text:
            logger.warning("%s: its last endpoints stay: %s", self._name, text)
        self._text = text
        self._metrics.set_failing(self, failing=True)

    def fine(self) -> None:
        """Record that the source works."""
        if self._text:
            logger.info("%s: is read again", self._name)
        self._text = ""
        self._metrics.set_failing(self, failing=False)

    def close(self) -> None:
        """Remove the source from the count: it has ended."""
        self._metrics.set_failing(self, failing=False)


class KeeperMetrics:
    """Metrics of discovery as a whole."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sources = SourceMetrics(registry)
        self.endpoints = Gauge(
            "warmroute_endpoints", "Endpoints by state, over all pools", ["state"], registry=registry
        )
        self.duplicates = Gauge(
            "warmroute_endpoint_duplicates",
            "Entries of sources left out because an earlier one has their address",
            registry=registry,
        )
        self.over_limit = Gauge(
            "warmroute_endpoints_over_limit",
            "Discovered endpoints left out because of limits.endpoints",
            registry=registry,
        )
        for state in State:
            self.endpoints.labels(state.value)
