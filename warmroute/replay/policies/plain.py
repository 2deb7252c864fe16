"""Policies of a proxy that knows nothing of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from warmroute.replay.trace import TraceRequest


class RoundRobin(Observer):
    """One after the other."""

    name = "round_robin"
    _last = -1

    def pick(self, _request: TraceRequest) -> int:
        """Return the next."""
        self._last = (self._last + 1) % self.size
        return self._last


class RandomChoice(Observer):
    """Uniformly at random."""

    name = "random"

    def pick(self, _request: TraceRequest) -> int:
        """Return any."""
        return self.draw.randrange(self.size)


class LeastRequest(Observer):
    """Fewest requests in flight of all: Envoy's LEAST_REQUEST with a full scan."""

    name = "least_request"

    def pick(self, _request: TraceRequest) -> int:
        """Return one with the fewest."""
        return self.least(self.in_flight)


class PowerOfTwo(Observer):
    """The one of two drawn at random with fewer requests in flight: Envoy's LEAST_REQUEST by default."""

    name = "power_of_two"

    def pick(self, _request: TraceRequest) -> int:
        """Return the better of two."""
        one, other = self.draw.randrange(self.size), self.draw.randrange(self.size)
        return one if self.in_flight[one] <= self.in_flight[other] else other
