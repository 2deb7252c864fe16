"""The demo's requests keep the trace's shared prefixes, at any rate and length of run."""

from __future__ import annotations

import pytest

from warmroute.demo.excerpt import excerpt, turns


def test_requests_come_at_the_rate_until_the_end() -> None:
    trace = excerpt(20.0, 40.0, 1)
    assert len(trace.requests) == pytest.approx(800, rel=0.05)
    assert all(request.at < 40.0 for request in trace.requests)


def test_a_repetition_shares_no_prefix() -> None:
    trace = excerpt(20.0, 36.0, 1)
    first = {block for request in trace.requests if request.at < 17 for block in request.blocks}
    second = {block for request in trace.requests if request.at > 19 for block in request.blocks}
    assert first.isdisjoint(second)


def test_texts_have_the_length_and_share_the_blocks() -> None:
    trace = excerpt(20.0, 5.0, 1)
    made = turns(trace)
    texts = [turn.messages[0].content for turn in made]
    assert [len(text) // 4 for text in texts] == [request.prompt_tokens for request in trace.requests]
    size = trace.block_tokens * 4
    first, second = [text for text in texts if len(text) > 2 * size][:2]
    assert first[:size] == second[:size], "every conversation begins with the same block"
    assert first[-size:] != second[-size:]
