"""What bench.uneven makes of outcomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.uneven import main, refused_of, slow_of, targets_of
from warmroute.demo.stats import Outcome

GOOD = Outcome(0.0, 2.0, ttft_seconds=0.5)


def test_the_share_is_what_the_engines_counted() -> None:
    counts = [{"requests": 1}, {"requests": 3}, {"requests": 3}, {"requests": 3}]
    slow = slow_of("warmroute", [GOOD, replace(GOOD, failure="status 503")], counts)
    assert (slow.slow_share, slow.requests, slow.failures) == (0.1, 2, 1)
    assert (slow.ttft_p90_seconds, slow.e2e_p90_seconds) == (0.5, 2.0)


def test_only_a_429_of_a_low_priority_is_no_failure() -> None:
    refused, failed = replace(GOOD, failure="status 429"), replace(GOOD, failure="status 500")
    figures = refused_of([GOOD, refused], [GOOD, refused, failed])
    assert (figures.usual, figures.usual_failures) == (2, 1)
    assert (figures.low, figures.low_refused, figures.low_failures) == (3, 1, 1)


def test_a_slow_engine_is_compared_to_least_request() -> None:
    alone = slow_of("least_request", [GOOD], [{"requests": 1}, {"requests": 9}])
    glued = replace(alone, slow_share=0.3, e2e_p90_seconds=9.0)
    full = refused_of([GOOD], [GOOD])
    met = {entry.name: entry.met for entry in targets_of(alone, glued, full, [30, 30, 90], [40, 40, 42])}
    assert not met["slow_share_over_least_request"]
    assert not met["slow_e2e_p90_over_least_request"]
    assert met["slow_ttft_p90_over_least_request"]
    assert not met["admission_low_refused"], "then it was not full"
    assert not met["alike_busiest_over_mean_at_little_load"]
    assert met["alike_busiest_over_mean_at_half_load"]


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SystemExit):
        main(["--seconds", "x"])
