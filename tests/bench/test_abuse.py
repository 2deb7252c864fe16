"""The bench of attacks must see what an attack costs, and must not take the host's noise for it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bench.abuse import control
from bench.abuse.__main__ import main
from bench.abuse.attacks import ATTACKS
from bench.abuse.figures import (
    MEBI,
    WELL_SECONDS,
    Cost,
    Moments,
    Round,
    Samples,
    Stall,
    heading,
    quiet_level,
    round_of,
    row,
    stalls,
)
from warmroute.demo.stats import Outcome

if TYPE_CHECKING:
    from bench.abuse.figures import Answer

AT = Moments(quiet=0.0, attack=4.0, over=8.0, end=20.0)
QUIET = 140 * MEBI


def answers(*late: Answer) -> list[Answer]:
    """Return an answer every tenth of a second, each after 1 ms, but for those that are late."""
    blocked = [(began, began + took) for began, took, _ in late]
    usual = [
        (number / 10, 0.001, 0.0005)
        for number in range(200)
        if not any(began <= number / 10 < ended for began, ended in blocked)
    ]
    return sorted([*usual, *late])


def samples(
    *late: Answer,
    bare: tuple[Answer, ...] = (),
    admin: tuple[Answer, ...] = (),
    memory: dict[float, int] | None = None,
) -> Samples:
    """Return samples of 20 s; `memory` is MiB above the quiet level from a moment on."""
    resident, above = [], 0
    changes = dict(memory or {})
    for number in range(200):
        above = changes.pop(number / 10, above)
        resident.append((number / 10, QUIET + above * MEBI))
    return Samples(answers(*late), answers(*bare), answers(*admin), resident)


def outcomes(**changed: object) -> list[Outcome]:
    """Return ten well requests of the attack's time, and one that is changed."""
    well = Outcome(at_seconds=5.0, ended_seconds=5.1, status=200, picked="a:1", served="a:1")
    return [*([well] * 10), replace(well, **changed)]  # type: ignore[arg-type]


def longest(taken: Samples, since: float = 4.0, until: float = 8.0) -> Stall:
    return max(stalls(taken, taken.serve, since, until), key=lambda stall: stall.own_seconds)


def test_stall_excludes_delays_by_the_host() -> None:
    host = samples((5.0, 0.5, 0.45), bare=((5.1, 0.4, 0.0),))
    assert longest(host).own_seconds == pytest.approx(0.1)
    starved = samples((5.0, 0.5, 0.02))
    assert longest(starved).own_seconds == pytest.approx(0.02)
    ours = samples((5.0, 0.5, 0.49))
    assert (longest(ours).answer_seconds, longest(ours).own_seconds) == (0.5, 0.49)
    assert longest(ours, 0.0, 4.0).own_seconds == 0.0


def test_late_admin_page_counts() -> None:
    late = round_of(samples(admin=((7.9, 2.5, 2.4),)), outcomes(), 0.0, AT, 1)
    assert (late.own_seconds, late.admin_seconds) == (0.0, pytest.approx(2.4))
    assert late.well_again_seconds == pytest.approx(2.4)


@pytest.mark.parametrize("kind", ["empty_entries", "gpus"])
def test_message_is_made_faster_than_it_is_sent(kind: str) -> None:
    """One that takes longer to make than the attack lasts is never sent."""

    def cost(kind: str) -> float:
        began = time.process_time()
        messages = control.KINDS[kind][1]([], 2_000_000)
        assert sum(len(message) for message, _ in zip(messages, range(2), strict=False)) >= 1_900_000
        return time.process_time() - began

    assert cost(kind) < cost("strangers")


def test_an_answer_that_never_came_counts() -> None:
    """The prober gives it as one that has taken until now."""
    made = round_of(samples((5.0, 14.9, 14.0)), outcomes(), 0.0, AT, 1)
    assert made.own_seconds == pytest.approx(14.0)
    assert made.well_again_seconds is None


def test_a_round_counts_memory_failures_and_picks() -> None:
    calm = round_of(samples(), outcomes(), 0.0, AT, 7)
    assert (calm.memory_bytes, calm.requests, calm.failed, calm.without_pick) == (0, 11, 0, 0)
    assert (calm.well_again_seconds, calm.sent_bytes) == (0.0, 7)
    full = round_of(samples(memory={5.0: 300, 9.5: 17, 11.0: 16}), outcomes(), 0.0, AT, 1)
    assert full.memory_bytes == 300 * MEBI
    assert full.well_again_seconds == pytest.approx(2.9)
    broken = round_of(samples(), outcomes(failure="timeout", ended_seconds=13.0), 0.0, AT, 1)
    assert (broken.failed, broken.reasons, broken.well_again_seconds) == (1, {"timeout": 1}, 5.0)
    blind = round_of(samples(), outcomes(picked=None), 0.0, AT, 1)
    assert blind.without_pick == 1


def test_memory_that_stays_and_a_process_that_ends_are_not_well() -> None:
    assert round_of(samples(memory={5.0: 30}), outcomes(), 0.0, AT, 1).well_again_seconds is None
    ended = samples()
    ended.memory = [entry for entry in ended.memory if entry[0] < 6.0]
    assert round_of(ended, outcomes(), 0.0, AT, 1).well_again_seconds is None


GOOD = Round(
    quiet_own_seconds=0.01,
    quiet_answer_seconds=0.02,
    own_seconds=0.05,
    quiet_admin_seconds=0.01,
    admin_seconds=0.06,
    answer_seconds=0.06,
    bare_seconds=0.01,
    cpu_seconds=0.05,
    memory_bytes=10 * MEBI,
    requests=100,
    failed=0,
    reasons={},
    without_pick=1,
    well_again_seconds=WELL_SECONDS,
    sent_bytes=1,
)


def missed(*rounds: Round, sends: bool = True) -> list[str]:
    cost = Cost("x", sends, rounds)
    return [entry.name for entry in cost.targets(quiet_level([cost])) if not entry.met]


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"own_seconds": 0.07}, "x_stall_over_quiet_seconds"),
        ({"admin_seconds": 0.07}, "x_admin_stall_over_quiet_seconds"),
        ({"memory_bytes": 65 * MEBI}, "x_memory_over_quiet_mib"),
        ({"failed": 1}, "x_failed"),
        ({"without_pick": 2}, "x_without_pick_ratio"),
        ({"well_again_seconds": None}, "x_well_again_seconds"),
        ({"sent_bytes": 0}, "x_sent_bytes"),
    ],
)
def test_each_target_can_be_missed(changed: dict[str, float | None], name: str) -> None:
    assert missed(GOOD) == []
    assert missed(replace(GOOD, **changed)) == [name]  # type: ignore[arg-type]


def test_one_noisy_round_is_forgiven_but_no_failure_or_memory() -> None:
    assert missed(replace(GOOD, own_seconds=0.5, without_pick=20), GOOD) == []
    # A noisy quiet time hides no stall: the smallest counts.
    assert missed(replace(GOOD, own_seconds=0.5, quiet_own_seconds=0.5), replace(GOOD, own_seconds=0.2)) == [
        "x_stall_over_quiet_seconds"
    ]
    assert missed(GOOD, replace(GOOD, failed=1, memory_bytes=70 * MEBI)) == [
        "x_memory_over_quiet_mib",
        "x_failed",
    ]


def test_attacks_that_are_silent_need_not_send() -> None:
    assert missed(replace(GOOD, sent_bytes=0), sends=False) == []
    assert not ATTACKS["admin.silent"].sends


def test_the_table_has_a_column_for_each_heading() -> None:
    line = row(Cost("kv_events.endless", True, [replace(GOOD, well_again_seconds=None)]))
    assert len(line) == len(heading())


def test_unknown_attacks_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "admin.*", "--only", "nobody"])
    assert "no such attack: nobody; there are" in capsys.readouterr().err
    assert main(["--list", "--only", "admin.*"]) == 0
    assert set(capsys.readouterr().out.split()) == {name for name in ATTACKS if name.startswith("admin.")}


@pytest.mark.slow  # Twenty seconds of real moments; the parts that judge them have the tests above.
def test_an_attack_is_measured_beside_honest_requests(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--only", "admin.half_head", "--seconds", "1", "--rounds", "1", "--json"])
    result = json.loads(capsys.readouterr().out)
    (attack,) = result["attacks"]
    (only,) = attack["rounds"]
    assert only["sent_bytes"] > 0
    assert only["requests"] > 0
    assert only["failed"] == 0
    assert only["answer_seconds"] >= only["own_seconds"] > 0
    assert only["admin_seconds"] > 0
    assert {entry["name"].removeprefix("admin.half_head_") for entry in result["wanted"]} == {
        "stall_over_quiet_seconds",
        "admin_stall_over_quiet_seconds",
        "memory_over_quiet_mib",
        "failed",
        "without_pick_ratio",
        "well_again_seconds",
        "sent_bytes",
    }
