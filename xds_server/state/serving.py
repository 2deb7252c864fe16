"""What xds_server serves: live data, the last good state, or nothing yet. Each change is logged once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from prometheus_client import Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

    from xds_server.state.last_good import LastGood

logger = logging.getLogger(__name__)


class ServingStatus:
    """Metrics, log and status of the pools without live data."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._last_good: frozenset[str] = frozenset()
        self._unknown: frozenset[str] = frozenset()
        self._saved_at = ""
        self._serving = Gauge(
            "warmroute_serving_last_good",
            "Pools served from the last good state: no source has answered since the start",
            registry=registry,
        )
        self._unknown_gauge = Gauge(
            "warmroute_unknown_pools",
            "Pools without an answer from any source; Envoys keep their endpoints",
            registry=registry,
        )

    def loaded(self, state: LastGood) -> None:
        """Record the state that was read at start."""
        self._saved_at = state.saved_at_text

    def on_last_good(self, pools: frozenset[str]) -> None:
        """Record which pools are served from the last good state."""
        if pools - self._last_good:
            logger.warning(
                "served from the last good state of %s until live data comes: %s",
                self._saved_at,
                _named(pools),
            )
        if self._last_good - pools:
            logger.info(
                "live data has taken over from the last good state: %s", _named(self._last_good - pools)
            )
        self._last_good = pools
        self._serving.set(len(pools))

    def unknown(self, pools: frozenset[str]) -> None:
        """Record which pools have unknown endpoints."""
        if pools - self._unknown:
            logger.warning(
                "no source of these pools has answered yet, Envoys keep their endpoints: %s", _named(pools)
            )
        self._unknown = pools
        self._unknown_gauge.set(len(pools))

    def status(self) -> Mapping[str, Any]:
        """For the admin server."""
        return {
            "serving_last_good": sorted(self._last_good),
            "last_good_saved_at": self._saved_at if self._last_good else None,
            "unknown_pools": sorted(self._unknown),
        }


def _named(pools: frozenset[str]) -> str:
    return ", ".join(sorted(pools))
