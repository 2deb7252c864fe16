"""The one interface of every source of endpoints, and how a source tells of its troubles.

A further kind of source is one more file with a class of this shape and one line in `factory.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from xds_server.endpoints.gate import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.endpoint import Endpoint

    Found = Callable[[tuple[Endpoint, ...]], None]

logger = logging.getLogger(__name__)

KINDS = ("static", "file", "dns")


class EndpointSource(Protocol):
    """Finds endpoints of one pool."""

    @property
    def name(self) -> str:
        """What logs call it, such as `file /etc/chat.yaml`."""

    async def run(self, found: Found) -> None:
        """Call `found` with the whole set each time it is known anew, until cancelled or nothing more comes.

        Unknown is not empty: after an error `found` is not called, so that what was found last stays. An
        empty set is told only if the source is certain that nobody is there.
        """


class SourceMetrics:
    """What sources count. One for all sources."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.errors = Counter(
            "warmroute_endpoint_source_errors",
            "Errors of sources of endpoints, by kind of source; what was found last stays",
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
        """Note an error; `text` says what it is, in equal words as long as the state is the same."""
        self._errors.inc()
        if text != self._text:
            logger.warning("%s: what was found last stays: %s", self._name, text)
        self._text = text
        self._metrics.set_failing(self, failing=True)

    def fine(self) -> None:
        """Note that the source works."""
        if self._text:
            logger.info("%s: is read again", self._name)
        self._text = ""
        self._metrics.set_failing(self, failing=False)

    def close(self) -> None:
        """Take the source out of the count: it is not asked any more."""
        self._metrics.set_failing(self, failing=False)


class KeeperMetrics:
    """What discovery of endpoints counts as a whole."""

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
            "Endpoints found and left out because of limits.endpoints",
            registry=registry,
        )
        for state in State:
            self.endpoints.labels(state.value)
