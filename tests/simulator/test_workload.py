"""The workload must be the same bytes for the same seed, and look like the chat it claims to be."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from itertools import pairwise

import pytest

from warmroute.simulator.workload import BYTES_PER_TOKEN, Span, WorkloadSettings, workload

SETTINGS = WorkloadSettings(
    seed=3,
    duration_seconds=30,
    rate_per_second=20,
    tenants=5,
    system_prompt_tokens=Span(50, 80),
    user_tokens=Span(5, 9),
    answer_tokens=Span(4, 8),
    max_tokens=Span(8, 16),
)


def test_same_seed_gives_the_same_bytes() -> None:
    first = [(turn.at_seconds, turn.body("m")) for turn in workload(SETTINGS)]
    assert first == [(turn.at_seconds, turn.body("m")) for turn in workload(SETTINGS)]


def test_bytes_do_not_depend_on_the_process() -> None:
    """A digest of the bytes is pinned: hash randomisation or a library must not change the workload."""
    digest = hashlib.sha256()
    for turn in workload(SETTINGS):
        digest.update(turn.body("m"))
    assert digest.hexdigest()[:16] == "c01f51b8268f1390"


def test_another_seed_gives_another_workload() -> None:
    other = workload(replace(SETTINGS, seed=4))
    assert [turn.body("m") for turn in other] != [turn.body("m") for turn in workload(SETTINGS)]


def test_turns_arrive_in_order_within_the_run_and_at_the_rate() -> None:
    times = [turn.at_seconds for turn in workload(SETTINGS)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < SETTINGS.duration_seconds
    assert len(times) == pytest.approx(600, rel=0.25)


def test_the_rate_is_level_from_the_first_second() -> None:
    """Conversations under way at the start make the first third as busy as the last."""
    turns = workload(replace(SETTINGS, duration_seconds=90))
    early = sum(turn.at_seconds < 30 for turn in turns)
    late = sum(turn.at_seconds >= 60 for turn in turns)
    assert early == pytest.approx(late, rel=0.3)


def test_a_conversation_only_grows() -> None:
    """Each turn's messages begin with all of the turn before: that is what a prefix cache lives on."""
    by_session: dict[str, list[tuple[object, ...]]] = {}
    for turn in workload(SETTINGS):
        by_session.setdefault(turn.session, []).append(turn.messages)
    grown = 0
    for messages in by_session.values():
        for before, after in pairwise(messages):
            assert after[: len(before)] == before
            assert len(after) == len(before) + 2
            grown += 1
    assert grown > 50


def test_tenants_share_one_system_prompt_each() -> None:
    prompts: dict[int, set[str]] = {}
    for turn in workload(SETTINGS):
        prompts.setdefault(turn.tenant, set()).add(turn.messages[0].content)
    assert set(prompts) == set(range(SETTINGS.tenants))
    assert all(len(texts) == 1 for texts in prompts.values())
    texts = [text for texts_of_tenant in prompts.values() for text in texts_of_tenant]
    assert len(set(texts)) == SETTINGS.tenants
    assert all(50 * BYTES_PER_TOKEN <= len(text.encode()) <= 80 * BYTES_PER_TOKEN for text in texts)


def test_skew_makes_the_first_tenants_busier() -> None:
    turns = workload(replace(SETTINGS, tenant_skew=1.5, duration_seconds=120))
    counts = [sum(turn.tenant == tenant for turn in turns) for tenant in range(SETTINGS.tenants)]
    assert counts[0] > 2 * counts[-1]


def test_body_is_a_streaming_chat_request_that_asks_for_usage() -> None:
    turn = workload(SETTINGS)[0]
    body = json.loads(turn.body("smol"))
    assert body["model"] == "smol"
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert SETTINGS.max_tokens.low <= body["max_tokens"] <= SETTINGS.max_tokens.high
    assert body["messages"][0]["role"] == "system"
    assert body["messages"][-1]["role"] == "user"
