"""Formats of traces, each with a few lines as they are in the wild."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from warmroute.replay.trace import Trace, TraceError, TraceRequest, block_texts, read_trace

if TYPE_CHECKING:
    from pathlib import Path

MOONCAKE = (
    '{"timestamp": 0, "input_length": 1300, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 3000, "input_length": 512, "output_length": 0, "hash_ids": [0]}\n'
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,1100,109\n"
)


def session_lines() -> str:
    first = {"timestamp": 1_000_000, "input": "a" * 130, "output": "b" * 40, "session_id": "s"}
    second = {**first, "timestamp": 4_000_000, "input": "a" * 130 + "c" * 64}
    other = {**first, "timestamp": 2_000_000, "session_id": "t"}
    return "".join(json.dumps(entry) + "\n" for entry in (first, second, other))


def test_mooncake_keeps_full_blocks_only(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text(MOONCAKE)
    trace = read_trace(tmp_path / "trace.jsonl")
    assert trace.coarse
    assert trace.block_tokens == 512
    assert trace.requests[0] == TraceRequest(0.0, 1300, 5, (0, 1))
    assert trace.requests[1] == TraceRequest(3.0, 512, 1, (0,)), "an answer has a token at least"


def test_azure_shares_no_blocks(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE)
    trace = read_trace(tmp_path / "trace.csv")
    assert [request.prompt_tokens for request in trace.requests] == [374, 1100]
    assert trace.requests[1].at == pytest.approx(4.314579)
    assert not set(trace.requests[0].blocks) & set(trace.requests[1].blocks)
    assert len(trace.requests[1].blocks) == 2


def test_sessions_wait_for_the_answer_before(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(session_lines())
    trace = read_trace(tmp_path)
    first, other, second = trace.requests
    assert (first.session, other.session, second.session) == ("s", "t", "s")
    assert (first.after, other.after, second.after) == (-1, -1, 0)
    assert second.gap == pytest.approx(3.0 - 10 * 0.02), "the model's own time is not the client's"
    assert second.blocks[: len(first.blocks)] == first.blocks
    assert len(second.blocks) == 3


def test_at_rate_keeps_what_waits_for_what(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(session_lines())
    trace = read_trace(tmp_path).at_rate(2.0, seed=1, jitter_seconds=3.0)
    assert [request.at for request in trace.requests] == sorted(request.at for request in trace.requests)
    waiting = next(request for request in trace.requests if request.after >= 0)
    assert trace.requests[waiting.after].session == waiting.session


def test_copies_share_nothing(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(session_lines())
    trace = read_trace(tmp_path)
    copies = trace.copies(3, seed=1)
    assert len(copies.requests) == 3 * len(trace.requests)
    by_copy: dict[str, set[int]] = {}
    for request in copies.requests:
        by_copy.setdefault(request.session.rpartition("-")[2], set()).update(request.blocks)
        if request.after >= 0:
            assert copies.requests[request.after].session == request.session
    first, second, third = by_copy.values()
    assert len(first | second | third) == len(first) + len(second) + len(third)
    assert len({request.text for request in copies.requests if request.after >= 0}) == 3


def test_text_is_the_same_for_the_same_block() -> None:
    texts: dict[int, str] = {}
    one, other, again = block_texts((7, 8, 7), 16, texts)
    assert one == again != other
    assert len(one) == 16 * 4
    assert list(block_texts((7,), 16, {})) == [one]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the first line"),
        ('{"a": 1}\n', "the first line"),
        ('{"timestamp": 0, "input_length": 4, "hash_ids": [0]}\n', ":1: .*output_length"),
        (MOONCAKE + "\n" + '{"timestamp": NaN, "input_length": 4, "hash_ids": [0]}\n', ":4: "),
        (MOONCAKE.replace("1300", "-1"), ":1: .*input_length"),
        (MOONCAKE.replace("1300", "1e30"), ":1: .*input_length"),
        (MOONCAKE.replace("[0, 1, 2]", '["a"]'), ":1: .*hash_ids"),
        (MOONCAKE.replace("[0, 1, 2]", "[0]"), ":1: 1 hash_ids for 1300 tokens; allowed: 2"),
        (MOONCAKE.replace('0, "input', '1e30, "input'), ":1: .*timestamp"),
        ('{"hash_ids": ' + "[" * 5000, ":1: "),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", ":2: needs TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,-1\n", ":2: 1 and -1 tokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46," + "9" * 30 + ",1\n", ":2: "),
        ('{"timestamp": 1, "input": ["a"], "output": ""}\n', ":1: .*input"),
        ("\udc8b{", "no UTF-8"),
    ],
)
def test_unreadable_trace_says_why(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "trace").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(TraceError, match=says):
        read_trace(tmp_path / "trace")


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.jsonl: no such file"):
        read_trace(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match=str(tmp_path)):
        read_trace(tmp_path)


def test_blank_lines_and_a_byte_order_mark_pass(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("\ufeff" + MOONCAKE + "\n\n")
    assert len(read_trace(tmp_path / "trace").requests) == 2


def test_copies_of_one_moment() -> None:
    trace = Trace("x", 16, (TraceRequest(0.0, 10, 1, ()),))
    assert len(trace.copies(3, seed=1).requests) == 3
    assert Trace("x", 16, ()).seconds == 0.0


def test_rate_shortens_the_clients_own_time() -> None:
    requests = TraceRequest(0.0, 10, 1, ()), TraceRequest(5.0, 10, 1, (), after=0, gap=4.0)
    assert Trace("x", 16, requests).at_rate(4.0, seed=1).requests[1].gap == 1.0
