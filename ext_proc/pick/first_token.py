"""The time to first token on each endpoint, learned from engines' own counts of it.

Envoy's first byte is no first token: engines send the headers of a stream when they accept the request. But
they count their first tokens and the seconds to them, and they prefill in the order of arrival. So what a
count has grown by since the last page belongs to our oldest requests there, one by one, or as a sum if there
are several. Where others send requests too, nothing shows whose were counted, so nothing is compared.

One wrong assignment would shift all later ones as long as requests wait: a short prompt's time would count
for a long one, whose part of the regression has the most leverage. So a count that was read before a request
was sent never counts for it, which ends a shift whenever an engine has no prompt left. And when counts begin,
or begin again, the requests that should have had their first tokens by then are taken off.

A client may leave before its first token. A request that ends before the predicted median has probably had
none: it counts only for first tokens that no other request of ours can have had.

A prompt of `length` tokens with `cold` ones to compute occupies an engine for

    own     = step + token * cold + pair * cold * (length - cold / 2)      the last product: mean context
    seconds = queue + own + (step / 2, if a request of ours is in flight there)

`step` is a step's fixed part, decodes in the batch included; a request arrives in the middle of one. A prompt
behind others shares its steps with them, so it delays those who come later by `step` only once in
`STEP_TOKENS` cold tokens.

`(step, token, pair)` are learned by a recursive Bayesian linear regression on `seconds - queue`. Its evidence
fades with `MEMORY_SECONDS`. Each answer, or sum of answers, counts with the weight 1 / variance, where

    variance = (0.5 * step)^2 + (0.3 * queue)^2 + (0.1 * seconds)^2        by the prediction at the pick

and Huber's factor against outliers. An answer outside `MOST_RATIO` times the prediction, either way, counts
as one at that bound: no single answer moves much, and a wrong prior still gives way within some tens.

The three are the pool's. An endpoint differs from them by one factor, its slowness. With the sums A and v of
w x x' and w x y over an endpoint's answers, and c = (step, token, pair):

    slowness_i = (c' v_i + 1 / 0.3^2) / (c' A_i c + 1 / 0.3^2), over the pool's median
    c          = (sum A_i + D)^-1 (sum v_i / slowness_i + D prior)          D = diag(3 prior)^-2

Each follows the other's last value: the slowness once a tick with answers. The prior is that of the settings
and of the engines' prefill counters, which know a slowness too (see `prefill`). A slowness within the noise
becomes 1, by the positive-part James-Stein estimator as in `prefill`: small differences that chance makes
would draw long prompts to one engine.

Quantiles follow the pool's last answers: the prediction plus a quantile of their `(seconds - prediction) /
deviation`, times the deviation. Sources: Lindley and Smith, "Bayes estimates for the linear model" (1972);
Huber, "Robust estimation of a location parameter" (1964); Papadopoulos et al., "Normalized nonconformity
measures for regression conformal prediction" (2008).
"""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from math import exp, hypot, isnan, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from ext_proc.pick.rows import moved

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEMORY_SECONDS: Final = 300.0
STEP_SECONDS: Final = 0.01
"""The prior of `step`."""
STEP_TOKENS: Final = 2048.0
"""Prefill in one step, about: engines' token budgets are 2,048 to 16,384."""
ARRIVES_AT: Final = 0.5
"""Of a step, when a request arrives in it."""
MOST_RATIO: Final = 4.0
OVERDUE_SECONDS: Final = 2.0
"""A request that is later than this and `MOST_RATIO` times its prediction has failed, or gone elsewhere."""
MOST_WAITING: Final = 1024
"""Of one endpoint; the oldest go first."""
_HUBER: Final = 1.5
"""Deviations from which on an answer's weight falls."""
_OF_POOL: Final = 3.0
"""Standard deviation of a pool's coefficients, in those of the prior."""
MOST_QUEUE_SHARE: Final = 0.05
"""Of a prediction: answers behind a longer queue are no evidence, for they make a loaded endpoint look fast,
and that draws more to it."""
_PRIOR_MATRIX: Final = np.eye(3) / _OF_POOL**2
_BETWEEN_ENDPOINTS: Final = 0.3
"""The same of an endpoint's slowness."""
_NOISE: Final = 0.1
"""Standard deviation of `ln(slowness)` between equal engines."""
_ALIKE: Final = 0.25
"""Correlation of the errors of answers between two pages: they share steps and a queue."""
_LEAST_ATTENTION: Final = 1e-12
_FARTHEST: Final = 256.0
"""Times the prior, either way: the bound of every coefficient."""
ERRORS_KEPT: Final = 512
"""Newest answers whose errors make the quantiles."""
_LEAST_ERRORS: Final = 16
_QUANTILES: Final = (0.5, 0.9)
_UNTIL_THEN: Final = (0.0, 1.28)
"""Those of a normal distribution."""


class Expected(msgspec.Struct, frozen=True, gc=False):
    """A prediction for one endpoint, in seconds."""

    median: float
    p90: float
    mean: float
    """By the formula, without the quantiles."""
    deviation: float
    queue: float
    step: float
    steps: float
    """Fixed parts of steps until its first token: the regression's first coordinate."""


class Answers(NamedTuple):
    """The comparisons of one tick: each of one request, or of the sum of several."""

    late_seconds: NDArray[np.float64]
    """Beyond the predicted median, of a request in the mean; below 0 for early ones."""
    within_p90: NDArray[np.bool_]


class SentRequest(msgspec.Struct, frozen=True, gc=False):
    """A request on its way to its first token."""

    at: float
    """When it was picked, on the caller's clock."""
    expected: Expected
    cold: float
    """Tokens."""
    pairs: float
    """cold * (length - cold / 2), in tokens squared."""

    @property
    def facts(self) -> tuple[float, ...]:
        """What can be added up: `x`, queue, mean, variance and deviation."""
        expected = self.expected
        spread = expected.deviation
        return expected.steps, self.cold, self.pairs, expected.queue, expected.mean, spread**2, spread


def deviation(step: float, queue: float, seconds: float) -> float:
    """Return the standard deviation of a prediction, by the module's formula."""
    return hypot(0.5 * step, 0.3 * queue, 0.1 * seconds)


class FirstTokens:
    """Sums over a pool's answers, the endpoints in the first axis, in the pool's order."""

    def __init__(self, size: int) -> None:
        self._products: NDArray[np.float64] = np.zeros((size, 3, 3))
        self._moments: NDArray[np.float64] = np.zeros((size, 3))
        self._slowness: NDArray[np.float64] = np.ones(size)
        self._totals: NDArray[np.float64] = np.full((2, size), np.nan)
        """First tokens and the sum of their times, as engines counted them last."""
        self._waiting = defaultdict[int, deque[SentRequest]](deque)
        """Requests without a first token by row, the oldest first; most of a large fleet's rows have none."""
        self._doubtful = defaultdict[int, deque[SentRequest]](partial(deque, maxlen=MOST_WAITING))
        """Those of them that ended before the predicted median, since the last page with first tokens."""
        self._errors: deque[float] = deque(maxlen=ERRORS_KEPT)
        """In deviations."""
        self._at: float | None = None
        self.quantiles = _UNTIL_THEN
        """Deviations from the mean to the median and to the 90th percentile."""

    def moved_to(self, sources: NDArray[np.intp]) -> FirstTokens:
        """Return the same for other endpoints, see `rows.moved`."""
        other = FirstTokens(sources.size)
        other._products = moved(self._products.T, sources).T
        other._moments = moved(self._moments.T, sources).T
        other._slowness = moved(self._slowness, sources, 1.0)
        other._totals = moved(self._totals, sources, np.nan)
        rows = {source: row for row, source in enumerate(sources.tolist())}
        for name in ("_waiting", "_doubtful"):
            requests = getattr(self, name)
            getattr(other, name).update({rows[row]: requests[row] for row in rows.keys() & requests.keys()})
        other._errors, other._at, other.quantiles = self._errors, self._at, self.quantiles
        return other

    def sent(self, position: int, request: SentRequest) -> None:
        """Note a request."""
        waiting = self._waiting[position]
        _drop_overdue(waiting, request.at)  # An engine that counts nothing would keep all.
        waiting.append(request)
        if len(waiting) > MOST_WAITING:
            waiting.popleft()

    def ended(self, position: int, request: SentRequest, now: float) -> bool:
        """Note a request's end; return whether it has probably had no first token."""
        if now >= request.at + request.expected.median:
            return False
        waiting, counts = self._waiting[position], not isnan(self._totals.item(0, position))
        if counts and request in waiting:
            waiting.remove(request)
            self._doubtful[position].append(request)
        return True

    def forget(self, position: int) -> None:
        """Forget an engine: another process may be another engine."""
        self._products[position] = self._moments[position] = 0.0
        self._slowness[position] = 1.0
        self._waiting[position].clear()
        self._doubtful[position].clear()

    def learn(
        self,
        totals: NDArray[np.float64],
        read_at: NDArray[np.float64],
        alone: NDArray[np.bool_],
        now: float,
    ) -> Answers | None:
        """Compare what engines have counted since the last tick, and let older answers fade.

        Return None if they have counted nothing of ours. `totals` are first tokens and the seconds to them,
        by endpoint, NaN is unknown; `read_at` is when, on the clock of `now`; `alone` is whether all requests
        there are ours.
        """
        totals = np.where(alone, totals, np.nan)
        kept = exp(-(0.0 if self._at is None else max(0.0, now - self._at)) / MEMORY_SECONDS)
        self._at = now
        self._products *= kept
        self._moments *= kept
        grown = totals - self._totals
        begins = np.isnan(self._totals[0]) & ~np.isnan(totals[0])
        self._totals = totals
        for row in np.flatnonzero(begins).tolist():
            self._begin(row, read_at.item(row))
        rows = np.flatnonzero((grown[0] > 0) & (grown[1] >= 0)).tolist()
        compared = [
            facts for row in rows if (facts := self._compared(row, grown[:, row], read_at.item(row), now))
        ]
        return self._add(np.array(compared).T) if compared else None

    def learn_slowness(self, rates: NDArray[np.float64], attention: float) -> None:
        """Set each endpoint's slowness by its answers, after a tick with answers.

        `rates` and `attention` are as in `coefficients`, for the whole pool.
        """
        self._slowness = self._solved(slice(None), rates, attention)[0]

    def _begin(self, row: int, read_at: float) -> None:
        """Take off the requests that should have had their first tokens when an engine's count begins."""
        waiting = self._waiting[row]
        while waiting and waiting[0].at + waiting[0].expected.mean <= read_at:
            waiting.popleft()
        self._doubtful[row].clear()

    def _compared(
        self, row: int, grown: NDArray[np.float64], read_at: float, now: float
    ) -> tuple[float, ...] | None:
        """Return the sums of our requests that the engine has counted now; None if there is none."""
        waiting, doubtful = self._waiting[row], self._doubtful[row]
        _drop_overdue(waiting, now)
        count, seconds = grown.tolist()
        requests: list[SentRequest] = []
        while len(requests) < count and waiting and waiting[0].at <= read_at:
            requests.append(waiting.popleft())
        while len(requests) < count and doubtful:
            requests.append(doubtful.popleft())
        doubtful.clear()
        if not (number := len(requests)):
            return None
        *sums, variance, whole = (
            sum(column) for column in zip(*(each.facts for each in requests), strict=True)
        )
        spread = sqrt((1.0 - _ALIKE) * variance + _ALIKE * whole**2)
        return (row, *sums, spread, seconds * number / count, number)

    def coefficients(
        self, rows: NDArray[np.intp] | slice, rates: NDArray[np.float64], attention: float
    ) -> NDArray[np.float64]:
        """Return step, token and pair of each endpoint in `rows`, a row an endpoint; all are above 0.

        `rates` are tokens a second without context, by engines' counters or the settings; `attention` is what
        a token more before it adds to a token, as a share.
        """
        slowness, pool = self._solved(rows, rates, attention)
        apart = np.log(slowness)
        apart *= np.maximum(0.0, 1.0 - _NOISE**2 / np.maximum(apart * apart, 1e-12))
        result: NDArray[np.float64] = np.exp(apart)[:, None] * pool
        return result

    def _solved(
        self, rows: NDArray[np.intp] | slice, rates: NDArray[np.float64], attention: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the slowness of each endpoint in `rows`, and step, token and pair of all of them."""
        products, moments, before = self._products[rows], self._moments[rows], self._slowness[rows]
        token = _median(1.0 / rates)
        prior = np.array([STEP_SECONDS, token, max(attention, _LEAST_ATTENTION) * token])
        # In multiples of the prior, all coordinates have about the same size.
        matrix = products.sum(axis=0) * prior[:, None] * prior + _PRIOR_MATRIX
        vector = (_median(before) / before) @ moments * prior + _OF_POOL**-2
        multiples = _clipped(np.linalg.solve(matrix, vector))
        pool = prior * multiples
        by_counters, sure = 1.0 / (rates * token), _BETWEEN_ENDPOINTS**-2
        slowness = (moments @ pool + by_counters * sure) / (products @ pool @ pool + sure)
        return _clipped(slowness / _median(slowness)), pool

    def _add(self, facts: NDArray[np.float64]) -> Answers:
        """Add answers: row, `x`, queue, mean, deviation, seconds and number of requests, each a column.

        Of several requests all are sums.
        """
        rows, x = facts[0].astype(np.intp), facts[1:4]
        queue, mean, spread, seconds, number = facts[4:]
        errors = (seconds - mean) / spread
        median, p90 = self.quantiles
        answers = Answers((errors - median) * spread / number, errors <= p90)
        self._errors.extend(errors.tolist())
        if len(self._errors) >= _LEAST_ERRORS:
            median, p90 = np.quantile(self._errors, _QUANTILES).tolist()
            self.quantiles = median, p90
        bounded = np.clip(seconds, mean / MOST_RATIO, mean * MOST_RATIO)
        off = np.abs(bounded - mean) / spread
        weights = 1.0 / (np.maximum(1.0, off / _HUBER) * spread**2)
        # The deviation of a time far above the prediction is that of its own size.
        weights *= np.where(seconds > bounded, (mean / np.maximum(seconds, mean)) ** 2, 1.0)
        weights *= queue <= MOST_QUEUE_SHARE * mean
        weighted = (weights * x).T
        np.add.at(self._products, rows, weighted[:, :, None] * x.T[:, None, :])
        np.add.at(self._moments, rows, weighted * (bounded - queue)[:, None])
        return answers


def _drop_overdue(waiting: deque[SentRequest], now: float) -> None:
    while waiting and now - waiting[0].at > OVERDUE_SECONDS + MOST_RATIO * waiting[0].expected.mean:
        waiting.popleft()


def _clipped(multiples: NDArray[np.float64]) -> NDArray[np.float64]:
    # np.clip takes four times as long for few numbers.
    return np.minimum(np.maximum(multiples, 1.0 / _FARTHEST), _FARTHEST)


def _median(column: NDArray[np.float64]) -> float:
    """Return `np.median` of a column without NaN, in a fraction of its time for few numbers."""
    ordered, half = np.sort(column), column.size // 2
    return float(ordered[half]) if column.size % 2 else float(ordered[half - 1] + ordered[half]) / 2
