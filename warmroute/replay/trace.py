"""Traces: what was asked when, in four formats, as one shape.

A trace's blocks are runs of `block_tokens` tokens whose identity stands for all that precedes them too, so
equal ids mean equal prefixes. A request's blocks cover its full blocks only: what is left of the prompt
belongs to nobody else.
"""

from __future__ import annotations

import csv
import json
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xxhash import xxh3_64_intdigest

from fleet.errors import WarmrouteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

BYTES_PER_TOKEN: Final = 4
MOONCAKE_BLOCK_TOKENS: Final = 512
TEXT_BLOCK_TOKENS: Final = 16
ANSWER_SECONDS_PER_TOKEN: Final = 0.02
"""What the model took in a recorded session, to tell the client's own time from it."""
MOONCAKE_STEP_SECONDS: Final = 3.0
"""Mooncake's timestamps are rounded to about this: within it requests are spread at random."""


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
    """The prompt, where the trace has it; otherwise text is made from the blocks."""
    session: str = ""
    after: int = -1
    """The request of the trace whose answer this one waits for; -1: none."""
    gap: float = 0.0
    """Seconds from the end of that answer."""


def in_order(requests: list[TraceRequest]) -> tuple[TraceRequest, ...]:
    """Return requests by their times, with what they wait for renumbered."""
    order = sorted(range(len(requests)), key=lambda number: requests[number].at)
    place = {number: new for new, number in enumerate(order)}
    return tuple(
        requests[number]._replace(after=place[requests[number].after])
        if requests[number].after >= 0
        else requests[number]
        for number in order
    )


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

    def at_rate(self, scale: float, seed: int, jitter_seconds: float = 0.0) -> Trace:
        """Return it `scale` times as fast, each request up to `jitter_seconds` later, in the trace's time."""
        draw = Random(seed)
        moved = [
            request._replace(at=(request.at + draw.uniform(0.0, jitter_seconds)) / scale)
            for request in self.requests
        ]
        return self._replace(requests=in_order(moved))

    def copies(self, count: int, seed: int) -> Trace:
        """Return so many times the load: copies that share nothing, each begun at another time."""
        draw = Random(seed)
        requests: list[TraceRequest] = []
        for copy in range(count):
            offset, first = draw.uniform(0.0, self.seconds), len(requests)
            salt = f"{copy:08x}" * 2
            requests += [
                request._replace(
                    # Each copy begins somewhere in the trace and goes on from its begin.
                    at=(request.at + offset) % self.seconds if request.after < 0 else request.at,
                    blocks=tuple(block + (copy << 48) for block in request.blocks),
                    text=None if request.text is None else salt + request.text[len(salt) :],
                    session=f"{request.session}-{copy}",
                    after=request.after + first if request.after >= 0 else -1,
                )
                for request in self.requests
            ]
        return self._replace(requests=in_order(requests))

    def part(self, begin: float, end: float) -> Trace:
        """Return what came in a part of the trace's time, both as shares of it."""
        first, seconds = self.requests[0].at, self.seconds
        inside = [
            request._replace(at=request.at - first - begin * seconds)
            for request in self.requests
            if begin * seconds <= request.at - first < end * seconds
            or (end >= 1 and request.at - first == seconds)
        ]
        return self._replace(requests=tuple(inside))


def mooncake(path: Path, most: int | None = None) -> Trace:
    """Read Mooncake's JSON lines: timestamp in ms, lengths in tokens, ids of blocks of 512 tokens."""
    requests = []
    for entry in _json_lines(path, most):
        prompt = int(entry["input_length"])
        blocks = tuple(entry["hash_ids"][: prompt // MOONCAKE_BLOCK_TOKENS])
        at = entry["timestamp"] / 1000.0
        requests.append(TraceRequest(at, max(prompt, 1), max(int(entry["output_length"]), 1), blocks))
    return Trace(path.stem, MOONCAKE_BLOCK_TOKENS, tuple(requests), coarse=True)


def azure(path: Path, most: int | None = None) -> Trace:
    """Read Azure's CSV: no prefix is known, so no two requests share one."""
    requests, begin = [], None
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file)):
            if most is not None and number >= most:
                break
            # Seven digits of a second are one more than datetime reads.
            at = datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            begin = at if begin is None else begin
            prompt = max(int(row["ContextTokens"]), 1)
            first = number << 16
            blocks = tuple(range(first, first + prompt // MOONCAKE_BLOCK_TOKENS))
            requests.append(TraceRequest(at - begin, prompt, max(int(row["GeneratedTokens"]), 1), blocks))
    return Trace(path.stem, MOONCAKE_BLOCK_TOKENS, tuple(requests))


def sessions(folder: Path, most: int | None = None) -> Trace:
    """Read JSON lines with text, a file or a folder of files: timestamp in µs, input, output, session."""
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else [folder]
    entries = [entry for file in files for entry in _json_lines(file, most)]
    if not entries:
        raise TraceError(f"{folder}: no request in it")
    begin = min(entry["timestamp"] for entry in entries)
    requests: list[TraceRequest] = []
    last: dict[str, int] = {}
    for entry in sorted(entries, key=lambda entry: float(entry["timestamp"])):
        text, session = entry["input"], entry.get("session_id", "")
        at, output = (entry["timestamp"] - begin) / 1e6, max(len(entry["output"]) // BYTES_PER_TOKEN, 1)
        after = last.get(session, -1) if session else -1
        gap = 0.0
        if after >= 0:
            before = requests[after]
            gap = max(0.0, at - before.at - before.output_tokens * ANSWER_SECONDS_PER_TOKEN)
        last[session] = len(requests)
        prompt, blocks = max(len(text) // BYTES_PER_TOKEN, 1), tuple(chained(text, TEXT_BLOCK_TOKENS))
        requests.append(TraceRequest(at, prompt, output, blocks, text, session, after, gap))
    return Trace(folder.stem, TEXT_BLOCK_TOKENS, tuple(requests[:most]))


def chained(text: str, block_tokens: int) -> Iterator[int]:
    """Yield chained hashes of a text's full blocks."""
    size, seed = block_tokens * BYTES_PER_TOKEN, 0
    data = text.encode("utf-8", "surrogatepass")
    for begin in range(0, len(data) - size + 1, size):
        seed = xxh3_64_intdigest(data[begin : begin + size], seed)
        yield seed


FORMATS: Final = {"mooncake": mooncake, "azure": azure, "sessions": sessions}
"""By the name on the command line."""


def read_trace(path: Path, form: str = "", most: int | None = None) -> Trace:
    """Read a file or folder; without a format, its first line says which one it has.

    Raises:
        TraceError: it has no request, or cannot be read as its format.
    """
    form = form or _form_of(path)
    try:
        trace = FORMATS[form](path, most)
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path}: no {form} trace: {type(error).__name__} at {error}") from error
    if not trace.requests:
        raise TraceError(f"{path}: no request in it")
    return trace


def _form_of(path: Path) -> str:
    if path.is_dir():
        return "sessions"
    with path.open(encoding="utf-8") as file:
        line = file.readline()
    if line.startswith("TIMESTAMP,"):
        return "azure"
    if '"hash_ids"' in line:
        return "mooncake"
    if '"input"' in line:
        return "sessions"
    raise TraceError(f"{path}: its first line is of no format that is read; allowed: {', '.join(FORMATS)}")


def block_texts(blocks: Sequence[int], block_tokens: int, texts: dict[int, str]) -> Iterable[str]:
    """Yield text for each block: the same for the same id. `texts` remembers it."""
    for block in blocks:
        text = texts.get(block)
        if text is None:
            text = texts[block] = Random(block).randbytes(block_tokens * BYTES_PER_TOKEN // 2).hex()
        yield text


def _json_lines(path: Path, most: int | None) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            if most is not None and number >= most:
                return
            yield json.loads(line)
