"""Made bytes through a connection of the lane: recordings of real clients, changed, and bytes of chance.

python -m bench.lane_fuzz --seconds 600 --json        a search for bytes that break a rule of `Watched`
python -m bench.lane_fuzz --seed 1 --first 77         one input again, by its number

The recordings in `bench/data/lane` are of Envoy and grpcio; `bench.lane_record` made them.
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fleet.lane.budget import Budget
from fleet.lane.connection import Connection, HalfClosed, Message, Opened
from fleet.lane.limits import Limits
from testing import lane_client as wire
from testing.lane_client import (
    PREFACE,
    BrokenRuleError,
    Watched,
    as_bytes,
    data,
    deep_bytes,
    frame,
    frames,
    grpc_message,
    headers,
    ping,
    reset,
    settings,
    window_update,
)
from warmroute.demo import report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleet.lane.connection import Event

RECORDINGS: Final = Path(__file__).parent / "data" / "lane"
_SHOWN: Final = 20
"""Broken rules to report, at most."""
_BATCH: Final = 200
_MOST_PIECES: Final = 300
"""Of an input; short ones arrive by the byte."""
_MOST_BYTES: Final = 1_500_000
"""Of a connection, with the limits below, in addition to what it received."""
_MESSAGE_BYTES: Final = 200_000
_BUDGET_BYTES: Final = 300_000
_NUMBERS: Final = (0, 1, 2, 3, 5, 7, 9, 101, wire.MOST_WINDOW, 1 << 31 | 1)
_VALUES: Final = (0, 1, 2, 5, 255, 16_383, 16_384, 65_535, 1 << 20, 1 << 24, wire.MOST_WINDOW, (1 << 32) - 1)


@cache
def recordings() -> list[list[bytes]]:
    """Return the frames that real clients have sent, behind their prefaces."""
    sent = [gzip.decompress(path.read_bytes()) for path in sorted(RECORDINGS.glob("*.bin.gz"))]
    return [list(map(as_bytes, frames(each.removeprefix(PREFACE)))) for each in sent]


def _any_frame(rng: random.Random, opened: int) -> bytes:
    """Return a frame, mostly one that a client may send with `opened` streams so far."""
    stream = rng.choice((*_NUMBERS, *[2 * rng.randrange(max(opened, 1)) + 1] * 30))
    value = rng.choice(_VALUES)
    content = grpc_message(bytes(rng.choice((0, 1, 100, 9_000, 70_000))), rng.choice((0,) * 20 + (1, 7)))
    pad = rng.choice((None, None, 0, 9, 255))
    made: list[Callable[[], bytes]] = [
        lambda: data(stream, content, end=rng.random() < 0.3, pad=pad),
        lambda: data(stream, content[: rng.randrange(len(content) + 1)]),
        lambda: reset(stream, value & 0xFF),
        lambda: settings(*((rng.randrange(7, 9), value) for _ in range(rng.randrange(4)))),
        lambda: settings((wire.INITIAL_WINDOW_SIZE, value & wire.MOST_WINDOW)),
        lambda: frame(wire.SETTINGS, wire.ACK),
        lambda: ping(ack=rng.random() < 0.3),
        lambda: window_update(rng.choice((0, stream)), value & 0xFFFF | 1),
        lambda: frame(wire.PRIORITY, 0, stream, bytes(5)),
        lambda: frame(wire.GOAWAY, 0, 0, bytes(8)),
    ]
    if rng.random() < 0.05:
        made = [
            lambda: headers(
                stream, flags=rng.choice((0, 4, 12, 36)), before=rng.randbytes(rng.choice((0, 6)))
            ),
            lambda: settings((rng.randrange(7), value)),
            lambda: window_update(rng.choice((0, stream)), value & wire.MOST_WINDOW),
            lambda: frame(rng.randrange(11), rng.randrange(256), stream, rng.randbytes(rng.randrange(20))),
        ]
    return rng.choice(made)()


def _frames(rng: random.Random) -> bytes:
    """Return the preface and frames of chance."""
    made = [PREFACE, settings(), frame(wire.SETTINGS, wire.ACK)]
    opened = 0
    for _ in range(rng.randrange(1, 80)):
        if rng.random() < 0.3:
            made.append(headers(2 * opened + 1, end=rng.random() < 0.1))
            opened += 1
        else:
            made.append(_any_frame(rng, opened))
    return b"".join(made)


def _change(rng: random.Random, pieces: list[bytes], others: list[bytes]) -> None:
    """Change the frames of a recording in one place."""
    at = rng.randrange(len(pieces))
    piece = bytearray(pieces[at])
    place = rng.randrange(len(piece))
    match rng.randrange(9):
        case 0:
            piece[place] ^= 1 << rng.randrange(8)
        case 1:
            piece[min(place, rng.randrange(9))] = rng.randrange(256)
        case 2:
            del piece[place : place + rng.randrange(1, 9)]
        case 3:
            piece[place:place] = rng.randbytes(rng.randrange(1, 9))
        case 4:
            pieces[at:at] = [bytes(piece)] * rng.choice((1, 2, 50))
        case 5:
            pieces.insert(at, rng.choice(others))
        case 6:
            pieces.insert(at, _any_frame(rng, 9))
        case 7:
            other = rng.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
            return
        case _:
            del pieces[at + 1 :]
    pieces[min(at, len(pieces) - 1)] = bytes(piece) or b"\0"


def make(seed: int, number: int) -> bytes:
    """Return an input: a changed recording, frames of chance, or bytes of chance."""
    rng = random.Random(f"{seed}:{number}")
    kind = rng.random()
    if kind < 0.05:
        return rng.choice((b"", PREFACE, PREFACE + settings())) + rng.randbytes(rng.randrange(400))
    if kind < 0.4:
        return _frames(rng)
    source = recordings()
    others = [piece for each in source for piece in each]
    pieces = list(rng.choice(source))
    for _ in range(rng.choice((0, 1, 1, 2, 4, 20))):
        _change(rng, pieces, others)
    return PREFACE + b"".join(pieces)


class _Server:
    """Answers calls in all ways, by chance: at once or later, in full or early, or never."""

    def __init__(self, rng: random.Random, watched: Watched) -> None:
        self._rng = rng
        self._watched = watched
        self._dull = rng.random() < 0.2
        """It answers nothing."""

    def take(self, events: list[Event]) -> None:
        for event in events:
            stream = event.stream
            if self._dull or stream not in self._watched.open:
                continue
            if isinstance(event, Opened) and self._rng.random() < 0.05:
                self._watched.end(stream, 12, "no")
            elif isinstance(event, Message):
                self._watched.send(stream, event.data, b"")
                if self._rng.random() < 0.1:
                    self._watched.reset(stream, 8)
            elif isinstance(event, HalfClosed) and self._rng.random() < 0.9:
                self._watched.end(stream)

    def chance(self) -> None:
        """Do something that no event is the cause of, on a call or where there is none."""
        if self._rng.random() < 0.002:
            self._watched.connection.go_away()
        if self._rng.random() < 0.03:
            stream = self._rng.choice((*self._watched.open, 1, 2, 9))
            match self._rng.randrange(3):
                case 0:
                    self._watched.send(stream, b"late")
                case 1:
                    self._watched.end(stream, 13, "late")
                case _:
                    self._watched.reset(stream, 2)


def play(seed: int, number: int) -> str:
    """Feed one input in pieces; return how the connection ended.

    Raises:
        BrokenRuleError: by a rule of `Watched`, by too much memory, or by bytes that are left in the budget.
    """
    sent = make(seed, number)
    rng = random.Random(f"{seed}:{number}:play")
    budget = Budget(rng.choice((1, _BUDGET_BYTES)), _BUDGET_BYTES, unfinished_bytes=_BUDGET_BYTES)
    limits = Limits(streams=rng.choice((1, 3, 1000)), message_bytes=rng.choice((100, _MESSAGE_BYTES)))
    watched = Watched(Connection(limits, budget))
    server = _Server(rng, watched)
    at, ended = 0, "open"
    least = 1 + len(sent) // _MOST_PIECES
    pieces = rng.choice(((1,), (1, 9, 700), (9, 70_000), (1 << 20,)))
    while at < len(sent):
        size = max(rng.choice(pieces), least)
        server.take(watched.receive(sent[at : at + size]))
        at += size
        server.chance()
        if rng.random() < 0.8:
            ended = next((f"goaway {one.code}" for one in watched.take() if one.kind == wire.GOAWAY), ended)
        if budget.stirred:
            budget.stirred.clear()
            server.take(watched.receive(b""))
        if budget.waiting and rng.random() < 0.1:
            budget.relieve()
    watched.take()
    size = deep_bytes(watched.connection)
    if size > _MOST_BYTES + len(sent):
        raise BrokenRuleError(f"{size} bytes of memory after {len(sent)} received")
    watched.lost()
    left = (budget.permitted, budget.unfinished, budget.unread, budget.waiting)
    if any(left):
        raise BrokenRuleError(f"left in the budget: {left}")
    return ended


def play_batch(seed: int, begin: int, end: int) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Play inputs `begin` to `end`; return how connections ended, and what was broken by which."""
    outcomes: Counter[str] = Counter()
    broken: list[dict[str, Any]] = []
    for number in range(begin, end):
        try:
            outcomes[play(seed, number)] += 1
        except Exception as error:  # noqa: BLE001 - whatever escapes is the finding, and is counted
            broken.append({"seed": seed, "number": number, "error": f"{type(error).__name__}: {error}"[:500]})
    return outcomes, broken


def fuzz(seconds: float, seed: int, first: int) -> dict[str, Any]:
    """Play inputs from number `first` on until the time is over."""
    outcomes: Counter[str] = Counter()
    broken: list[dict[str, Any]] = []
    until = time.monotonic() + seconds
    number = first
    while time.monotonic() < until:
        counted, violations = play_batch(seed, number, number + _BATCH)
        number += _BATCH
        outcomes += counted
        broken += violations
        if number % (50 * _BATCH) == 0:
            report.progress(f"{number} inputs, {len(broken)} broken")
    return {
        "inputs": number - first,
        "seed": seed,
        "first": first,
        "outcomes": dict(sorted(outcomes.items())),
        "broken_rules": len(broken),
        "broken": broken[:_SHOWN],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the search; the exit status shows whether a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m bench.lane_fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    result = fuzz(options.seconds, options.seed, options.first)
    return report.finish(
        result, [report.exactly("broken_rules", result["broken_rules"], 0)], as_json=options.json
    )


if __name__ == "__main__":
    sys.exit(main())
