"""The endpoints after the first one, for retries.

Fallbacks prefer other fault domains: each is the cheapest of the next `DOMAIN_DEPTH` that shares none with
those before it, if it costs at most `other_domain_seconds` more than the cheapest; otherwise the cheapest.

If there are fewer candidates than the list has places, endpoints that are left out for memory or trust follow
them: after the end of the list Envoy draws by weight, and may draw an endpoint again that has just refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.context import TickContext

DOMAIN_DEPTH: Final = 8
"""Further endpoints that are compared for fallbacks in other fault domains."""
MOST_TRIALS_IN_FLIGHT: Final = 4
"""An endpoint in doubt with this many requests of ours gets no more of them: they may hang."""


class Fallbacks:
    """Bound to the candidates of one tick."""

    def __init__(self, context: TickContext) -> None:
        self._candidates = context.candidates
        self._backlog = context.backlog
        self.count = context.settings.fallbacks * context.candidates.shape.ranks + 1
        """Columns to name, the first one included: enough for as many endpoints, whatever their ranks."""
        self._other_domain_seconds = context.settings.other_domain_seconds

    def endpoints(self, order: list[int], leading_hash: int) -> tuple[str, ...]:
        """Return addresses of positions, followed by spares if they are too few."""
        candidates = self._candidates
        endpoints = tuple(map(candidates.addresses.__getitem__, order))
        if candidates.spares and len(order) < self.count:
            endpoints += self._spares(self.count - len(order), leading_hash)
        return endpoints

    def behind(self, first: str, order: list[int], leading_hash: int) -> tuple[str, ...]:
        """Return addresses that begin with `first`, which need not be a candidate."""
        usual = [address for position in order if (address := self._candidates.addresses[position]) != first]
        endpoints = (first, *usual[: self.count - 1])
        return endpoints + self._spares(self.count - len(endpoints), leading_hash, but=first)

    def _spares(self, count: int, leading_hash: int, but: str = "") -> tuple[str, ...]:
        """Return up to `count` of the endpoints that are left out; the prompt decides between equals."""
        if count <= 0:
            return ()
        in_doubt, in_flight = dict(self._candidates.trials), self._backlog.in_flight
        free: list[str] = []
        loaded: list[str] = []
        for group in self._candidates.spares:
            first = leading_hash % len(group)
            for row, address in group[first:] + group[:first]:
                if address != but:
                    hangs = row in in_doubt and in_flight[row] >= MOST_TRIALS_IN_FLIGHT
                    (loaded if hangs else free).append(address)
            if len(free) >= count:
                break
        return tuple((free + loaded)[:count])

    def share_a_domain(self, order: list[int]) -> bool:
        """Whether two of these positions share a fault domain."""
        domains, used = self._candidates.domains, 0
        if not domains:
            return False
        for position in order:
            if domains[position] & used:
                return True
            used |= domains[position]
        return False

    def in_other_domains(
        self, order: list[int], cost: NDArray[np.float64], tiers: NDArray[np.int8] | None
    ) -> list[int]:
        """Order the fallbacks of one tier by other fault domains first, unless they cost much more."""
        domains, allowed = self._candidates.domains, self._other_domain_seconds
        taken, rest = order[:1], order[1:]
        used = domains[order[0]]
        while rest and len(taken) < self.count:
            # Tiers stand in their order.
            alike = rest if tiers is None else [place for place in rest if tiers[place] == tiers[rest[0]]]
            limit = float(cost[alike].min()) + allowed
            chosen = next(
                (
                    place
                    for place, position in enumerate(alike)
                    if not domains[position] & used and cost[position] <= limit
                ),
                0,
            )
            taken.append(rest.pop(chosen))
            used |= domains[taken[-1]]
        return taken
