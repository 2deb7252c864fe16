"""Agent sessions without their text: times, lengths, and which blocks of 16 tokens repeat.

`python -m bench.agent_blocks FOLDER OUTPUT` derives the committed file from the folder `miniswe` of
https://github.com/LMCache/lmcache-agent-trace. Blocks get numbers in the order of their first use, so a
prompt is a few runs of consecutive numbers.
"""

from __future__ import annotations

import argparse
import lzma
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from warmroute.demo import report
from warmroute.replay.trace import TEXT_BLOCK_TOKENS, Trace, TraceRequest, read_trace

if TYPE_CHECKING:
    from collections.abc import Sequence


class Line(msgspec.Struct):
    """One request."""

    at: float
    """Seconds."""
    session: int
    gap: float
    """Seconds of the client's own between the answer before and this request."""
    prompt: int
    """Tokens."""
    output: int
    runs: list[tuple[int, int]]
    """First number and count of consecutive blocks."""


def lines_of(trace: Trace) -> list[Line]:
    """Return a trace of sessions without its text."""
    numbers: dict[int, int] = {}
    sessions: dict[str, int] = {}
    return [
        Line(
            at=round(request.at, 3),
            session=sessions.setdefault(request.session, len(sessions)),
            gap=round(request.gap, 3),
            prompt=request.prompt_tokens,
            output=request.output_tokens,
            runs=_runs([numbers.setdefault(block, len(numbers)) for block in request.blocks]),
        )
        for request in trace.requests
    ]


def trace_of(lines: Sequence[Line], name: str) -> Trace:
    """Return the trace: a request of a session comes after the one before it."""
    requests: list[TraceRequest] = []
    last: dict[int, int] = {}
    for line in lines:
        blocks = tuple(block for first, count in line.runs for block in range(first, first + count))
        after, session = last.get(line.session, -1), f"s{line.session}"
        last[line.session] = len(requests)
        requests.append(
            TraceRequest(
                line.at, line.prompt, line.output, blocks, session=session, after=after, gap=line.gap
            )
        )
    return Trace(name, TEXT_BLOCK_TOKENS, tuple(requests))


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    begins = [0] + [place + 1 for place, (one, two) in enumerate(pairwise(numbers)) if two != one + 1]
    ends = [*begins[1:], len(numbers)]
    return [(numbers[begin], end - begin) for begin, end in zip(begins, ends, strict=True) if end > begin]


def main(argv: Sequence[str] | None = None) -> int:
    """Derive the file."""
    parser = argparse.ArgumentParser(prog="python -m bench.agent_blocks", description=__doc__)
    parser.add_argument("folder", type=Path, help="of session files with text")
    parser.add_argument("output", type=Path, help="to write, .jsonl.xz")
    args = parser.parse_args(argv)
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines_of(read_trace(args.folder)))
    args.output.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    return 0


if __name__ == "__main__":
    sys.exit(report.command(main))
