"""Among endpoints of almost equal cost, rendezvous hashing chooses; the others follow by cost.

Almost equal is what holds as much of the prompt as the cheapest, and costs no more than a slack above it:

    max(TIE_SHARE * cost, (COLD_SLACK + APART_SLACK * apart_share) * priced cold prefill,
        NOISE_REQUESTS * request_seconds)

of the cheapest. The last is what no estimate can tell apart: a part of one step of an engine.

Placing what is new the same way in every worker is worth a wait that is short against computing it twice. It
is worth more the more of the pool's requests go through workers that do not tell what they send where
(`apart_share`): where rendezvous hashing leads to, they have probably sent the same prefix before.

What is hashed is the first block that the cheapest one does not hold. So a prompt that nobody holds goes by
its leading block, and prompts that share a system prompt, which many hold, are spread by what follows it.

A hash spreads many prefixes evenly, and few of them by luck: of six over three endpoints, one gets four or
more in three cases of ten, and keeps them for as long as they are asked for. So where nobody holds any of a
prompt, a worker that places alone passes over those that got more than their share of what was new lately, as
long as others are as good. And two more requests in flight make nobody worse then: they end soon, and a
prefix stays. Source: Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads" (2018), with
the bound at the mean.

Where nothing is left to compute that could be kept, there is nothing to agree on: of a prompt that all of
them hold, or one shorter than a block. Such requests go in turn, in proportion to weights: to whom got the
fewest lately, so that one prompt sent over and over loads all who hold it alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ext_proc.pick.pickers.scored import ScoredCandidates, smallest
from ext_proc.pick.rendezvous import scores

if TYPE_CHECKING:
    from ext_proc.pick.context import TickContext

TIE_SHARE: Final = 0.01
COLD_SLACK: Final = 1 / 12
CHANCE: Final = 1 / 16
"""Of a request: the part of chance in the order of endpoints that got equally many."""
APART_SLACK: Final = 1.5
"""Above 1, because a worker that knows little takes its own queues for longer than they are."""
NOISE_REQUESTS: Final = 0.1
"""Requests in flight: a difference of cost below what so many add is no reason to prefer an endpoint."""
PLACING_REQUESTS: Final = 2.5
"""The same where a new prefix is placed by a worker that places alone."""


def first(scored: ScoredCandidates, context: TickContext, count: int) -> list[int]:
    """Return up to `count` positions, best first."""
    request, forecast, cost = scored
    blocks, candidates, backlog = request.blocks, context.candidates, context.backlog
    best = int(cost.argmin())
    lowest, matched = cost.item(best), forecast.matched.item(best)
    places_alone = bool(blocks) and not matched and not backlog.elsewhere_share
    cold_slack = (COLD_SLACK + APART_SLACK * context.apart_share) * forecast.priced.item(best)
    noise = (PLACING_REQUESTS if places_alone else NOISE_REQUESTS) * context.request_seconds
    near = (cost <= lowest + max(TIE_SHARE * abs(lowest), cold_slack, noise)).nonzero()[0]
    if near.size > 1:
        near = near[forecast.matched[near] >= matched]
    order: list[int]
    if near.size > 1:
        weights = candidates.weights[near]
        drawn = scores(request.next_hash(matched), candidates.hashes[near], weights)
        if matched >= len(blocks):
            drawn = backlog.recent_requests[candidates.rows][near] / weights + CHANCE * drawn
        elif places_alone:
            new = backlog.new_prefixes[candidates.rows][near]
            # Behind all the others, and among themselves as they were drawn.
            drawn[new > new.sum() / weights.sum() * weights] += drawn.max()
        order = near[smallest(drawn, count)].tolist()
    else:
        order = [best]
    if len(order) < count:
        others = [position for position in smallest(cost, count).tolist() if position not in order]
        order += others[: count - len(order)]
    return order
