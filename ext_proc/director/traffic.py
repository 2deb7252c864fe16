"""In flight and end-to-end duration per endpoint, from the life of the request's own stream.

Counts belong to an address, not to a membership: requests in flight at an endpoint that leaves and returns
are still there. So a count falls only with the end of a request that raised it, and never below 0.
"""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.ranks import address_of_rank
from fleet.store import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from ext_proc.pick.first_token import SentRequest

DURATIONS_KEPT: Final = 256
"""Newest finished requests per endpoint that count for the percentile."""
_QUANTILE: Final = 0.99


class Token:
    """One request in flight, until `TrafficCounter.finished`."""

    __slots__ = ("ended", "endpoint", "sent", "started_at")

    def __init__(self, endpoint: _EndpointTraffic, started_at: float, sent: SentRequest | None) -> None:
        self.endpoint = endpoint
        self.sent = sent
        """Its prediction; None: nothing was predicted."""
        self.started_at = started_at
        self.ended = False

    @property
    def address(self) -> str:
        """The request's endpoint."""
        return self.endpoint.address


class _EndpointTraffic:
    __slots__ = (
        "_durations",
        "_ends",
        "_p99",
        "address",
        "finished_total",
        "open",
        "prefill_seconds",
        "started_total",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.open: dict[Token, None] = {}
        """Requests in flight, the oldest first."""
        self.started_total = 0
        self.finished_total = 0
        self.prefill_seconds = 0.0
        self._ends: NDArray[np.float64] | None = None
        self._durations: NDArray[np.float64] | None = None
        self._p99: tuple[int, float, float | None] | None = None
        """Finished requests at its computation, the end of the oldest one in it, and the percentile."""

    def finish(self, now: float, duration: float) -> None:
        if self._ends is None or self._durations is None:
            self._ends, self._durations = np.full(DURATIONS_KEPT, -np.inf), np.zeros(DURATIONS_KEPT)
        slot = self.finished_total % DURATIONS_KEPT
        self._ends[slot], self._durations[slot] = now, duration
        self.finished_total += 1

    def p99(self, since: float) -> float | None:
        """Nearest-rank percentile of the durations that ended at `since` or later."""
        if self._ends is None or self._durations is None:
            return None
        cached = self._p99
        # It is valid until a request ends or leaves the window.
        if cached is not None and cached[0] == self.finished_total and cached[1] >= since:
            return cached[2]
        inside = self._ends >= since
        count = int(np.count_nonzero(inside))
        p99, oldest = None, np.inf
        if count:
            rank = ceil(_QUANTILE * count) - 1
            p99 = float(np.partition(self._durations[inside], rank)[rank])
            oldest = float(self._ends[inside].min())
        self._p99 = self.finished_total, oldest, p99
        return p99


class TrafficCounter:
    """Requests of this worker's picks. Single-threaded."""

    def __init__(self, clock: Callable[[], float], window_seconds: float) -> None:
        self._clock = clock
        self.window_seconds = window_seconds
        self.booked = asyncio.Event()
        """Set at each pick; the reporter of traffic clears it."""
        self._by_address: dict[str, _EndpointTraffic] = {}

    def started(self, address: str, sent: SentRequest | None = None) -> Token:
        """Count a request towards an endpoint."""
        endpoint = self._endpoint(address)
        endpoint.started_total += 1
        token = Token(endpoint, self._clock(), sent)
        endpoint.open[token] = None
        return token

    def picked(self, address: str, prefill_seconds: float) -> None:
        """Add a pick's estimated prefill, and let it be reported."""
        self.booked.set()
        self._endpoint(address).prefill_seconds += prefill_seconds

    def finished(self, token: Token) -> None:
        """Count a request as ended; a second call for the same token changes nothing."""
        if token.ended:
            return
        token.ended = True
        del token.endpoint.open[token]
        now = self._clock()
        token.endpoint.finish(now, max(0.0, now - token.started_at))

    def in_flight(self, address: str) -> int:
        """Requests in flight to an endpoint."""
        endpoint = self._by_address.get(address)
        return 0 if endpoint is None else len(endpoint.open)

    def busy(self) -> list[str]:
        """Return the endpoints with requests in flight."""
        return [address for address, endpoint in self._by_address.items() if endpoint.open]

    def keep(self, members: Collection[str]) -> None:
        """Drop endpoints that have left and have no request in flight."""
        gone = [
            address
            for address, endpoint in self._by_address.items()
            if not endpoint.open and address not in members
        ]
        for address in gone:
            del self._by_address[address]

    def snapshot(self) -> list[Traffic]:
        """Return the traffic of every endpoint with a request so far that has not left, ranks together."""
        by_address: dict[str, Traffic] = {}
        for name, entry in self.by_name().items():
            other = by_address.get(address := address_of_rank(name))
            by_address[address] = entry if other is None else _joined(other, entry)
        return list(by_address.values())

    def by_name(self) -> dict[str, Traffic]:
        """Return the same for each endpoint or rank, by its name."""
        now = self._clock()
        since = now - self.window_seconds
        return {
            name: Traffic(
                address=address_of_rank(name),
                in_flight=len(endpoint.open),
                started_total=endpoint.started_total,
                finished_total=endpoint.finished_total,
                duration_p99_seconds=endpoint.p99(since),
                oldest_in_flight_seconds=(
                    max(0.0, now - next(iter(endpoint.open)).started_at) if endpoint.open else None
                ),
                prefill_seconds_total=endpoint.prefill_seconds,
            )
            for name, endpoint in self._by_address.items()
        }

    def _endpoint(self, address: str) -> _EndpointTraffic:
        endpoint = self._by_address.get(address)
        if endpoint is None:
            endpoint = self._by_address[address] = _EndpointTraffic(address)
        return endpoint


def _joined(one: Traffic, other: Traffic) -> Traffic:
    """Return the traffic of two ranks of an endpoint."""
    return Traffic(
        one.address,
        one.in_flight + other.in_flight,
        one.started_total + other.started_total,
        one.finished_total + other.finished_total,
        _longest(one.duration_p99_seconds, other.duration_p99_seconds),
        _longest(one.oldest_in_flight_seconds, other.oldest_in_flight_seconds),
        (one.prefill_seconds_total or 0.0) + (other.prefill_seconds_total or 0.0),
    )


def _longest(*seconds: float | None) -> float | None:
    return max((each for each in seconds if each is not None), default=None)
