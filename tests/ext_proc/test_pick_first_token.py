"""The time to first token, learned from engines' own counts of it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ext_proc.pick.first_token import (
    ERRORS_KEPT,
    MEMORY_SECONDS,
    STEP_SECONDS,
    Expected,
    FirstTokens,
    SentRequest,
    deviation,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOW = 100.0
RATE, ATTENTION = 20_000.0, 2e-5
ALL = slice(None)
USUAL = STEP_SECONDS, 1 / RATE, ATTENTION / RATE
"""The prior."""


def times(usual: float) -> tuple[float, float, float]:
    """Coefficients of an engine that takes `usual` times as long."""
    step, token, pair = USUAL
    return step * usual, token * usual, pair * usual


class Engines:
    """A pool whose engines take `(step, token, pair)` seconds, and count their first tokens."""

    def __init__(self, *true: tuple[float, float, float], seed: int = 1) -> None:
        self.true = np.array(true)
        self.totals: NDArray[np.float64] = np.zeros((2, len(true)))
        self.rates = np.full(len(true), RATE)
        self.learned = FirstTokens(len(true))
        self.draw = Random(seed)
        self.now = NOW
        self.tick()

    def tick(self, *, alone: bool = True, age: float = 0.0) -> None:
        """Take pages that were read `age` seconds ago."""
        size = len(self.true)
        read_at, everywhere = np.full(size, self.now - age), np.full(size, alone)
        self.answers = self.learned.learn(self.totals.copy(), read_at, everywhere, self.now)
        if self.answers is not None:
            self.learned.learn_slowness(self.rates, ATTENTION)

    def coefficients(self) -> NDArray[np.float64]:
        return self.learned.coefficients(ALL, self.rates, ATTENTION)

    def expected(self, row: int, cold: float, length: float, queue: float = 0.0) -> SentRequest:
        step, token, pair = self.coefficients()[row].tolist()
        pairs = cold * (length - cold / 2)
        mean = queue + step + token * cold + pair * pairs
        spread = deviation(step, queue, mean)
        median, p90 = (mean + quantile * spread for quantile in self.learned.quantiles)
        return SentRequest(self.now, Expected(median, p90, mean, spread, queue, step, 1.0), cold, pairs)

    def true_seconds(self, row: int, sent: SentRequest) -> float:
        return float(self.true[row] @ (1.0, sent.cold, sent.pairs))

    def count(self, row: int, seconds: float) -> None:
        self.totals[:, row] += 1.0, seconds

    def serve(self, row: int, requests: int, noise: float = 0.02, together: int = 1) -> list[SentRequest]:
        """Serve requests; `together` of them begin between two pages. Return the predictions."""
        predictions = []
        for number in range(1, requests + 1):
            length = self.draw.choice((100.0, 1_000.0, 8_000.0, 40_000.0))
            sent = self.expected(row, length * self.draw.choice((0.1, 0.5, 1.0)), length)
            self.learned.sent(row, sent)
            self.count(row, self.true_seconds(row, sent) * self.draw.lognormvariate(0.0, noise))
            predictions.append(sent)
            if number % together == 0:
                self.now += 1.0
                self.tick()
        return predictions

    def ratios(self, row: int) -> list[float]:
        """Predicted over true times of a warm, a short and a long prompt."""
        lengths = ((100.0, 40_000.0), (1_000.0, 1_000.0), (30_000.0, 30_000.0))
        sent = [self.expected(row, cold, length) for cold, length in lengths]
        return [each.expected.mean / self.true_seconds(row, each) for each in sent]


@pytest.mark.parametrize("rows", [ALL, np.array([2, 0])])
def test_prior_holds_without_first_tokens(rows: slice | NDArray[np.intp]) -> None:
    rates = np.array([RATE, RATE / 2, RATE])[rows]
    coefficients = FirstTokens(3).coefficients(rows, rates, ATTENTION)
    assert coefficients[:, 1] == pytest.approx(1 / rates, rel=0.02)
    assert coefficients[0] == pytest.approx(USUAL)


@pytest.mark.parametrize("usual", [1 / 20, 1 / 3, 1.0, 3.0, 10.0])
def test_coefficients_follow_the_engine(usual: float) -> None:
    step, token, pair = times(usual)
    engines = Engines((2 * step, 0.8 * token, 1.2 * pair))
    engines.serve(0, 120)
    assert engines.ratios(0) == pytest.approx([1.0] * 3, rel=0.12)


def test_sums_of_several_teach_as_well() -> None:
    engines = Engines(times(3.0))
    engines.serve(0, 150, together=5)
    assert engines.ratios(0) == pytest.approx([1.0] * 3, rel=0.15)


def test_reading_coefficients_changes_nothing() -> None:
    engines = Engines(times(2.0), USUAL, USUAL)
    for row in range(3):
        engines.serve(row, 8)
    first = engines.coefficients()
    engines.learned.coefficients(np.array([0]), np.full(1, RATE), ATTENTION)
    assert (engines.coefficients() == first).all()


def test_models_of_one_pool_differ_by_their_own_median() -> None:
    """Endpoints 0 and 1 serve a larger model than 2 and 3: within their model they are equal."""
    engines = Engines(times(3.0), times(3.0), USUAL, USUAL)
    for _ in range(20):
        for row in range(4):
            engines.serve(row, 3)
    larger = engines.learned.coefficients(np.array([0, 1]), engines.rates[:2], ATTENTION)
    assert larger @ (1.0, 8_000.0, 3.2e7) == pytest.approx(
        [3 * np.dot(USUAL, (1.0, 8_000.0, 3.2e7))] * 2, rel=0.12
    )


def test_answers_have_their_error_and_fit_p90_or_not() -> None:
    """Two requests of one page count as one, with their mean error."""
    engines = Engines(USUAL, USUAL)
    sent = [engines.expected(row, 1_000.0, 1_000.0) for row in (0, 0, 1)]
    for row, each, late in zip((0, 0, 1), sent, (3.0, 5.0, -0.01), strict=True):
        engines.learned.sent(row, each)
        engines.count(row, each.expected.median + late)
    engines.tick()
    assert engines.answers is not None
    assert engines.answers.late_seconds == pytest.approx([4.0, -0.01])
    assert engines.answers.within_p90.tolist() == [False, True]
    engines.tick()
    assert engines.answers is None


def test_queue_ahead_is_no_slowness() -> None:
    engines = Engines(USUAL)
    for _ in range(60):
        sent = engines.expected(0, 1_000.0, 1_000.0, queue=2.0)
        engines.learned.sent(0, sent)
        engines.count(0, sent.expected.mean)
        engines.tick()
    assert engines.coefficients()[0] == pytest.approx(USUAL, rel=0.05)


def test_slow_engine_differs_from_its_pool() -> None:
    engines = Engines(times(2.0), USUAL, USUAL, USUAL)
    for _ in range(20):
        for row in range(4):
            engines.serve(row, 4)
    seconds = [engines.expected(row, 8_000.0, 8_000.0).expected.mean for row in range(4)]
    assert seconds[0] / seconds[1] == pytest.approx(2.0, rel=0.1)
    assert seconds[1:] == pytest.approx([seconds[1]] * 3, rel=0.05)


def test_engine_without_requests_is_like_its_pool() -> None:
    engines = Engines(times(1 / 3), times(1 / 3), times(1 / 3))
    for row in (0, 1):
        engines.serve(row, 60)
    assert engines.ratios(2) == pytest.approx([1.0] * 3, rel=0.12)


@pytest.mark.parametrize("seconds", [0.0, 1e6])
def test_single_outlier_moves_little(seconds: float) -> None:
    engines = Engines(USUAL)
    engines.serve(0, 30)
    before = engines.coefficients()
    engines.learned.sent(0, engines.expected(0, 1_000.0, 1_000.0))
    engines.count(0, seconds)
    engines.tick()
    assert engines.coefficients() == pytest.approx(before, rel=0.1)


def test_failed_request_does_not_shift_the_others() -> None:
    engines = Engines(times(2.0))
    engines.learned.sent(0, engines.expected(0, 60_000.0, 60_000.0))
    engines.now += 60.0
    engines.serve(0, 100)
    assert engines.ratios(0) == pytest.approx([1.0] * 3, rel=0.12)


def test_engine_that_counts_nothing_keeps_no_old_request() -> None:
    engines = Engines(USUAL)
    for _ in range(100):
        engines.now += 1.0
        engines.learned.sent(0, engines.expected(0, 1_000.0, 1_000.0))
    assert len(engines.learned._waiting[0]) <= 4


def test_counts_that_mix_workers_teach_nothing() -> None:
    """Another worker sends as many short prompts: which of the counted first tokens are ours is unknown."""
    engines = Engines(USUAL)
    for number in range(100):
        lengths = (8_000.0, 100.0) if number % 2 else (100.0, 8_000.0)
        for length in lengths:
            sent = engines.expected(0, length, length)
            engines.count(0, engines.true_seconds(0, sent))
            engines.now += 1.0
            if length == lengths[0]:
                engines.learned.sent(0, sent)
            engines.tick(alone=False)
    assert engines.coefficients()[0] == pytest.approx(USUAL)


def test_unknown_and_fallen_counts_teach_nothing() -> None:
    engines = Engines(USUAL)
    engines.serve(0, 5)
    before = engines.coefficients()
    engines.learned.sent(0, engines.expected(0, 1_000.0, 1_000.0))
    for totals in ([[np.nan], [np.nan]], [[1.0], [0.5]]):
        engines.totals = np.array(totals)
        engines.tick()
    assert engines.coefficients() == pytest.approx(before)


def test_a_request_before_the_count_shifts_no_later_one() -> None:
    """Its first token comes after the count has begun, while a long prompt waits behind it."""
    engines = Engines(USUAL)
    engines.tick(alone=False)
    engines.learned.sent(0, engines.expected(0, 100.0, 100.0, queue=1.0))
    engines.now += 0.5
    engines.tick()
    engines.learned.sent(0, engines.expected(0, 40_000.0, 40_000.0))
    engines.count(0, 1.0)
    engines.now += 1.0
    engines.tick()
    assert engines.ratios(0) == pytest.approx([1.0] * 3, rel=0.05)


def test_requests_that_should_be_answered_take_no_later_count() -> None:
    """Whether the count included them when it began is unknown, and likely by their predictions."""
    engines = Engines(USUAL)
    engines.tick(alone=False)
    engines.learned.sent(0, engines.expected(0, 40_000.0, 40_000.0))
    engines.now += 10.0
    engines.tick()
    engines.learned.sent(0, short := engines.expected(0, 100.0, 100.0))
    engines.count(0, engines.true_seconds(0, short))
    engines.now += 0.5
    engines.tick()
    assert engines.ratios(0) == pytest.approx([1.0] * 3, rel=0.05)


def test_a_count_read_before_a_request_is_not_its_own() -> None:
    engines = Engines(USUAL)
    engines.learned.sent(0, short := engines.expected(0, 100.0, 100.0))
    for _ in range(2):  # One is of a request that was taken off before.
        engines.count(0, engines.true_seconds(0, short))
    engines.now += 0.5
    engines.learned.sent(0, long := engines.expected(0, 40_000.0, 40_000.0))
    engines.tick(age=0.25)
    engines.now += 5.0
    engines.count(0, engines.true_seconds(0, long))
    engines.tick()
    assert engines.answers is not None
    assert engines.ratios(0) == pytest.approx([1.0] * 3, rel=0.05)


def test_old_first_tokens_fade_to_the_prior() -> None:
    engines = Engines(times(3.0))
    engines.serve(0, 50)
    assert engines.coefficients()[0, 1] > 2 / RATE
    engines.now += 30 * MEMORY_SECONDS
    engines.tick()
    assert engines.coefficients()[0] == pytest.approx(USUAL, rel=0.01)


@pytest.mark.untraced
def test_quantiles_cover_their_share() -> None:
    engines = Engines(USUAL)
    engines.serve(0, 200, noise=0.3)
    later = engines.serve(0, ERRORS_KEPT, noise=0.3)
    errors = list(engines.learned._errors)
    covered = np.mean(
        [
            [
                error <= (bound - sent.expected.mean) / sent.expected.deviation
                for bound in (sent.expected.median, sent.expected.p90)
            ]
            for error, sent in zip(errors, later, strict=True)
        ],
        axis=0,
    )
    assert covered == pytest.approx([0.5, 0.9], abs=0.05)


def test_restarted_and_moved_engines() -> None:
    engines = Engines(times(3.0), USUAL)
    for row in (0, 1):
        engines.serve(row, 40)
    before = engines.coefficients()
    moved = engines.learned.moved_to(np.array([1, 0, -1]))
    after = moved.coefficients(ALL, np.full(3, RATE), ATTENTION)
    assert after[:2] == pytest.approx(before[[1, 0]], rel=0.02)
    moved.forget(1)
    forgotten = moved.coefficients(ALL, np.full(3, RATE), ATTENTION)
    assert forgotten[1] == pytest.approx(forgotten[2]), "as a new one"


def test_cancelled_requests_shift_no_comparison() -> None:
    """One request in five ends without a first token; two are in flight at each page."""
    engines, draw = Engines(times(2.0)), Random(3)
    for number in range(300):
        length = min(draw.lognormvariate(8, 1), 60_000.0)
        sent = engines.expected(0, length * draw.choice((0.1, 0.5, 1.0)), length)
        engines.learned.sent(0, sent)
        if draw.random() < 0.2:
            assert engines.learned.ended(0, sent, engines.now)
        else:
            engines.count(0, engines.true_seconds(0, sent) * draw.lognormvariate(0, 0.1))
        if number % 2:
            engines.now += 0.5
            engines.tick()
    assert engines.ratios(0) == pytest.approx([1.0] * 3, rel=0.12)


def test_short_answers_of_a_fast_engine_teach() -> None:
    """Each ends before its prediction by a prior that is far too slow, and before its page."""
    ends, no_ends = Engines(times(1 / 20)), Engines(times(1 / 20))
    for engines in (ends, no_ends):
        for length in (1_000.0, 8_000.0, 40_000.0) * 30:
            for cold in (length, length / 2):
                sent = engines.expected(0, cold, length)
                engines.learned.sent(0, sent)
                seconds = engines.true_seconds(0, sent)
                engines.count(0, seconds)
                if engines is ends:
                    engines.learned.ended(0, sent, engines.now + seconds)
            engines.now += 1.0
            engines.tick()
    assert ends.coefficients() == pytest.approx(no_ends.coefficients())
    assert (ends.coefficients()[0] < np.array(USUAL) / 3).all()


def test_end_after_the_predicted_median_changes_nothing() -> None:
    engines = Engines(USUAL)
    sent = engines.expected(0, 8_000.0, 8_000.0)
    engines.learned.sent(0, sent)
    assert not engines.learned.ended(0, sent, engines.now + sent.expected.median)
    engines.count(0, sent.expected.mean)
    engines.tick()
    assert engines.answers is not None
