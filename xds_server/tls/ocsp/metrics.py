"""Metrics of staples."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Callable

    from xds_server.tls.ocsp.response import Staple

OUTCOMES: Final = ("fetched", "impossible", "unreachable", "refused", "revoked", "failed")


@dataclass(frozen=True, slots=True)
class StapleMetrics:
    """By use: whether there is a staple, its begin and end, and the outcomes of fetches."""

    stapled: Gauge
    begins: Gauge
    ends: Gauge
    fetches: Counter

    @classmethod
    def of(cls, registry: CollectorRegistry) -> StapleMetrics:
        """Create them in a registry."""
        name = "warmroute_ocsp"
        return cls(
            Gauge(f"{name}_stapled", "1 while there is a staple that holds", ["use"], registry=registry),
            Gauge(
                f"{name}_staple_this_update_seconds",
                "Unix time at which the newest staple was told to be true",
                ["use"],
                registry=registry,
            ),
            Gauge(
                f"{name}_staple_next_update_seconds",
                "Unix time at which the newest staple ends",
                ["use"],
                registry=registry,
            ),
            Counter(
                f"{name}_fetches", "Staples asked for, by outcome", ["use", "outcome"], registry=registry
            ),
        )

    def begin(self, use: str, stapled: Callable[[], bool]) -> None:
        """Add a use, with every outcome at 0."""
        self.stapled.labels(use).set_function(stapled)
        for outcome in OUTCOMES:
            self.fetches.labels(use, outcome)

    def show(self, use: str, staple: Staple | None) -> None:
        """Show the newest staple; without one there are no times."""
        if staple is not None:
            self.begins.labels(use).set(staple.this_update)
            self.ends.labels(use).set(staple.next_update)
            return
        for gauge in (self.begins, self.ends):
            with contextlib.suppress(KeyError):
                gauge.remove(use)

    def end(self, use: str) -> None:
        """Show a use no more."""
        self.show(use, None)
        self.stapled.remove(use)
        for outcome in OUTCOMES:
            self.fetches.remove(use, outcome)
