"""Compressed bodies: read as if they were not, bounded in output and work, and never an exception."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from typing import TYPE_CHECKING

import brotli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ext_proc.prompt import encoding
from ext_proc.prompt.decode import Prompt, Unreadable
from ext_proc.prompt.encoding import STEP_BYTES, Decoded, decode
from tests.ext_proc.worlds import read_prompt

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 524_288
MIB = 1 << 20


def decoded(body: bytes, content_encoding: str, limit: int) -> bytes | Unreadable:
    result = decode(body, content_encoding, limit)
    return result if isinstance(result, Unreadable) else result.body


def raw_deflate(data: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(data) + coder.flush()


def gzipped(data: bytes) -> bytes:
    """Compress without the time, so that the same bytes come out whenever it is."""
    return gzip.compress(data, mtime=0)


def quick_brotli(data: bytes) -> bytes:
    """Compress as gateways do on the way; at its best brotli takes a second for a megabyte."""
    return brotli.compress(data, quality=5)


CODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "": bytes,
    "gzip": gzipped,
    "x-gzip": gzipped,
    "GZIP": gzipped,
    "deflate": zlib.compress,
    " deflate ": raw_deflate,
    "br": quick_brotli,
    "zstd": zstd.compress,
    "gzip, br": lambda data: quick_brotli(gzipped(data)),
    "zstd,identity, GZIP ,deflate": lambda data: zlib.compress(gzipped(zstd.compress(data))),
}
BODY = json.dumps(
    {
        "model": "m",
        "messages": [{"role": "user", "content": f"line {number}, and more of it"} for number in range(500)],
    }
).encode()
ENCODED = {name: coder(BODY) for name, coder in CODERS.items()}


def read(body: bytes, coding: str, *, complete: bool = True, limit: int = LIMIT) -> Prompt | Unreadable:
    """Read a body as `ext_proc.director.prompts` does, with time to spare."""
    result = decode(body, coding, limit, complete=complete)
    return result if isinstance(result, Unreadable) else read_prompt(result.body, complete=result.complete)


@pytest.mark.parametrize("coding", CODERS)
def test_every_coding_reads_as_identity(coding: str) -> None:
    assert read(CODERS[coding](BODY), coding) == read_prompt(BODY, complete=True)
    assert decoded(CODERS[coding](BODY), coding, LIMIT) == BODY


@pytest.mark.parametrize("coding", CODERS)
def test_a_body_over_the_limit_is_read_as_its_leading_part(coding: str) -> None:
    expected = read_prompt(BODY[:9000], complete=False)
    assert isinstance(expected, Prompt)
    assert read(CODERS[coding](BODY), coding, limit=9000) == expected


@pytest.mark.parametrize("coding", CODERS)
def test_a_body_of_just_the_limit_is_whole(coding: str) -> None:
    prompt = read(CODERS[coding](BODY), coding, limit=len(BODY))
    assert isinstance(prompt, Prompt)
    assert prompt.complete


@pytest.mark.parametrize("coding", [coding for coding in CODERS if coding not in {"", "identity"}])
def test_truncated_coding_is_broken_but_leading_part_is_read(coding: str) -> None:
    lines = b",".join(b'"%064x"' % (number**40 % 2**256) for number in range(7000))
    body = b'{"model":"m","prompt":[' + lines + b"]}"
    encoded = CODERS[coding](body)
    half = encoded[: len(encoded) // 2]
    assert read(half, coding) is Unreadable.COMPRESSED
    part = read(half, coding, complete=False)
    whole = read(encoded, coding)
    assert isinstance(part, Prompt)
    assert isinstance(whole, Prompt)
    assert whole.text.startswith(part.text)
    # Stacked codings keep a little back at each stage; brotli a whole window.
    assert len(part.text) > 10_000
    assert not part.complete


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (BODY, "snappy"),
        (gzipped(BODY), "gzip, snappy"),
        (gzipped(BODY), "gzip, gzip, gzip, gzip, gzip"),
        (BODY, "gzip"),
        (BODY, "br"),
        (BODY, "zstd"),
        (BODY, "deflate"),
        (gzipped(BODY), "deflate"),
        (gzipped(BODY) + b"junk", "gzip"),
        (zlib.compress(BODY) + b"junk", "deflate"),
        (brotli.compress(BODY) + b"junk", "br"),
        (zstd.compress(BODY) + b"junk", "zstd"),
        (gzipped(BODY)[:-4] + b"\0\0\0\0", "gzip"),
        (gzipped(BODY)[:5], "gzip"),
    ],
)
def test_what_cannot_be_undone_is_told_and_raises_nothing(body: bytes, coding: str) -> None:
    assert read(body, coding) is Unreadable.COMPRESSED


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_an_empty_body_is_no_json_in_any_coding(coding: str) -> None:
    assert read(b"", coding) is Unreadable.NOT_JSON


@pytest.mark.parametrize(("coding", "coder"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
def test_members_that_follow_one_another_are_one_body(coding: str, coder: Callable[[bytes], bytes]) -> None:
    body = b"".join(coder(BODY[at : at + 7000]) for at in range(0, len(BODY), 7000))
    assert read(body, coding) == read_prompt(BODY, complete=True)


def test_a_frame_that_needs_a_large_window_is_refused() -> None:
    """A frame may ask for gigabytes before its first byte."""
    parameter = zstd.CompressionParameter
    options: dict[int, int] = {parameter.window_log: 27, parameter.content_size_flag: 0}
    coder = zstd.ZstdCompressor(options=options)
    assert read(coder.compress(BODY) + coder.flush(), "zstd") is Unreadable.COMPRESSED


def bomb(coding: str) -> bytes:
    head, zeros = b'{"model":"m","prompt":"', b"0" * MIB
    if coding == "br":
        return brotli.compress(head + zeros * 200, quality=1)
    coder = zlib.compressobj(level=1, wbits=31) if coding == "gzip" else zstd.ZstdCompressor()
    return b"".join([coder.compress(head), *(coder.compress(zeros) for _ in range(200)), coder.flush()])


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_of_a_bomb_only_the_leading_part_is_decoded(coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, produced = bomb(coding), []

    class Watched:
        def __init__(self) -> None:
            self._coding = make()

        def step(self, data: bytes) -> bytes:
            assert len(data) <= STEP_BYTES
            produced.append(len(self._coding.step(data)))
            return b"x" * produced[-1]

        @property
        def needs_input(self) -> bool:
            return self._coding.needs_input

        @property
        def ended(self) -> bool:
            return self._coding.ended

    prompt = read(body, coding)
    assert isinstance(prompt, Prompt)
    assert len(prompt.text) == LIMIT - len(b'{"model":"m","prompt":"')
    assert not prompt.complete
    make = encoding._CODINGS[coding]
    monkeypatch.setitem(encoding._CODINGS, coding, Watched)
    assert isinstance(decode(body, coding, LIMIT), Decoded)
    assert sum(produced) < 2 * LIMIT


def test_what_takes_too_long_is_read_as_far_as_it_got() -> None:
    """Time, not bytes, bounds a body of blocks that cost far more than they yield."""
    coder = zlib.compressobj(wbits=31)
    body = coder.compress(BODY) + coder.flush(zlib.Z_FULL_FLUSH)
    steps = 0
    blocks = b"\0\0\0\xff\xff" * 100_000  # stored blocks of nothing

    def late() -> bool:
        nonlocal steps
        steps += 1
        return steps > 10

    result = decode(body + blocks, "gzip", LIMIT, complete=False, late=late)
    assert result == Decoded(BODY, complete=False)
    assert steps == 11


@settings(deadline=None)
@given(st.binary(max_size=80), st.sampled_from(sorted(CODERS)), st.booleans(), st.integers(0, 100))
def test_no_bytes_raise(body: bytes, coding: str, complete: bool, limit: int) -> None:
    result = decode(body, coding, limit, complete=complete)
    assert isinstance(result, Decoded | Unreadable)


@settings(deadline=None)
@given(st.data(), st.sampled_from(sorted(CODERS)), st.booleans())
def test_no_damage_raises(data: st.DataObject, coding: str, complete: bool) -> None:
    encoded = bytearray(ENCODED[coding])
    for at in data.draw(st.lists(st.integers(0, len(encoded) - 1), max_size=3)):
        encoded[at] ^= data.draw(st.integers(1, 255))
    result = read(bytes(encoded), coding, complete=complete)
    assert isinstance(result, Prompt | Unreadable)
