"""The `cost` strategy: the lowest predicted time to first token, with cold work priced above its time.

For a prompt of `text_bytes` bytes, on an endpoint that holds `matched` leading blocks of it:

    cold    = (text_bytes - matched * block_bytes) / bytes_per_token / prefill_tokens_per_second
    queue   = max(free_at - now, queue_depth * mean_cold_seconds)
    memory  = memory_pressure_seconds * clip((used - memory_pressure_from) / (1 - memory_pressure_from), 0, 1)
    wait    = queue + in_flight * in_flight_seconds + memory      (in flight: ours and the other workers')
    cost    = wait + cold_price * cold

`free_at` is our own estimate (see `Backlog`), `queue_depth` the engine's gauge; the larger of the two holds,
because each misses what the other sees. Unknown signals count as the known peers' mean.

Among the endpoints whose cost is within a slack of the lowest, rendezvous hashing of the leading block
chooses, so that replicas agree; the others are overloaded for this prompt. The slack is `TIE_SHARE` of the
lowest cost when somebody is warm, and `COLD_SLACK` of the prompt's own cold prefill when nobody is: placing a
new prefix the same way in every replica is worth a wait that is short against computing it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.candidates import neutral
from ext_proc.pick.pick import Considered, Pick, Question, Reason
from ext_proc.pick.rendezvous import scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.backlog import Backlog
    from ext_proc.pick.candidates import Candidates
    from fleet.settings.picks import CostSettings, PickSettings

TIE_SHARE: Final = 0.01
COLD_SLACK: Final = 0.25
EXPLAINED: Final = 8
"""Endpoints that the span of a traced request tells of."""
_PARTITION_FROM: Final = 128
"""From this many candidates on, partial sorting is the faster one."""


class CostPicker:
    """`cost` over the candidates of one tick. What does not depend on the prompt is computed once."""

    def __init__(self, candidates: Candidates, backlog: Backlog, settings: PickSettings) -> None:
        cost = settings.cost
        self._candidates = candidates
        self._backlog = backlog
        self._block_bytes = settings.block_bytes
        self._wanted = settings.fallbacks + 1
        self._may_pick_blind = settings.cold_without_load == "rendezvous"
        self._cold_price = cost.cold_price
        self._in_flight_seconds = cost.in_flight_seconds
        self._depth = neutral(candidates.queue_depth, 0.0)
        rates = candidates.prefill_tokens_per_second
        rates = neutral(np.where(rates > 0, rates, np.nan), cost.prefill_tokens_per_second)
        self._seconds_per_byte = 1.0 / (rates * cost.bytes_per_token)
        self._memory_seconds = _memory_seconds(neutral(candidates.memory_used_ratio, 0.0), cost)
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
        cost = wait + self._cold_price * cold
        order = self._order(cost, cold, question.leading_hash, warm=warm)
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
            considered=self._considered(order, cost, wait, cold, matched, explain=question.explain),
        )

    def _considered(
        self,
        order: list[int],
        cost: NDArray[np.float64],
        wait: NDArray[np.float64],
        cold: NDArray[np.float64],
        matched: NDArray[np.float64],
        *,
        explain: bool,
    ) -> tuple[Considered, ...]:
        if explain and len(order) < EXPLAINED:
            next_best = _smallest(cost, EXPLAINED).tolist()
            order = order + [position for position in next_best if position not in order]
            order = order[:EXPLAINED]
        addresses, rows = self._candidates.addresses, np.array(order, np.intp)
        columns = (cost[rows].tolist(), wait[rows].tolist(), cold[rows].tolist(), matched[rows].tolist())
        return tuple(
            Considered(addresses[position], each, waits, colds, int(held))
            for position, each, waits, colds, held in zip(order, *columns, strict=True)
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
        wait: NDArray[np.float64] = (
            queue
            + (backlog.in_flight[rows] + self._elsewhere) * self._in_flight_seconds
            + self._memory_seconds
        )
        return wait

    def _order(
        self, cost: NDArray[np.float64], cold: NDArray[np.float64], leading_hash: int, *, warm: bool
    ) -> list[int]:
        """Positions, best first: those within the slack by rendezvous, the others by cost."""
        best = int(cost.argmin())
        lowest = float(cost[best])
        slack = TIE_SHARE * lowest if warm else COLD_SLACK * float(cold[best])
        near = np.flatnonzero(cost <= lowest + slack)
        order: list[int]
        if near.size > 1:
            drawn = scores(leading_hash, self._candidates.hashes[near], self._weights[near])
            order = near[_smallest(drawn, self._wanted)].tolist()
        else:
            order = [best]
        if len(order) < self._wanted:
            # Everybody near stands before the others in the order of cost.
            order += _smallest(cost, near.size + self._wanted - len(order))[near.size :].tolist()
        return order


def _smallest(column: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Positions of the `count` smallest, ascending; equal ones in the order of position."""
    if column.size <= max(_PARTITION_FROM, 2 * count):
        return column.argsort(kind="stable")[:count]
    chosen = np.sort(np.argpartition(column, count)[:count])
    return chosen[column[chosen].argsort(kind="stable")]


def _memory_seconds(used: NDArray[np.float64], cost: CostSettings) -> NDArray[np.float64]:
    start = cost.memory_pressure_from
    if start >= 1.0:
        return np.where(used >= 1.0, cost.memory_pressure_seconds, 0.0)
    result: NDArray[np.float64] = cost.memory_pressure_seconds * np.clip((used - start) / (1.0 - start), 0, 1)
    return result
