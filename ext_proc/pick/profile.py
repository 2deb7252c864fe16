"""Filter, score, pick, fallbacks: the settings' composition, bound to a pool's candidates of one tick.

Filters, and the part of the cost that is the same for every prompt, are computed once a tick. A pick is a few
operations over columns, so its cost grows slowly with the number of endpoints. A pick changes nothing: `book`
applies what it changes for later requests, once the result is final.

An endpoint that is left out for lack of trust gets one request in a while as a trial, with the usual order as
its fallbacks, so that its recovery is seen. Trials go on until its trust is whole: the last tenth of distrust
may cost more than all load, and an endpoint without requests cannot show its recovery.

Trials are bounded by time, which counts at high load, and by their share of the picks, which counts at low
load: half the fair share of each endpoint in doubt, and all of them together a quarter. Requests with a
prompt that no endpoint holds go first; half as many of the warm ones are tried. An operator's weight bounds
trials too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ext_proc.pick.backlog import MOST_TRIALS_LEFT
from ext_proc.pick.cost_terms import Costs
from ext_proc.pick.explanation import comparison
from ext_proc.pick.fallbacks import DOMAIN_DEPTH, MOST_TRIALS_IN_FLIGHT, Fallbacks
from ext_proc.pick.forecast import Forecaster
from ext_proc.pick.pickers import PICKERS, ScoredCandidates
from ext_proc.pick.result import Decision, PickResult, Reason
from ext_proc.prompt.blocks import ends_in_bytes
from fleet.ranks import address_of_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ext_proc.pick.candidates import Candidates
    from ext_proc.pick.context import TickContext
    from ext_proc.pick.request import PickRequest
    from ext_proc.pick.result import Considered

MOST_TRIALS_SHARE: Final = 0.25
"""Of the picks, over all endpoints in doubt; one of two may get half its fair share."""
_WARM_PRICE: Final = 2.0
"""Trials that one with a warm prompt counts for: it has more to lose."""


class SchedulerProfile:
    """One pool, model and subset at one tick."""

    def __init__(self, context: TickContext) -> None:
        settings = context.settings
        self.context = context
        self.candidates = context.candidates
        self.costs = Costs(context, settings.scorers)
        self.forecaster = Forecaster(context)
        self.fallbacks = Fallbacks(context)
        self._backlog = context.backlog
        self._quota = context.quota
        self._picker = PICKERS[settings.picker]
        self._ends = ends_in_bytes(settings.block_bytes)
        self._trial_interval_seconds = settings.trial_interval_seconds
        self._trials_share = _trials_share(context.candidates)

    def pick(self, request: PickRequest) -> Decision:
        """Choose. Without any known load all endpoints are equal, and new prefixes go by weights."""
        scored = self.score(request)
        apart = self._quota is not None or request.refused_by
        order = self.choose(scored, self._tiers(request) if apart else None)
        terms = self._terms(scored) if request.explain else None
        considered = comparison(self.candidates.addresses, order, scored, self.costs.fixed, terms)
        pinned = self._pinned(request.pinned, scored) if request.pinned else None
        if pinned is not None:
            order = [pinned, *(place for place in order if place != pinned)][: len(order)]
        elif self.candidates.trials and (trial := self._next_trial(request)) is not None:
            return self._trial(*trial, order, request, considered)
        forecast, first = scored.forecast, order[0]
        matched, expected = forecast.matched.item(first), self.forecaster.expected(forecast, first)
        return Decision(
            PickResult(
                self.fallbacks.endpoints(order, request.leading_hash),
                _reason(request, matched, pinned=pinned is not None),
                request.share_of(matched),
                request.prefix,
                expected.median,
                prompt=request.prompt,
                request=request.request,
                serial=request.serial,
            ),
            request,
            len(self.candidates.addresses),
            considered,
            forecast.cold.item(first),
            expected=expected,
        )

    def _pinned(self, address: str, scored: ScoredCandidates) -> int | None:
        """Return the place of an endpoint, or of its cheapest rank; None: it is no candidate."""
        return min(self.candidates.places(address), key=scored.cost.item, default=None)

    def score(self, request: PickRequest) -> ScoredCandidates:
        """Forecast a prompt and add up what it costs on each candidate."""
        forecast = self.forecaster.of(request)
        cost = self.costs.of(request, forecast)
        if self._quota is not None:
            cost = cost + self._quota.seconds(self.candidates.rows)
        return ScoredCandidates(request, forecast, cost)

    def _terms(self, scored: ScoredCandidates) -> dict[str, NDArray[np.float64]]:
        """Return the parts of the cost by name; `override` is the credit of an operator's weight."""
        terms = self.costs.by_term(scored.request, scored.forecast)
        if self._quota is not None:
            terms["override"] = self._quota.seconds(self.candidates.rows)
        return terms

    def choose(self, scored: ScoredCandidates, tiers: NDArray[np.int8] | None = None) -> list[int]:
        """Positions, best first, with fallbacks in other fault domains."""
        fallbacks = self.fallbacks
        if tiers is None:
            order = self._picker(scored, self.context, fallbacks.count)
        else:
            order = self._by_tier(scored, tiers, fallbacks.count)
        if self.candidates.domains and fallbacks.share_a_domain(order):
            order = self._by_tier(scored, tiers, fallbacks.count + DOMAIN_DEPTH)
            order = fallbacks.in_other_domains(order, scored.cost, tiers)
        return order

    def book(self, decision: Decision) -> None:
        """Apply what a final decision changes for trials and for the shares of overridden endpoints."""
        candidates, backlog = self.candidates, self._backlog
        request, result = decision.request, decision.result
        assert request is not None
        row = candidates.shape.position[result.rank_name or result.endpoints[0]]
        if candidates.trials:
            left = min(backlog.trials_left + self._trials_share, MOST_TRIALS_LEFT)
            if any(row == in_doubt for in_doubt, _ in candidates.trials):
                # An endpoint in doubt that is chosen by its cost needs no trial.
                left = max(left - (_trial_price(request) if decision.trial else 1.0), 0.0)
                backlog.tried_at[row] = request.now
            backlog.trials_left = left
        if self._quota is not None:
            self._quota.note(candidates, row)

    def waits(self, now: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return for each candidate the predicted wait in seconds and the engine's queue, NaN if unknown.

        A queue that is forecast to shrink counts as what is left of it, and so does its part of the wait.
        """
        wait, queue = self.forecaster.queue(now), self.candidates.signal("queue_depth")
        left = np.fmin(queue, self.candidates.signal("queue_depth_forecast_p50"))
        staying = np.divide(left, queue, out=np.ones_like(queue), where=queue > 0)
        return wait * staying + self.forecaster.load(), np.where(np.isnan(queue), queue, left)

    def _tiers(self, request: PickRequest) -> NDArray[np.int8] | None:
        """Return each candidate's tier: the lowest goes first, whatever its cost; None: all are equal.

        Endpoints that have had an operator's share come later, and after these the endpoints that have
        refused this very request.
        """
        candidates = self.candidates
        closed = None if self._quota is None else self._quota.closed(candidates.rows)
        places = [place for address in request.refused_by for place in candidates.places(address)]
        if not places and (closed is None or not closed.any()):
            return None
        tiers = np.zeros(len(candidates.addresses), np.int8) if closed is None else closed.astype(np.int8)
        tiers[places] += 2
        return None if (tiers == tiers[0]).all() else tiers

    def _by_tier(self, scored: ScoredCandidates, tiers: NDArray[np.int8] | None, count: int) -> list[int]:
        """Positions as the picker orders them, tier by tier."""
        if tiers is None:
            return self._picker(scored, self.context, count)
        order: list[int] = []
        for tier in np.unique(tiers):
            among = tiers == tier
            # Other tiers have an infinite cost, and `left` excludes them.
            left = min(count - len(order), int(np.count_nonzero(among)))
            of_tier = msgspec.structs.replace(scored, cost=np.where(among, scored.cost, np.inf))
            order += self._picker(of_tier, self.context, left)
            if len(order) >= count:
                break
        return order

    def _next_trial(self, request: PickRequest) -> tuple[int, str] | None:
        """Return row and address of an endpoint that may be tried now; None: none may."""
        backlog, trials, now = self._backlog, self.candidates.trials, request.now
        if min(backlog.trials_left + self._trials_share, MOST_TRIALS_LEFT) < _trial_price(request):
            return None
        ready = [
            (row, address)
            for row, address in trials
            if now - backlog.tried_at[row] >= self._trial_interval_seconds
            and backlog.in_flight[row] < MOST_TRIALS_IN_FLIGHT
            and address_of_rank(address) not in request.refused_by
            and not (self._quota is not None and self._quota.closed(slice(row, row + 1)).item())
        ]
        if not ready:
            return None
        # The endpoint with the longest wait; before the first trial, the endpoints that are left out.
        return min(ready, key=lambda trial: backlog.tried_at[trial[0]])

    def _trial(
        self,
        row: int,
        address: str,
        order: list[int],
        request: PickRequest,
        considered: Sequence[Considered],
    ) -> Decision:
        """Return the pick of an untrusted endpoint; its duration is unknown."""
        matched = request.matched.item(row)
        # Its own rate is as unreliable as its answers.
        cold_bytes = request.text_bytes - self._ends.item(matched)
        return Decision(
            PickResult(
                self.fallbacks.behind(address, order, request.leading_hash),
                _reason(request, matched),
                request.share_of(matched),
                request.prefix,
                prompt=request.prompt,
                request=request.request,
                serial=request.serial,
            ),
            request,
            len(self.candidates.addresses),
            considered,
            self.forecaster.mean_prefill_seconds(request.text_bytes, cold_bytes),
            trial=True,
        )


def _reason(request: PickRequest, matched: int, *, pinned: bool = False) -> Reason:
    if pinned:
        return Reason.STORED if request.stored else Reason.SESSION
    if request.headers_only:
        return Reason.HEADERS
    return Reason.WARM if matched else Reason.COLD


def _trial_price(request: PickRequest) -> float:
    return _WARM_PRICE if request.matched.any() else 1.0


def _trials_share(candidates: Candidates) -> float:
    """Return the share of picks that may be trials."""
    endpoints = len(candidates.addresses) + candidates.untrusted.size
    return min(MOST_TRIALS_SHARE, 0.5 * len(candidates.trials) / endpoints)
