"""One answer over HTTP/1.1 from its bytes: however they come, and whatever they are."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.abuse.pages import KINDS
from xds_server.http1.answer import MAX_FRAMING_BYTES, MAX_HEAD_BYTES, Answer, AnswerError, Budget

if TYPE_CHECKING:
    from collections.abc import Iterable

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = {
    "length": (OK + b"content-length: 5\r\n\r\nhello", b"hello", True),
    "bare newlines": (b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", b"hello", True),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", b"", True),
    "chunks": (CHUNKED + b"2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nx: y\r\n\r\n", b"hello", True),
    "interim": (b"HTTP/1.1 103 Early\r\na: b\r\n\r\n" + OK + b"content-length: 1\r\n\r\nx", b"x", True),
    "close": (OK + b"connection: close\r\ncontent-length: 1\r\n\r\nx", b"x", False),
    "old": (b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", b"x", False),
    "old, kept": (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nx", b"x", True),
    "more than asked for": (OK + b"content-length: 1\r\n\r\nxHTTP/1.1 200", b"x", False),
    "length twice": (OK + b"content-length: 1\r\ncontent-length: 1\r\n\r\nx", b"x", True),
    "both": (OK + b"content-length: 9\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"", False),
    "gzip": (
        OK + b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(gzip.compress(b"hello")), gzip.compress(b"hello")),
        b"hello",
        True,
    ),
    "deflate": (
        OK + b"content-encoding: deflate\r\ncontent-length: 13\r\n\r\n" + zlib.compress(b"hello"),
        b"hello",
        True,
    ),
    "lines": (
        CHUNKED
        + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (b"a 1\n", b"b 2\n"))
        + b"0\r\n\r\n",
        b"a 1\nb 2\n",
        True,
    ),
    "identity": (OK + b"transfer-encoding: identity\r\ncontent-length: 5\r\n\r\nhello", b"hello", True),
    "gzip of two files": (
        OK
        + b"content-encoding: gzip\r\ncontent-length: 45\r\n\r\n"
        + gzip.compress(b"hel")
        + gzip.compress(b"lo"),
        b"hello",
        True,
    ),
    "gzip, filled up": (
        OK + b"content-encoding: gzip\r\ncontent-length: 30\r\n\r\n" + gzip.compress(b"hello") + bytes(5),
        b"hello",
        True,
    ),
    "no page": (b"HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\n", b"", False),
    "no page, empty": (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", b"", True),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
}


def read(parts: Iterable[bytes], most_bytes: int = 1 << 20) -> tuple[Answer, int]:
    """Return the answer, and how many bytes it took before it was whole."""
    answer, took = Answer(most_bytes, Budget(1 << 30)), 0
    for part in parts:
        answer.take(part)
        took += len(part)
        if answer.done:
            break
    return answer, took


@pytest.mark.parametrize("name", WHOLE)
@given(cuts=st.lists(st.integers(0, 120), max_size=5))
def test_an_answer_is_the_same_however_its_bytes_come(name: str, cuts: list[int]) -> None:
    data, body, keeps = WHOLE[name]
    if name == "more than asked for":
        cuts = []
    at = [0, *sorted(cuts), len(data)]
    answer, _ = read(part for begin, end in pairwise(at) if (part := data[begin:end]))
    assert answer.done
    assert answer.decoded() == body
    assert answer.keeps is keeps


def test_without_a_length_the_body_ends_with_the_connection() -> None:
    answer, _ = read([OK + b"\r\nhel", b"lo"])
    assert not answer.done
    answer.end()
    assert answer.decoded() == b"hello"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
        OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nx",
        OK + b"content-length: -1\r\n\r\n",
        OK + b"content-length: 1_0\r\n\r\n",
        OK + b"transfer-encoding: gzip, chunked\r\n\r\n",
        OK + b"content-encoding: br\r\ncontent-length: 1\r\n\r\nx",
        CHUNKED + b"g\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"1\r\nxy\r\n",
        CHUNKED + b"fffffffff\r\n",
        OK + b"content-length: 5\r\n\r\nhell",
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(AnswerError) as caught:
        read([data])[0].end()
    assert caught.value.kind == "protocol"


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("interim", MAX_HEAD_BYTES),
        ("endless_head", MAX_HEAD_BYTES),
        ("long_line", MAX_HEAD_BYTES),
        ("endless_body", 100_000),
        ("tiny_chunks", MAX_FRAMING_BYTES * 2),
        ("chunk_extensions", MAX_FRAMING_BYTES * 2),
        ("endless_trailer", MAX_FRAMING_BYTES * 2),
        ("announced", MAX_HEAD_BYTES),
    ],
)
def test_flood_ends_after_few_bytes(kind: str, most: int) -> None:
    flood, parts = b"", iter(KINDS[kind]())
    while len(flood) < 300_000:
        flood += next(parts)
    for size in (1000, len(flood)):
        answer, took = Answer(100_000, Budget(1 << 30)), 0
        with pytest.raises(AnswerError):
            for begin in range(0, len(flood), size):
                answer.take(flood[begin : begin + size])
                took = begin + size
        assert took <= most + size


@pytest.mark.parametrize("size", [24, 60, 100])
@pytest.mark.parametrize("cut", [1000, 1 << 20])
def test_a_chunk_a_line_is_a_page(size: int, cut: int) -> None:
    """Some servers write each line by itself: the framing grows with the page."""
    line = b"x" * (size - 1) + b"\n"
    data = CHUNKED + (b"%x\r\n%b\r\n" % (size, line)) * (900_000 // size) + b"0\r\n\r\n"
    answer, _ = read(data[at : at + cut] for at in range(0, len(data), cut))
    assert answer.done
    assert answer.decoded() == line * (900_000 // size)


def test_heads_of_17_000_bytes_are_read() -> None:
    head = b"x-h: " + b"v" * 9000 + b"\r\nset-cookie: a=" + b"v" * 8000
    answer, _ = read([OK + head + b"\r\ncontent-length: 1\r\n\r\nx"])
    assert answer.decoded() == b"x"


def test_a_bomb_of_many_members_ends() -> None:
    """What follows each is copied, so that their number has a limit."""
    for body, kind in (
        (gzip.compress(b"") * 1000, "protocol"),
        (gzip.compress(bytes(300_000)) * 4, "too_large"),
    ):
        answer, _ = read([OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body), body])
        with pytest.raises(AnswerError) as caught:
            answer.decoded()
        assert caught.value.kind == kind


def test_a_body_that_unfolds_beyond_the_limit_is_too_large() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    answer, _ = read([OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(bomb), bomb])
    with pytest.raises(AnswerError) as caught:
        answer.decoded()
    assert caught.value.kind == "too_large"


@pytest.mark.parametrize(
    "body", [gzip.compress(b"x" * 1000)[:-9], b"plain", b""], ids=["cut", "plain", "empty"]
)
def test_a_body_of_another_coding_is_none(body: bytes) -> None:
    answer, _ = read([OK + b"content-encoding: gzip\r\nconnection: close\r\n\r\n" + body])
    answer.end()
    with pytest.raises(AnswerError) as caught:
        answer.decoded()
    assert caught.value.kind == "protocol"


def test_all_bodies_together_have_a_limit() -> None:
    budget = Budget(1000)
    one, other = Answer(1000, budget), Answer(1000, budget)
    one.take(OK + b"\r\n" + bytes(600))
    with pytest.raises(AnswerError, match="at once"):
        other.take(OK + b"\r\n" + bytes(600))
    one.free()
    other.free()
    third = Answer(1000, budget)
    third.take(OK + b"\r\n" + bytes(1000))
