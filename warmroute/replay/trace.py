"""Traces: requests with their times, in four formats, as one shape.

A block is a run of `block_tokens` tokens. Its id stands for all tokens before it too, so equal ids mean equal
prefixes. A request's blocks are those that it fills; the rest of its prompt is its own.
"""

from __future__ import annotations

import csv
import gzip
import lzma
import zlib
from datetime import UTC, datetime
from itertools import islice
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TextIO, TypeVar, cast

import msgspec
from xxhash import xxh3_64_intdigest

from fleet.cause import cause_of
from fleet.errors import WarmrouteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

SAMPLE: Final = Path(__file__).with_name("data") / "mooncake_conversation.jsonl.xz"
"""A part of a real trace; `data/NOTICE` states its source."""

BYTES_PER_TOKEN: Final = 4
MOONCAKE_BLOCK_TOKENS: Final = 512
TEXT_BLOCK_TOKENS: Final = 16
ANSWER_SECONDS_PER_TOKEN: Final = 0.02
"""Of the model of a recorded session: the rest of the time between its requests is the client's."""
MOONCAKE_STEP_SECONDS: Final = 3.0
"""Mooncake's timestamps are rounded to about this: requests are spread within it at random."""
MAX_TOKENS: Final = 10_000_000
"""Of one prompt or answer: more is a fault of the trace."""
MAX_SECONDS: Final = 366 * 86_400.0
MOST_LINE_CHARS: Final = 256 * 1024 * 1024
"""A small packed file may hold a line of any length."""
EVENT_BYTES: Final = 250
"""Of a streamed answer, for each token: one event of the OpenAI API."""
ENVELOPE_BYTES: Final = 350
"""Of another answer, apart from its text."""
_STREAMED_SECONDS: Final = 0.005
_STREAMED_SHARE: Final = 0.05
"""From its first byte to its end, an answer that is a stream takes longer than both."""

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
_BlockId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]


class TraceError(WarmrouteError):
    """A trace cannot be read."""


class TraceRequest(NamedTuple):
    """One request of a trace."""

    at: float
    """Seconds since the trace's begin."""
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    """Of the prompt's full blocks."""
    text: str | None = None
    """The prompt, if the trace has it; otherwise the replay makes text from the blocks."""
    session: str = ""
    after: int = -1
    """Index of the request whose answer this one waits for; -1: none."""
    gap: float = 0.0
    """Seconds between the end of that answer and this request."""
    patience: float = inf
    """Seconds until its client leaves, answer or not."""


class Trace(NamedTuple):
    """Requests in the order of their times."""

    name: str
    block_tokens: int
    requests: tuple[TraceRequest, ...]
    coarse: bool = False
    """Whether its times are rounded to some seconds."""

    @property
    def seconds(self) -> float:
        """From the first request to the last."""
        return self.requests[-1].at - self.requests[0].at if self.requests else 0.0

    @property
    def ideal_hit_ratio(self) -> float:
        """Share of the prompt tokens that one replica with an endless cache would have, in this order."""
        cached, cache = 0, set[int]()
        for request in self.requests:
            # An engine always computes a prompt's last token.
            for block in request.blocks[: (request.prompt_tokens - 1) // self.block_tokens]:
                if block not in cache:
                    break
                cached += self.block_tokens
            cache.update(request.blocks)
        return cached / sum(request.prompt_tokens for request in self.requests)

    def at_rate(self, scale: float, seed: int, jitter_seconds: float = 0.0) -> Trace:
        """Return it `scale` times as fast, clients' own times included.

        Each request is up to `jitter_seconds` late, in the trace's time.
        """
        draw = Random(seed)
        moved = [
            request._replace(
                at=(request.at + draw.uniform(0.0, jitter_seconds)) / scale, gap=request.gap / scale
            )
            for request in self.requests
        ]
        return self._replace(requests=_in_order(moved))

    def impatient(self, share: float, seconds: float, seed: int) -> Trace:
        """Return it with clients of this share of the requests that leave, each after up to `seconds`."""
        draw = Random(f"impatient {seed}")
        requests = tuple(
            request._replace(patience=draw.uniform(0.0, seconds)) if draw.random() < share else request
            for request in self.requests
        )
        return self._replace(requests=requests)

    def copies(self, count: int, seed: int) -> Trace:
        """Return `count` times the load: copies that share no prefix, each begun at another time."""
        draw, length = Random(seed), self.seconds or 1.0
        requests: list[TraceRequest] = []
        for copy in range(count):
            offset, first = draw.uniform(0.0, length), len(requests)
            salt = f"{copy:08x}" * 2
            requests += [
                request._replace(
                    at=(request.at + offset) % length if request.after < 0 else request.at,
                    blocks=tuple(block ^ (copy << 48) for block in request.blocks),
                    text=None if request.text is None else salt + request.text[len(salt) :],
                    session=f"{request.session}-{copy}",
                    after=request.after + first if request.after >= 0 else -1,
                )
                for request in self.requests
            ]
        return self._replace(requests=_in_order(requests))


def _in_order(requests: Sequence[TraceRequest]) -> tuple[TraceRequest, ...]:
    """Return requests by their times, with `after` renumbered."""
    order = sorted(range(len(requests)), key=lambda index: requests[index].at)
    place = {index: new for new, index in enumerate(order)}
    return tuple(
        requests[index]._replace(after=place[requests[index].after])
        if requests[index].after >= 0
        else requests[index]
        for index in order
    )


class _MooncakeLine(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS * 1000)]
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: list[_BlockId]


class _SessionLine(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e17)]
    input: str
    output: str
    session_id: str = ""


class _RecordHead(msgspec.Struct):
    warmroute_requests: Annotated[int, msgspec.Meta(ge=1, le=1)]
    """Version of the format."""
    block_bytes: Annotated[int, msgspec.Meta(ge=BYTES_PER_TOKEN, le=MAX_TOKENS)]


class _RecordLine(msgspec.Struct):
    at: Annotated[float, msgspec.Meta(ge=0, le=1e11)]
    prompt_bytes: Annotated[int, msgspec.Meta(ge=0)]
    """Also of bodies that are longer than any prompt of text."""
    answer_bytes: Annotated[int, msgspec.Meta(ge=0)]
    seconds: _Seconds | None
    first_byte: _Seconds | None
    status: int
    blocks: list[_BlockId]
    session: int | None = None

    @property
    def answer_tokens(self) -> int:
        """Estimate the answer's tokens from its bytes: a stream has an event for each token."""
        streamed = (
            self.seconds is not None
            and self.first_byte is not None
            and self.seconds - self.first_byte > max(_STREAMED_SECONDS, _STREAMED_SHARE * self.seconds)
        )
        text_bytes = self.answer_bytes - ENVELOPE_BYTES
        tokens = self.answer_bytes // EVENT_BYTES if streamed else text_bytes // BYTES_PER_TOKEN
        return min(max(tokens, 1), MAX_TOKENS)


def mooncake(path: Path, most: int | None = None) -> Trace:
    """Read JSON lines: timestamp in ms, lengths in tokens, ids of blocks of 512 tokens.

    Raises:
        TraceError: a line is malformed.
        OSError: it cannot be read.
    """
    requests = []
    for number, line in _json_lines(path, _MooncakeLine, most):
        full = line.input_length // MOONCAKE_BLOCK_TOKENS
        if len(line.hash_ids) < full:
            problem = f"{len(line.hash_ids)} hash_ids for {line.input_length} tokens"
            raise TraceError(f"{path}:{number}: {problem}; allowed: {full}, one for each 512 tokens")
        blocks, at = tuple(line.hash_ids[:full]), line.timestamp / 1000.0
        requests.append(TraceRequest(at, max(line.input_length, 1), max(line.output_length, 1), blocks))
    return Trace(_name(path), MOONCAKE_BLOCK_TOKENS, _in_order(requests), coarse=True)


def azure(path: Path, most: int | None = None) -> Trace:
    """Read CSV with TIMESTAMP, ContextTokens and GeneratedTokens: no two requests share a prefix.

    Raises:
        TraceError: a line is malformed.
        OSError: it cannot be read.
    """
    requests: list[TraceRequest] = []
    with _opened(path) as file:
        rows = csv.DictReader(_lines(file, path))
        for index, row in enumerate(rows):
            if most is not None and index >= most:
                break
            try:
                # Seven digits of a second are one more than datetime reads.
                at = datetime.fromisoformat(row["TIMESTAMP"][:26]).replace(tzinfo=UTC).timestamp()
                prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            except (KeyError, TypeError, ValueError) as error:
                problem = f"needs TIMESTAMP, ContextTokens and GeneratedTokens ({error})"
                raise TraceError(f"{path}:{rows.line_num}: {problem}") from error
            if not (0 <= prompt <= MAX_TOKENS and 0 <= output <= MAX_TOKENS):
                problem = f"{prompt} and {output} tokens; allowed: 0 to {MAX_TOKENS}"
                raise TraceError(f"{path}:{rows.line_num}: {problem}")
            first = index << 16
            blocks = tuple(range(first, first + prompt // MOONCAKE_BLOCK_TOKENS))
            requests.append(TraceRequest(at, max(prompt, 1), max(output, 1), blocks))
    begin = min((request.at for request in requests), default=0.0)
    moved = [request._replace(at=request.at - begin) for request in requests]
    return Trace(_name(path), MOONCAKE_BLOCK_TOKENS, _in_order(moved))


def sessions(path: Path, most: int | None = None) -> Trace:
    """Read JSON lines with text: timestamp in µs, input, output, session_id; a file, or a folder's `*.jsonl`.

    Raises:
        TraceError: a line is malformed.
        OSError: it cannot be read.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    lines = sorted(
        (line for file in files for _, line in _json_lines(file, _SessionLine, None)),
        key=lambda line: line.timestamp,
    )[:most]
    requests: list[TraceRequest] = []
    last: dict[str, int] = {}
    for line in lines:
        at = (line.timestamp - lines[0].timestamp) / 1e6
        output = max(len(line.output) // BYTES_PER_TOKEN, 1)
        after = last.get(line.session_id, -1) if line.session_id else -1
        gap = 0.0
        if after >= 0:
            before = requests[after]
            gap = max(0.0, at - before.at - before.output_tokens * ANSWER_SECONDS_PER_TOKEN)
        last[line.session_id] = len(requests)
        data = line.input.encode("utf-8", "surrogatepass")
        prompt, blocks = max(len(data) // BYTES_PER_TOKEN, 1), tuple(_chained(data))
        requests.append(TraceRequest(at, prompt, output, blocks, line.input, line.session_id, after, gap))
    return Trace(_name(path), TEXT_BLOCK_TOKENS, tuple(requests))


def recorded(path: Path, most: int | None = None) -> Trace:
    """Read what xds_server records: a line with the version, then one for each finished request.

    Requests with an answer of 400 to 499 are left out: engines did no work for them.

    Raises:
        TraceError: a line is malformed.
        OSError: it cannot be read.
    """
    with _opened(path) as file:
        try:
            head = msgspec.json.decode(file.readline(1 << 20), type=_RecordHead)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceError(f"{path}:1: {error}") from error
    lines = [line for _, line in _json_lines(path, _RecordLine, most, skip=1) if line.status // 100 != 4]
    lines.sort(key=lambda line: line.at)
    requests: list[TraceRequest] = []
    last: dict[int, int] = {}
    for number, line in enumerate(lines):
        after = -1 if line.session is None else last.get(line.session, -1)
        if after >= 0 and (ended_at := lines[after].at + (lines[after].seconds or 0.0)) <= line.at:
            gap = line.at - ended_at
        else:
            after, gap = -1, 0.0  # Nothing waits for an answer that comes later than it began.
        if line.session is not None:
            last[line.session] = number
        request = TraceRequest(
            at=line.at - lines[0].at,
            prompt_tokens=min(max(line.prompt_bytes // BYTES_PER_TOKEN, 1), MAX_TOKENS),
            output_tokens=line.answer_tokens,
            blocks=tuple(line.blocks[: line.prompt_bytes // head.block_bytes]),
            session="" if line.session is None else str(line.session),
            after=after,
            gap=gap,
        )
        requests.append(request)
    return Trace(_name(path), head.block_bytes // BYTES_PER_TOKEN, tuple(requests))


FORMATS: Final[dict[str, Callable[[Path, int | None], Trace]]] = {
    "mooncake": mooncake,
    "azure": azure,
    "sessions": sessions,
    "recorded": recorded,
}
"""By the name on the command line."""
_MARKS: Final = {
    "mooncake": '"hash_ids"',
    "azure": "TIMESTAMP,",
    "sessions": '"input"',
    "recorded": '"warmroute_requests"',
}


def read_trace(path: Path, form: str = "", most: int | None = None) -> Trace:
    """Read a file or folder; without a format, its first line tells which one it has.

    Raises:
        TraceError: it has no request, or cannot be read.
    """
    try:
        trace = FORMATS[form or _form_of(path)](path, most)
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: no UTF-8 text; allowed: text, or text packed as .gz or .xz") from error
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be unpacked: {error}") from error
    except csv.Error as error:
        raise TraceError(f"{path}: {error}") from error
    except OSError as error:
        raise TraceError(
            cause_of(error) if error.filename else f"{path}: {error.strerror or error}"
        ) from error
    if not trace.requests:
        raise TraceError(f"{path}: no request in it")
    return trace


def _form_of(path: Path) -> str:
    if path.is_dir():
        return "sessions"
    with _opened(path) as file:
        line = file.readline(1 << 20)
    for form, mark in _MARKS.items():
        if mark in line:
            return form
    allowed = "; ".join(f"{form} has {mark}" for form, mark in _MARKS.items())
    raise TraceError(f"{path}: the first line is of no known format; allowed: {allowed}")


def block_texts(blocks: Sequence[int], block_tokens: int, texts: dict[int, str]) -> Iterable[str]:
    """Yield text for each block: the same for the same id. `texts` remembers it."""
    for block in blocks:
        text = texts.get(block)
        if text is None:
            text = texts[block] = Random(block).randbytes(block_tokens * BYTES_PER_TOKEN // 2).hex()
        yield text


def _chained(data: bytes) -> Iterator[int]:
    """Yield chained hashes of a text's full blocks."""
    size, seed = TEXT_BLOCK_TOKENS * BYTES_PER_TOKEN, 0
    for begin in range(0, len(data) - size + 1, size):
        seed = xxh3_64_intdigest(data[begin : begin + size], seed)
        yield seed


def _name(path: Path) -> str:
    return path.stem.removesuffix(".jsonl").removesuffix(".csv")


def _opened(path: Path) -> TextIO:
    """Open a text file, packed or not."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    return cast("TextIO", opener(path, "rt", encoding="utf-8-sig", newline=""))


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    number = 1
    while line := file.readline(MOST_LINE_CHARS):
        if len(line) == MOST_LINE_CHARS:
            problem = f"a line of {MOST_LINE_CHARS >> 20} MiB or more; allowed: less"
            raise TraceError(f"{path}:{number}: {problem}")
        yield line
        number += 1


T = TypeVar("T")


def _json_lines(path: Path, kind: type[T], most: int | None, skip: int = 0) -> Iterator[tuple[int, T]]:
    """Yield the number and content of each line that is not blank, after `skip` of them."""
    decoder = msgspec.json.Decoder(kind)
    count = 0
    with _opened(path) as file:
        for number, text in islice(enumerate(_lines(file, path), 1), skip, None):
            if most is not None and count >= most:
                return
            if not text.strip():
                continue
            count += 1
            try:
                yield number, decoder.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                raise TraceError(f"{path}:{number}: {error}") from error
