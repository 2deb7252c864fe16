"""Formats of traces, each with a few lines as they are in the wild."""

from __future__ import annotations

import gzip
import json
import lzma
from typing import TYPE_CHECKING, Any

import pytest

from warmroute.replay.trace import SAMPLE, Trace, TraceError, TraceRequest, block_texts, read_trace

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


RECORDED = (
    '{"warmroute_requests": 1, "block_bytes": 2048}\n'
    '{"at": 1000.5, "prompt_bytes": 6000, "answer_bytes": 2500, "first_byte": 0.2, "seconds": 2.0,'
    ' "status": 200, "session": 7, "blocks": [5, 6]}\n'
    '{"at": 1001.0, "prompt_bytes": 6000, "answer_bytes": 2500, "first_byte": null, "seconds": null,'
    ' "status": 0, "session": 7, "blocks": [5, 6, 9, 9]}\n'
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


def test_recorded_session_waits_only_for_earlier_answers(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text(RECORDED)
    first, second = read_trace(tmp_path / "chat.jsonl").requests
    assert first == TraceRequest(0.0, 1500, 10, (5, 6), session="7")
    assert second.after == -1, "it began before the answer ended"
    assert second.at == 0.5
    assert second.blocks == (5, 6), "never more than the prompt fills"
    assert second.output_tokens == (2500 - 350) // 4


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".xz", lzma.open)])
def test_packed_trace_is_unpacked(tmp_path: Path, suffix: str, opener: Any) -> None:
    path = tmp_path / f"trace.jsonl{suffix}"
    with opener(path, "wt") as file:
        file.write(MOONCAKE)
    trace = read_trace(path)
    assert (trace.name, len(trace.requests)) == ("trace", 2)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TraceError, match=r"trace\.jsonl"):
        read_trace(path)
    path.write_bytes(b"plain")
    with pytest.raises(TraceError, match=r"trace\.jsonl"):
        read_trace(path)


def test_sample_is_a_part_of_a_real_trace() -> None:
    trace = read_trace(SAMPLE)
    assert (trace.name, len(trace.requests)) == ("mooncake_conversation", 1500)
    assert 0.2 < trace.ideal_hit_ratio < 0.4


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
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46," + "1" * 200_000 + ",1\n", "field"),
        (RECORDED.replace(": 1,", ": 2,", 1), ":1: .*warmroute_requests"),
        (RECORDED.replace("2048", "1"), ":1: .*block_bytes"),
        (RECORDED.replace("1001.0", "-1"), ":3: .*at"),
        (RECORDED.replace("[5, 6]", '["a"]'), ":2: .*blocks"),
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


def test_broken_pack_says_why(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl.gz").write_bytes(gzip.compress(b"")[:10] + b"\xff" * 50)
    with pytest.raises(TraceError, match="cannot be unpacked"):
        read_trace(tmp_path / "trace.jsonl.gz", "mooncake")


@pytest.mark.parametrize("form", ["mooncake", "azure", "recorded"])
def test_line_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr("warmroute.replay.trace.MOST_LINE_CHARS", 1 << 20)
    head = RECORDED.partition("\n")[0] + "\n" if form == "recorded" else ""
    (tmp_path / "trace.gz").write_bytes(gzip.compress((head + " " * (3 << 20)).encode()))
    with pytest.raises(TraceError, match="a line of 1 MiB or more"):
        read_trace(tmp_path / "trace.gz", form)


def test_recorded_body_may_be_longer_than_any_prompt(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(RECORDED.replace("6000", "60000000000", 1))
    assert [request.prompt_tokens for request in read_trace(tmp_path / "trace").requests] == [
        10_000_000,
        1500,
    ]
