"""Every picker by its name in the settings. CONTRIBUTING.md lists the steps to a new one.

A picker returns up to `count` positions of candidates, best first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ext_proc.pick.context import TickContext
    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.request import PickRequest

TIE_SHARE: Final = 0.01
COLD_SLACK: Final = 1 / 12
CHANCE: Final = 1 / 16
"""In requests: the part of chance in the order of endpoints with equally many."""
APART_SLACK: Final = 4.5
"""Far above 1, because a worker that knows little overestimates its own queues."""
NOISE_REQUESTS: Final = 0.1
"""Requests in flight: a difference below the cost of this many is no reason to prefer an endpoint."""
PLACING_REQUESTS: Final = 2.5
"""The same for a new prefix, in a worker that places alone."""
# As arrays without an axis, numbers take half the time in operations over columns.
_FIRST: Final = np.array(0xBF58476D1CE4E5B9, np.uint64)
_SECOND: Final = np.array(0x94D049BB133111EB, np.uint64)
_11, _27, _30, _31 = (np.array(bits, np.uint64) for bits in (11, 27, 30, 31))
_HALF: Final = np.array(0.5)
_DRAW: Final = np.array(2.0**-53)
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_PARTITION_FROM: Final = 128
"""From this many candidates on, it is faster not to sort all."""
_FEW: Final = 4
"""Up to this many, to search them one after the other is fastest."""


class ScoredCandidates(msgspec.Struct, frozen=True, gc=False):
    """One prompt, with its forecast and its cost on each candidate."""

    request: PickRequest
    forecast: Forecast
    cost: NDArray[np.float64]
    """In seconds."""


def cheapest(scored: ScoredCandidates, _context: TickContext, count: int) -> list[int]:
    """Order by cost, equal endpoints in the order of the pool."""
    order: list[int] = smallest(scored.cost, count).tolist()
    return order


def rendezvous(scored: ScoredCandidates, context: TickContext, count: int) -> list[int]:
    """Among endpoints of almost equal cost, rendezvous hashing chooses; the others follow by cost.

    An endpoint of almost equal cost holds as much of the prompt as the cheapest, and costs at most this more:

        max(TIE_SHARE * cost, (COLD_SLACK + APART_SLACK * apart_share) * priced cold prefill / price,
            NOISE_REQUESTS * request_seconds)

    of the cheapest. The last is below the accuracy of any estimate: a part of one step of an engine.

    Equal placement of new prefixes in every worker is worth a wait that is short compared with computing them
    twice. It is worth more, the more of the pool's requests go through workers that do not publish their
    picks (`apart_share`): they have probably sent the same prefix to the endpoint that rendezvous hashing
    selects.

    The hash is that of the first block that the cheapest endpoint does not hold. So a prompt that no endpoint
    holds goes by its leading block, and prompts with a common system prompt, which many hold, are spread by
    the rest.

    A hash spreads many prefixes evenly, and few of them by luck: of six over three endpoints, one gets four
    or more in three cases of ten, and keeps them while they are in demand. So if no endpoint holds any of a
    prompt, a worker that places alone passes over the endpoints with more than their share of recent new
    prefixes, as long as others are as good. And two more requests in flight make no endpoint worse then: they
    end soon, and a prefix stays. Source: Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded
    loads" (2018), with the bound at the mean.

    If nothing is left to compute that could be kept, workers need not agree: every endpoint holds the whole
    prompt, or it is shorter than a block. Such requests go to the endpoint with the fewest recent requests,
    in proportion to weights, so that one prompt sent repeatedly loads all of its holders equally.
    """
    request, forecast, cost = scored.request, scored.forecast, scored.cost
    blocks, candidates, backlog = request.blocks, context.candidates, context.backlog
    order: list[int] = smallest(cost, max(count, 2)).tolist()
    best = order[0]
    lowest, matched = cost.item(best), forecast.matched.item(best)
    places_alone = bool(blocks) and not matched and not backlog.elsewhere_share
    cold_slack = (
        (COLD_SLACK + APART_SLACK * context.apart_share) * forecast.priced.item(best) / forecast.price
    )
    noise = (PLACING_REQUESTS if places_alone else NOISE_REQUESTS) * context.request_seconds
    highest = lowest + max(TIE_SHARE * abs(lowest), cold_slack, noise)
    if len(order) < 2 or cost.item(order[1]) > highest:
        return order[:count]
    near = (cost <= highest).nonzero()[0]
    near = near[forecast.matched[near] >= matched]
    if near.size < 2:
        return order[:count]
    weights = candidates.weights[near]
    drawn = scores(request.next_hash(matched), candidates.hashes[near], weights)
    if matched >= len(blocks):
        drawn = backlog.recent_requests[candidates.rows][near] / weights + CHANCE * drawn
    elif places_alone:
        new = backlog.new_prefixes[candidates.rows][near]
        # After all the others, in their own order.
        drawn[new > np.add.reduce(new) / np.add.reduce(weights) * weights] += drawn.item(drawn.argmax())
    chosen: list[int] = near[smallest(drawn, count)].tolist()
    return (chosen + [position for position in order if position not in chosen])[:count]


def scores(
    leading_hash: int, hashes: NDArray[np.uint64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Score endpoints for a prefix by weighted rendezvous hashing; the lowest wins. All weights are above 0.

    For a prefix each endpoint draws `u = (mix(xxh3_64(address) XOR leading_hash) // 2**11 + 0.5) / 2**53`
    and scores `-ln(u) / weight`. So replicas with the same endpoints agree without communication. An endpoint
    wins in proportion to its weight, and a changed weight or membership moves only the prefixes that this
    endpoint wins or loses. `mix` is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), which makes the
    draws of one address independent between prefixes. Source of the score: Schindelhauer and Schomaker,
    "Weighted distributed hash tables" (2005).
    """
    mixed = hashes ^ np.array(leading_hash & _MASK, np.uint64)
    mixed ^= mixed >> _30
    mixed *= _FIRST
    mixed ^= mixed >> _27
    mixed *= _SECOND
    mixed ^= mixed >> _31
    mixed >>= _11
    draws = mixed.astype(np.float64)
    draws += _HALF
    draws *= _DRAW
    result: NDArray[np.float64] = np.log(draws, out=draws)
    result /= -weights
    return result


def smallest(column: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Positions of the `count` smallest, ascending; equal ones in the order of position."""
    if column.size <= max(_PARTITION_FROM, 2 * count):
        return column.argsort(kind="stable")[:count]
    if count <= _FEW:
        left, lowest = column.copy(), np.empty(count, np.intp)
        for place in range(count):
            lowest[place] = position = left.argmin()
            left[position] = np.inf
        return lowest
    # These and the next one, with all of its equals: positions decide between equals.
    chosen = np.flatnonzero(column <= np.partition(column, count)[count])
    return chosen[column[chosen].argsort(kind="stable")[:count]]


PICKERS: Final[dict[str, Callable[[ScoredCandidates, TickContext, int], list[int]]]] = {
    "rendezvous": rendezvous,
    "cheapest": cheapest,
}
