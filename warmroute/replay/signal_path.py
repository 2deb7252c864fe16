"""The signal path of one fleet without I/O, for replays, benches and tests: pages and access logs to weights.

The membership stays, and there are no overrides; `app.py` runs the same stages with both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.signals import Source
from fleet.store import FleetStore, FleetView
from xds_server.signals.board import SignalBoard
from xds_server.signals.forecast.forecaster import forecast_horizon
from xds_server.signals.join import SignalJoiner, Sources
from xds_server.signals.passive.retry_blame import retry_blame_of
from xds_server.signals.scrape.engines import reader_of
from xds_server.weights.weigh import Weigher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.settings import Settings
    from fleet.signals import SignalTable
    from xds_server.access_log.finished import Finished
    from xds_server.weights.weigh import WeightUpdate


class SignalPath:
    """Readers, board, joiner, weigher and store. `now` is in seconds and never goes back."""

    def __init__(
        self,
        settings: Settings,
        membership: Membership,
        registry: CollectorRegistry,
        gpus: Callable[[Membership, float], SignalTable] | None = None,
    ) -> None:
        signals = settings.signals
        self.membership = membership
        self.store = FleetStore()
        self.board = SignalBoard()
        """The newest signals of pages."""
        self.board.follow(membership.addresses)
        self._readers = {
            each.address: reader_of(each.engine, each.address, signals) for each in membership.endpoints
        }
        sources = Sources(self.board.table, self.store.traffic, lambda: True, gpus)
        horizon = forecast_horizon(settings)
        self._joiner = SignalJoiner(signals, retry_blame_of(settings), sources, registry, horizon)
        self._weigher = Weigher(settings.weights, signals)

    @property
    def weights(self) -> Mapping[str, int]:
        """The weights in force, by address; an endpoint marked unhealthy has none."""
        return self._weigher.in_use

    def read(self, address: str, page: bytes, now: float) -> Mapping[str, float]:
        """Return the signals of an endpoint's metrics page.

        Raises:
            PageError: too many lines of it would be read.
        """
        return self._readers[address].read(page, now)

    def put(self, address: str, signals: Mapping[str, float], read_at: float) -> None:
        """Take an endpoint's signals, without unknown ones."""
        self.board.put(address, signals, read_at, Source.SCRAPE)

    def take(self, finished: Finished, now: float) -> None:
        """Take a request of Envoy's access log."""
        self._joiner.take(finished, now)

    def tick(self, now: float) -> FleetView:
        """Join, weigh and publish; return what is published."""
        signals = self.join(now)
        return self.publish(self.weigh(signals, now), signals)

    def join(self, now: float) -> SignalTable:
        """Return the signals of all sources."""
        return self._joiner.join(self.membership, now, self.weights)

    def weigh(self, signals: SignalTable, now: float) -> WeightUpdate:
        """Compute all weights."""
        return self._weigher.weigh(self.membership, signals, now)

    def publish(self, update: WeightUpdate, signals: SignalTable) -> FleetView:
        """Publish to the store."""
        view = FleetView(self.membership, update.weights, signals)
        self.store.publish(view)
        return view
