"""The `cost` strategy: the lowest predicted time to first token, with cold work priced above its time.

For a prompt of `text_bytes` bytes, on an endpoint that holds `matched` leading blocks of it:

    cold    = (text_bytes - matched * block_bytes) / bytes_per_token / prefill_tokens_per_second
    queue   = max(free_at - now, queue_depth * mean_cold_seconds)
    wait    = queue + in_flight * in_flight_seconds               (in flight: ours and the other workers')
                      (ours: at least what `Pace` takes an endpoint for that answers implausibly fast)
    cost    = wait + cold_price * cold + penalty
    penalty = memory_pressure_seconds * clip((used - from) / (full - from), 0, 1)
            + distrust_seconds * max(1 - trust, error_ratio)
            + what a request takes longer there than usual (see `Pace`)

`free_at` is our own estimate (see `Backlog`), `queue_depth` the engine's gauge; the larger of the two holds,
because each misses what the other sees. The prefill rate is what an engine has lately been capable of (see
`Backlog.learn_rates`). Unknown signals count as the known peers' mean; unknown trust and
errors are no evidence and cost nothing. The penalty is the same for all prompts of a tick: computed once.

Among the endpoints whose cost is within a slack of the lowest, rendezvous hashing of the leading block
chooses, so that replicas agree; the others are overloaded for this prompt. The slack is `TIE_SHARE` of the
lowest cost when somebody is warm, and `COLD_SLACK` of the prompt's own cold prefill when nobody is: placing a
new prefix the same way in every replica is worth a wait that is short against computing it.

Fallbacks prefer other fault domains: each is the cheapest of the next `DOMAIN_DEPTH` that shares none with
those before it, if it costs at most `other_domain_seconds` more than the cheapest; else that one.

An endpoint that is left out because it is not trusted is tried with one request in a while, with the usual
order as its fallbacks, so that its recovery is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.candidates import neutral
from ext_proc.pick.considered import CostParts, considered
from ext_proc.pick.pick import Pick, Question, Reason
from ext_proc.pick.rendezvous import scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.backlog import Backlog
    from ext_proc.pick.candidates import Candidates
    from ext_proc.pick.pick import Considered
    from fleet.settings.picks import CostSettings, PickSettings

TIE_SHARE: Final = 0.01
COLD_SLACK: Final = 0.25
DOMAIN_DEPTH: Final = 8
"""So many more than wanted are looked at for fallbacks in other fault domains."""
MOST_TRIALS_IN_FLIGHT: Final = 4
"""An endpoint that holds so many requests of ours gets no more to try it with: they may hang."""
_PARTITION_FROM: Final = 128
"""From this many candidates on, partial sorting is the faster one."""


class CostPicker:
    """`cost` over the candidates of one tick. What does not depend on the prompt is computed once."""

    def __init__(
        self, candidates: Candidates, backlog: Backlog, settings: PickSettings, refreshed_at: float
    ) -> None:
        cost = settings.cost
        self._candidates = candidates
        self._backlog = backlog
        self._settings = settings
        self._block_bytes = settings.block_bytes
        self._wanted = settings.fallbacks + 1
        self._may_pick_blind = settings.cold_without_load == "rendezvous"
        self._cold_price = cost.cold_price
        self._in_flight_seconds = cost.in_flight_seconds
        self._depth = neutral(candidates.signal("queue_depth"), 0.0)
        rates = neutral(backlog.rates[candidates.rows], cost.prefill_tokens_per_second)
        self._seconds_per_byte = 1.0 / (rates * cost.bytes_per_token)
        self.penalty = _penalty(candidates, cost)
        """What speaks against each candidate whatever the prompt, in seconds."""
        self._least_in_flight: NDArray[np.float64] | None = None
        paces = backlog.pace.judge(
            backlog.in_flight, refreshed_at, cost.slow_from_ratio, cost.slow_most_seconds
        )
        if paces is not None:
            self.penalty = self.penalty + paces.slow_seconds[candidates.rows]
            held = paces.held[candidates.rows]
            self._least_in_flight = held if held.any() else None
        self._elsewhere = candidates.in_flight_elsewhere
        weights = candidates.weights
        self._weights = neutral(np.where(weights > 0, weights, np.nan), 1.0)

    def pick(self, question: Question) -> Pick:
        """Choose; no endpoints when nothing is warm and no load is known."""
        candidates = self._candidates
        matched, warm = self._matched(question)
        if not warm and not candidates.load_known and not self._may_pick_blind:
            return Pick.none(Reason.NO_SIGNAL, question.prefix)
        cold = (question.text_bytes - matched * self._block_bytes) * self._seconds_per_byte
        wait = self._wait(question.now, cold)
        cost = wait + self._cold_price * cold + self.penalty
        order = self._order(cost, cold, question.leading_hash, warm=warm)
        parts = CostParts(cost, wait, cold, self.penalty, matched)
        looked = considered(candidates.addresses, order, parts, explain=question.explain)
        if candidates.trials and (tried := self._due_trial(question.now)) is not None:
            return self._trial(tried, order, question, looked)
        first = order[0]
        held = int(matched[first])
        cold_seconds = float(cold[first])
        return Pick(
            endpoints=tuple(candidates.addresses[position] for position in order),
            reason=Reason.WARM if held else Reason.COLD,
            matched_share=min(held / question.blocks, 1.0) if question.blocks else 0.0,
            prefix=question.prefix,
            expected_seconds=float(wait[first]) + cold_seconds,
            cold_seconds=cold_seconds,
            candidates=len(candidates.addresses),
            considered=looked,
        )

    def _due_trial(self, now: float) -> str | None:
        """Return an endpoint that may be tried now, if there is one, and note that it is."""
        tried_at, interval = self._backlog.tried_at, self._settings.trial_interval_seconds
        for row, address in self._candidates.trials:
            if now - tried_at[row] >= interval and self._backlog.in_flight[row] < MOST_TRIALS_IN_FLIGHT:
                tried_at[row] = now
                return address
        return None

    def _trial(
        self, address: str, order: list[int], question: Question, looked: tuple[Considered, ...]
    ) -> Pick:
        """Return a pick of an endpoint that is no candidate; how long it will take is unknown."""
        candidates = self._candidates
        held = min(question.matched.get(address, 0), question.text_bytes // self._block_bytes)
        behind = (candidates.addresses[position] for position in order[: self._wanted - 1])
        # Its own rate is as little to be relied on as its answers.
        cold_bytes = question.text_bytes - held * self._block_bytes
        return Pick(
            endpoints=(address, *behind),
            reason=Reason.WARM if held else Reason.COLD,
            matched_share=min(held / question.blocks, 1.0) if question.blocks else 0.0,
            prefix=question.prefix,
            cold_seconds=cold_bytes * float(self._seconds_per_byte.mean()),
            candidates=len(candidates.addresses),
            trial=True,
            considered=looked,
        )

    def _matched(self, question: Question) -> tuple[NDArray[np.float64], bool]:
        matched = np.zeros(len(self._candidates.addresses))
        position, warm = self._candidates.position, False
        # Never more than the text holds, so that cold work is not below 0.
        most = question.text_bytes // self._block_bytes
        for address, blocks in question.matched.items():
            if blocks > 0 and (found := position.get(address)) is not None:
                matched[found] = min(blocks, most)
                warm = True
        return matched, warm

    def _wait(self, now: float, cold: NDArray[np.float64]) -> NDArray[np.float64]:
        backlog, rows = self._backlog, self._candidates.rows
        # Before the first pick, those who wait are taken to be like this prompt.
        each = cold if backlog.mean_cold_seconds is None else backlog.mean_cold_seconds
        queue = np.maximum(backlog.free_at[rows] - now, self._depth * each)
        ours = backlog.in_flight[rows]
        if self._least_in_flight is not None:
            ours = np.maximum(ours, self._least_in_flight)
        wait: NDArray[np.float64] = queue + (ours + self._elsewhere) * self._in_flight_seconds
        return wait

    def _order(
        self, cost: NDArray[np.float64], cold: NDArray[np.float64], leading_hash: int, *, warm: bool
    ) -> list[int]:
        """Positions, best first: those within the slack by rendezvous, the others by cost."""
        best = int(cost.argmin())
        lowest = float(cost[best])
        slack = TIE_SHARE * lowest if warm else COLD_SLACK * float(cold[best])
        near = np.flatnonzero(cost <= lowest + slack)
        order = self._first(self._wanted, best, near, cost, leading_hash)
        if not self._candidates.domains or self._apart(order):
            return order
        deeper = self._first(self._wanted + DOMAIN_DEPTH, best, near, cost, leading_hash)
        return self._spread(deeper, cost)

    def _first(
        self,
        count: int,
        best: int,
        near: NDArray[np.intp],
        cost: NDArray[np.float64],
        leading_hash: int,
    ) -> list[int]:
        """Return the first `count` positions, fewer where there are no more."""
        order: list[int]
        if near.size > 1:
            drawn = scores(leading_hash, self._candidates.hashes[near], self._weights[near])
            order = near[_smallest(drawn, count)].tolist()
        else:
            order = [best]
        if len(order) < count:
            # Everybody near stands before the others in the order of cost.
            order += _smallest(cost, near.size + count - len(order))[near.size :].tolist()
        return order

    def _apart(self, order: list[int]) -> bool:
        """Whether no two of them share a fault domain."""
        domains, used = self._candidates.domains, 0
        for position in order:
            if domains[position] & used:
                return False
            used |= domains[position]
        return True

    def _spread(self, order: list[int], cost: NDArray[np.float64]) -> list[int]:
        """Take fallbacks from other fault domains first, as far as they are not much dearer."""
        domains, allowed = self._candidates.domains, self._settings.other_domain_seconds
        taken, rest = order[:1], order[1:]
        used = domains[order[0]]
        while rest and len(taken) < self._wanted:
            limit = float(cost[rest].min()) + allowed
            chosen = next(
                (
                    place
                    for place, position in enumerate(rest)
                    if not domains[position] & used and cost[position] <= limit
                ),
                0,
            )
            taken.append(rest.pop(chosen))
            used |= domains[taken[-1]]
        return taken


def _smallest(column: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Positions of the `count` smallest, ascending; equal ones in the order of position."""
    if column.size <= max(_PARTITION_FROM, 2 * count):
        return column.argsort(kind="stable")[:count]
    chosen = np.sort(np.argpartition(column, count)[:count])
    return chosen[column[chosen].argsort(kind="stable")]


def _penalty(candidates: Candidates, cost: CostSettings) -> NDArray[np.float64]:
    """What an endpoint's signals say against it, in seconds."""
    kv, gpu = candidates.signal("memory_used_ratio"), candidates.signal("gpu_memory_used_ratio")
    memory = _memory_seconds(neutral(np.where(np.isnan(kv), gpu, kv), 0.0), cost)
    doubt = np.fmax(1.0 - candidates.signal("trust_ratio"), candidates.signal("error_ratio"))
    result: NDArray[np.float64] = memory + cost.distrust_seconds * np.clip(np.nan_to_num(doubt), 0.0, 1.0)
    return result


def _memory_seconds(used: NDArray[np.float64], cost: CostSettings) -> NDArray[np.float64]:
    start, full = cost.memory_pressure_from, cost.memory_pressure_full
    if full <= start:
        return np.where(used >= full, cost.memory_pressure_seconds, 0.0)
    result: NDArray[np.float64] = cost.memory_pressure_seconds * np.clip(
        (used - start) / (full - start), 0, 1
    )
    return result
