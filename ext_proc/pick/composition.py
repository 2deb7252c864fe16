"""Filter, score, choose: a pick as the settings compose it, bound to a pool's candidates of one tick.

Filters and whatever holds for every prompt are computed once a tick; a pick is a few operations over columns,
so its cost grows slowly with the number of endpoints.

Fallbacks prefer other fault domains: each is the cheapest of the next `DOMAIN_DEPTH` that shares none with
those before it, if it costs at most `other_domain_seconds` more than the cheapest; else that one.

An endpoint that is left out because it is not trusted is tried with one request in a while, with the usual
order as its fallbacks, so that its recovery is seen. It is tried on until its trust is whole: the last tenth
of distrust may cost more than all load does, and of what gets nothing, nothing is heard.

Trials are bounded by time, which counts at high load, and by their share of the picks, which counts at low
load: half the fair share of each endpoint in doubt, and all of them together a quarter. Requests that nobody
holds go first; of those that are warm somewhere, half as many are tried. Where an operator has set a weight,
it bounds trials too.

Where candidates are fewer than are to be named, those that are left out for memory or trust stand behind
them: past the end of the list Envoy draws by weight, and whoever has refused a request may be drawn again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.backlog import MOST_TRIALS_LEFT
from ext_proc.pick.considered import comparison
from ext_proc.pick.forecast import Forecaster
from ext_proc.pick.pick import Pick, Reason
from ext_proc.pick.pickers import PICKERS
from ext_proc.pick.pickers.offer import Offer
from ext_proc.pick.scorers import Scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.candidates import Candidates
    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.pick import Considered, Question
    from ext_proc.pick.scene import Scene
    from fleet.settings.picks import PickSettings

DOMAIN_DEPTH: Final = 8
"""So many more than wanted are looked at for fallbacks in other fault domains."""
MOST_TRIALS_SHARE: Final = 0.25
"""Of the picks, over all endpoints in doubt; one of two may get half its fair share."""
MOST_TRIALS_IN_FLIGHT: Final = 4
"""An endpoint that holds so many requests of ours gets no more to try it with: they may hang."""


class Composition:
    """One pool, model and subset at one tick."""

    def __init__(self, scene: Scene) -> None:
        settings = scene.settings
        self.candidates = scene.candidates
        self.scores = Scores(scene, settings.scorers)
        self.forecaster = Forecaster(scene)
        self._backlog = scene.backlog
        self._apart_share = scene.apart_share
        self._quota = scene.quota
        self._request_seconds = _load_weight(settings) * settings.cost.in_flight_seconds
        self._first = PICKERS[settings.picker]
        self._wanted = settings.fallbacks + 1
        self._block_bytes = settings.block_bytes
        self._trial_interval_seconds = settings.trial_interval_seconds
        self._trials_share = _trials_share(scene.candidates)
        self._other_domain_seconds = settings.other_domain_seconds

    def pick(self, question: Question) -> Pick:
        """Choose. Where no load is known all are alike, and new prefixes go by weights."""
        candidates = self.candidates
        forecast = self.forecaster.of(question)
        cost = self.scores.cost(question, forecast)
        if self._quota is not None:
            cost = cost + self._quota.seconds(candidates.rows)
        order = self.choose(self.offer(question, forecast, cost), self._tiers(question))
        considered = comparison(
            candidates.addresses, order, cost, forecast, self.scores.fixed, explain=question.explain
        )
        if candidates.trials and (tried := self._due_trial(question)) is not None:
            return self._trial(*tried, order, question, considered)
        first = order[0]
        self._note_chosen(first, question.now)
        held, cold = forecast.matched.item(first), forecast.cold.item(first)
        endpoints = tuple([candidates.addresses[position] for position in order])
        if candidates.spares and len(order) < self._wanted:
            endpoints += self._spares(self._wanted - len(order), question)
        return Pick(
            endpoints=endpoints,
            reason=Reason.WARM if held else Reason.COLD,
            matched_share=held / len(question.blocks) if held else 0.0,
            prefix=question.prefix,
            prompt=question.prompt,
            request=question.request,
            serial=question.serial,
            expected_seconds=forecast.queue.item(first) + forecast.load.item(first) + cold,
            cold_seconds=cold,
            candidates=len(candidates.addresses),
            considered=considered,
        )

    def waits(self, now: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return for each candidate the predicted wait in seconds and the engine's queue, NaN if unknown."""
        wait = self.forecaster.queue(now) + self.forecaster.load()
        return wait, self.candidates.signal("queue_depth")

    def _tiers(self, question: Question) -> NDArray[np.int8] | None:
        """Return who goes first, whatever it costs, the lowest first; None: all are alike.

        Behind are those that have had the share that an operator has set; behind these, those that have
        refused this very request.
        """
        candidates = self.candidates
        closed = None if self._quota is None else self._quota.closed(candidates.rows)
        places = [
            place for address in question.refused_by if (place := candidates.place(address)) is not None
        ]
        if not places and (closed is None or not closed.any()):
            return None
        tiers = np.zeros(len(candidates.addresses), np.int8) if closed is None else closed.astype(np.int8)
        tiers[places] += 2
        return None if (tiers == tiers[0]).all() else tiers

    def _due_trial(self, question: Question) -> tuple[int, str] | None:
        """Return row and address of one that may be tried now, if there is one, and note that it is."""
        backlog, trials, now = self._backlog, self.candidates.trials, question.now
        backlog.trials_left = min(backlog.trials_left + self._trials_share, MOST_TRIALS_LEFT)
        # A prompt that is warm somewhere has more to lose: it counts twice.
        price = 2.0 if question.matched.any() else 1.0
        if backlog.trials_left < price:
            return None
        due = [
            (row, address)
            for row, address in trials
            if now - backlog.tried_at[row] >= self._trial_interval_seconds
            and backlog.in_flight[row] < MOST_TRIALS_IN_FLIGHT
            and address not in question.refused_by
            and not (self._quota is not None and self._quota.closed(slice(row, row + 1)).item())
        ]
        if not due:
            return None
        # Who has waited for longest; before the first trial, those that are left out.
        chosen = min(due, key=lambda trial: backlog.tried_at[trial[0]])
        backlog.tried_at[chosen[0]] = now
        backlog.trials_left -= price
        return chosen

    def _note_chosen(self, first: int, now: float) -> None:
        """An endpoint in doubt that is chosen all the same needs no trial."""
        backlog = self._backlog
        for row, address in self.candidates.trials:
            if address == self.candidates.addresses[first]:
                backlog.tried_at[row] = now
                backlog.trials_left = max(backlog.trials_left - 1.0, 0.0)

    def _trial(
        self, row: int, address: str, order: list[int], question: Question, considered: tuple[Considered, ...]
    ) -> Pick:
        """Return a pick of an endpoint that is not trusted; how long it will take is unknown."""
        candidates = self.candidates
        held = question.matched.item(row)
        usual = [candidates.addresses[position] for position in order]
        behind = tuple([other for other in usual if other != address][: self._wanted - 1])
        behind += self._spares(self._wanted - 1 - len(behind), question, but=address)
        # Its own rate is as little to be relied on as its answers.
        cold_bytes = question.text_bytes - held * self._block_bytes
        return Pick(
            endpoints=(address, *behind),
            reason=Reason.WARM if held else Reason.COLD,
            matched_share=held / len(question.blocks) if held else 0.0,
            prefix=question.prefix,
            prompt=question.prompt,
            request=question.request,
            serial=question.serial,
            cold_seconds=cold_bytes * float(self.forecaster.seconds_per_byte.mean()),
            candidates=len(candidates.addresses),
            trial=True,
            considered=considered,
        )

    def _spares(self, count: int, question: Question, but: str = "") -> tuple[str, ...]:
        """Return so many of those that are left out; among equals, other prompts begin with other ones."""
        if count <= 0:
            return ()
        doubted, in_flight = dict(self.candidates.trials), self._backlog.in_flight
        free: list[str] = []
        kept: list[str] = []
        for group in self.candidates.spares:
            first = question.leading_hash % len(group)
            for row, address in group[first:] + group[:first]:
                if address != but:
                    hangs = row in doubted and in_flight[row] >= MOST_TRIALS_IN_FLIGHT
                    (kept if hangs else free).append(address)
            if len(free) >= count:
                break
        return tuple((free + kept)[:count])

    def offer(self, question: Question, forecast: Forecast, cost: NDArray[np.float64]) -> Offer:
        """Put before a picker what it chooses from."""
        rows, backlog = self.candidates.rows, self._backlog
        return Offer(
            question,
            forecast,
            cost,
            self._apart_share,
            self._request_seconds,
            backlog.given[rows],
            None if backlog.elsewhere_share else backlog.placed[rows],
        )

    def choose(self, offer: Offer, tiers: NDArray[np.int8] | None = None) -> list[int]:
        """Positions, best first, with fallbacks in other fault domains."""
        order = self._by_tier(offer, tiers, self._wanted)
        if not self.candidates.domains or self._apart(order):
            return order
        return self._spread(self._by_tier(offer, tiers, self._wanted + DOMAIN_DEPTH), offer.cost, tiers)

    def _by_tier(self, offer: Offer, tiers: NDArray[np.int8] | None, count: int) -> list[int]:
        """Positions as the picker orders them, tier by tier."""
        if tiers is None:
            return self._first(offer, self.candidates, count)
        order: list[int] = []
        for tier in np.unique(tiers):
            among = tiers == tier
            # Of what costs infinitely much the picker is asked for nothing.
            left = min(count - len(order), int(np.count_nonzero(among)))
            order += self._first(
                offer._replace(cost=np.where(among, offer.cost, np.inf)), self.candidates, left
            )
            if len(order) >= count:
                break
        return order

    def _apart(self, order: list[int]) -> bool:
        """Whether no two of them share a fault domain."""
        domains, used = self.candidates.domains, 0
        for position in order:
            if domains[position] & used:
                return False
            used |= domains[position]
        return True

    def _spread(
        self, order: list[int], cost: NDArray[np.float64], tiers: NDArray[np.int8] | None
    ) -> list[int]:
        """Take fallbacks of one tier from other fault domains first, as far as they are not much dearer."""
        domains, allowed = self.candidates.domains, self._other_domain_seconds
        taken, rest = order[:1], order[1:]
        used = domains[order[0]]
        while rest and len(taken) < self._wanted:
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


def _trials_share(candidates: Candidates) -> float:
    """Return the share of picks that may try somebody."""
    endpoints = len(candidates.addresses) + candidates.distrusted.size
    return min(MOST_TRIALS_SHARE, 0.5 * len(candidates.trials) / endpoints)


def _load_weight(settings: PickSettings) -> float:
    """Return by how much a second of load counts; where load makes no difference at all, 1."""
    return sum(entry.weight for entry in settings.scorers if entry.name == "decode_load") or 1.0
