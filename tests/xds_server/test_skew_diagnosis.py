"""The decision table: each rule names its cause, needs each of its tests, and stands in the document."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings, SkewSettings
from testing.signals import Load, Signal, table_of
from xds_server.skew.detectors import DETECTORS
from xds_server.skew.diagnosis import Diagnosis, diagnose
from xds_server.skew.facts import COMPARED, STATES, over_peers
from xds_server.skew.layout import Layout
from xds_server.skew.rules import ALWAYS_SHOWN, RULES, Rule
from xds_server.skew.sample import DERIVED, SIGNALS
from xds_server.skew.watch import SkewWatch

if TYPE_CHECKING:
    from collections.abc import Mapping

FACTS = (*SIGNALS, *DERIVED, *COMPARED, *DETECTORS)
ONE = Layout.of(Membership((Pool("chat", (Endpoint("10.0.0.1:80", "chat"),)),)))
NUMBERS = range(len(RULES))
GOOD = {
    "reachable": 1.0,
    "ready": 1.0,
    "stalled": 0.0,
    "gpu_health_score": 1.0,
    "error_ratio": 0.0,
    "gpu_throttled_ratio": 0.0,
    "work": 20.0,
    "running": 20.0,
    "queue_depth": 0.0,
    "batch_fill_ratio": 0.5,
    "memory_used_ratio": 0.5,
    "preemptions_per_second": 0.0,
    "prefix_hit_ratio": 0.6,
    "prefix_hit_fall": 0.0,
    "kv_fragmentation_ratio": 0.05,
    "kv_fragmentation_estimate": 0.05,
    "work_over_peers": 1.0,
    "throughput_over_peers": 1.0,
    "token_rate_over_peers": 1.0,
    "queue_over_running": 0.0,
    "prefill_per_generated": 3.0,
    "batch_collapse": 0.0,
    "context_burst": 0.0,
    "long_tail": 0.0,
}
"""Of an engine with something to do and nothing wrong, all known."""


def named(facts: Mapping[str, float]) -> Diagnosis:
    columns = {name: np.full(ONE.columns, facts.get(name, float("nan"))) for name in FACTS}
    return diagnose(ONE, columns)[0]


def meeting(rule: Rule) -> dict[str, float]:
    """The good engine's facts, changed just so much that the rule's tests hold."""
    step = {"<": -1e-6, "<=": 0.0, ">": 1e-6, ">=": 0.0}
    changed = dict(GOOD)
    for test in rule.tests:
        if not test.holds({name: np.array([value]) for name, value in changed.items()})[0]:
            changed[test.fact] = test.bound + step[test.is_]
    return changed


CASES = {number: meeting(RULES[number]) for number in NUMBERS if RULES[number].tests}
for number, rule in enumerate(RULES):
    if rule.advice == "The batch is full and requests wait: add endpoints.":
        del CASES[number]["prefill_per_generated"]  # Where it is known, this is prefill or decode.


@pytest.mark.parametrize("number", CASES)
def test_each_rule_names_its_cause_with_its_evidence(number: int) -> None:
    rule, diagnosis = RULES[number], named(CASES[number])
    assert (diagnosis.cause, diagnosis.advice, diagnosis.healthy) == (rule.cause, rule.advice, rule.healthy)
    assert {test.fact for test in rule.tests} <= diagnosis.evidence.keys()
    assert set(diagnosis.evidence) == {name for name in rule.evidence if name in CASES[number]}


@pytest.mark.parametrize(
    ("number", "fact"),
    [
        (number, test.fact)
        for number in CASES
        for test in RULES[number].tests
        if RULES[number].cause != "healthy"
    ],
)
def test_each_test_of_a_rule_is_needed(number: int, fact: str) -> None:
    lacking = {name: value for name, value in CASES[number].items() if name != fact}
    assert named(lacking).advice != RULES[number].advice
    assert named({**CASES[number], fact: GOOD[fact]}).advice != RULES[number].advice or _good_meets(
        number, fact
    )


def _good_meets(number: int, fact: str) -> bool:
    return any(
        test.fact == fact and test.holds({fact: np.array([GOOD[fact]])})[0] for test in RULES[number].tests
    )


def test_without_facts_the_cause_is_unknown() -> None:
    diagnosis = named({})
    assert (diagnosis.cause, diagnosis.healthy, dict(diagnosis.evidence)) == ("unknown", False, {})
    assert {"running", "queue_depth", "memory_used_ratio"} <= set(diagnosis.missing)


@pytest.mark.parametrize("fact", ["running", "queue_depth", "memory_used_ratio"])
def test_missing_facts_are_not_healthy(fact: str) -> None:
    diagnosis = named({name: value for name, value in GOOD.items() if name != fact})
    assert diagnosis.cause == "unknown"
    assert fact in diagnosis.missing


def test_decided_rule_misses_no_fact() -> None:
    """Memory is low, so nobody needs to know of preemptions; throttling decides by itself and is not told."""
    lacking = {"preemptions_per_second", "gpu_throttled_ratio"}
    diagnosis = named({name: value for name, value in GOOD.items() if name not in lacking})
    assert (diagnosis.cause, diagnosis.missing) == ("healthy", ("gpu_throttled_ratio",))


def test_what_is_broken_goes_before_what_is_full() -> None:
    full = {"queue_depth": 50.0, "batch_fill_ratio": 1.0, "memory_used_ratio": 0.97}
    assert named({**GOOD, **full, "stalled": 1.0}).cause == "stalled"
    assert (
        named({**GOOD, **full, "prefix_hit_ratio": 0.1, "preemptions_per_second": 2.0}).cause
        == "cache_thrash"
    )


@given(st.dictionaries(st.sampled_from(FACTS), st.floats(0, 1e9)))
def test_any_facts_have_one_cause_whose_advice_is_told(facts: dict[str, float]) -> None:
    diagnosis = named(facts)
    assert diagnosis.advice in {rule.advice for rule in RULES if rule.cause == diagnosis.cause}
    json.dumps(diagnosis.as_json(), allow_nan=False)


def test_tests_and_evidence_name_facts_that_are_there() -> None:
    used = {name for rule in RULES for name in rule.evidence}
    assert used <= set(FACTS)
    assert set(GOOD) >= {test.fact for rule in RULES for test in rule.tests}
    assert set(FACTS) >= STATES


def test_advice_names_one_rule_each() -> None:
    advice = [rule.advice for rule in RULES]
    assert len(set(advice)) == len(advice)


def test_the_document_holds_the_same_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "skew.md").read_text()
    section = text[text.index("### The decision table") :]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", section, flags=re.MULTILINE)
    assert rows == [
        (rule.cause, f"`{rule.condition}`" if rule.tests else rule.condition, rule.advice) for rule in RULES
    ]
    for name in (*ALWAYS_SHOWN, *DERIVED, *COMPARED):
        assert f"`{name}`" in text


def test_peers_are_the_others_of_the_pool_that_are_known() -> None:
    pools = (
        Pool("a", tuple(Endpoint(f"10.0.0.{n}:80", "a") for n in range(4))),
        Pool("b", (Endpoint("10.0.1.0:80", "b"),)),
        Pool("c", tuple(Endpoint(f"10.0.2.{n}:80", "c") for n in range(2))),
    )
    layout = Layout.of(Membership(pools))
    nan = float("nan")
    work = np.array([30.0, 10.0, 5.0, nan, 7.0, 9.0, nan, 0, 0, 0])
    ratios = over_peers(work, layout, least=1.0)
    assert ratios == pytest.approx([4.0, 10 / 17.5, 5 / 20, nan, 1.0, nan, nan, 1.0, 1.0, 1.0], nan_ok=True)


def watch(
    periods: int, *endpoints: Mapping[str, float], later: tuple[Mapping[str, float], ...] = ()
) -> SkewWatch:
    """A pool with an endpoint each, with the same signals for some periods, then `later` for three."""
    pool = Pool("chat", tuple(Endpoint(f"10.0.0.{n}:80", "chat") for n in range(len(endpoints))))
    made = SkewWatch(SkewSettings(), SignalSettings(), CollectorRegistry())
    for period in range(periods + (3 if later else 0)):
        now = 100.0 + 5 * period
        chosen = later if period >= periods else endpoints
        loads = {
            endpoint.address: Load(**{name: Signal(value, now, "test") for name, value in one.items()})
            for endpoint, one in zip(pool.endpoints, chosen, strict=True)
        }
        members = Membership((pool,))
        made.observe(members, table_of(members.addresses, loads), now)
    return made


BUSY = {
    "running": 20.0,
    "queue_depth": 0.0,
    "memory_used_ratio": 0.5,
    "prefix_hit_ratio": 0.7,
    "generation_tokens_per_second": 1000.0,
}


@pytest.mark.parametrize(
    ("later", "cause"),
    [
        ({}, "healthy"),
        ({"running": 60.0, "queue_depth": 30.0}, "hot_spot"),
        ({"generation_tokens_per_second": 100.0}, "slow"),
        ({"prefix_hit_ratio": 0.1}, "affinity_lost"),
        ({"running": 0.0}, "idle"),
        ({"memory_used_ratio": 0.95, "prefix_hit_ratio": 0.1, "preemptions_per_second": 1.0}, "cache_thrash"),
        ({"memory_used_ratio": 0.9, "kv_fragmentation_ratio": 0.4}, "fragmented"),
    ],
)
def test_signals_become_causes_by_what_was_before_and_by_peers(
    later: Mapping[str, float], cause: str
) -> None:
    made = watch(12, BUSY, BUSY, BUSY, later=({**BUSY, **later}, BUSY, BUSY))
    causes = [entry.cause for entry in made.diagnoses()]
    assert causes[:3] == [cause, "healthy", "healthy"]
    pool = made.diagnosis()["pools"][0]
    assert pool["pool"] == "chat"
    assert sum(pool["endpoints"].values()) == 3


def test_a_peer_whose_small_batch_is_fast_makes_nobody_slow() -> None:
    """Four requests get 150 tokens a second each, where twenty get 50 each."""
    small = {**BUSY, "running": 4.0, "generation_tokens_per_second": 600.0}
    assert [entry.cause for entry in watch(12, BUSY, BUSY, small).diagnoses()] == ["healthy"] * 4


def test_an_estimate_is_marked_as_one() -> None:
    figures = {**BUSY, "queue_depth": 2.0, "memory_used_ratio": 0.9, "kv_capacity_tokens": 100_000.0}
    figures |= {"prompt_tokens_mean": 1000.0, "generation_tokens_mean": 200.0}
    (endpoint,) = watch(3, figures).diagnosis()["endpoints"]
    assert (endpoint["cause"], endpoint["estimates"]) == ("fragmented", ["kv_fragmentation_estimate"])
    assert endpoint["evidence"]["kv_fragmentation_estimate"] == pytest.approx(1 - 22_000 / 90_000, rel=1e-4)


def test_what_is_unknown_now_is_not_diagnosed_by_what_it_was() -> None:
    made = watch(12, BUSY, later=({},))
    assert made.diagnoses()[0].cause == "unknown"
