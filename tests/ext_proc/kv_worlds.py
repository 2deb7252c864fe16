"""Recorded and composed KV events, and a clock that stands.

The recording is of a real vLLM 0.32.0 on CPU with SmolLM2-135M, 100 blocks of 32 tokens; docs/kv-events.md
says what happened to it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ext_proc.kv.events import Event, Fault, events_of
from ext_proc.kv.sequence import END
from ext_proc.kv.view import Freshness, KvView
from ext_proc.prompt.decode import BodyReader, Prompt
from ext_proc.prompt.envelope import Envelope, EnvelopeReader
from ext_proc.prompt.unreadable import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ext_proc.kv.lookup import KvLookup, KvPrompt
    from ext_proc.kv.tracker import Tracker

RECORDED = Path(__file__).parent / "data" / "kv_events_vllm_0.32.jsonl"
pack = msgspec.msgpack.encode


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def recorded() -> Iterator[dict[str, Any]]:
    """What stands in the recording, in order: requests with the engine's own report, and messages."""
    for line in RECORDED.read_text().splitlines():
        entry = json.loads(line)
        if "payload" in entry:
            entry["payload"] = base64.b64decode(entry["payload"])
        yield entry


def stored(
    hashes: Sequence[Any], parent: Any, tokens: Sequence[Any], size: int, **more: Any
) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(tokens),
        "block_size": size,
        **more,
    }


def removed(*hashes: Any, **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), **more}


CLEARED = {"type": "AllBlocksCleared"}


def batch(*events: Any) -> bytes:
    return pack([1.0, list(events), 0])


class Batch(NamedTuple):
    """What one message tells."""

    events: tuple[Event, ...] = ()
    unknown: int = 0
    malformed: int = 0


def decode_batch(payload: bytes) -> Batch:
    """Read a message to its end."""
    told = [event for event in events_of(payload) if event is not None]
    events = tuple(event for event in told if not isinstance(event, Fault))
    return Batch(events, told.count(Fault.UNKNOWN), told.count(Fault.MALFORMED))


def matched_in(view: KvView, tokens: Sequence[Any], adapter: str = "", salt: str = "") -> dict[str, int]:
    """How many leading tokens of a prompt each endpoint has whose events are fresh."""
    keys = view.keys(tokens, adapter, salt)
    cached = {} if keys is None else view.cached_tokens(keys)
    return {a: n for a, n in cached.items() if view.freshness(a) is not Freshness.STALE}


class World:
    """A view with one endpoint of one rank, connected and known from its beginning."""

    def __init__(self, *, limit: int = 1000, replayable: bool = True) -> None:
        self.clock = Clock()
        self.view = KvView(limit, self.clock)
        self.number = 0
        self.tracker = self.join("a", replayable=replayable)[0]

    def join(self, address: str, *, ranks: int = 1, replayable: bool = True) -> list[Tracker]:
        trackers = self.view.add(address, ranks=ranks, replayable=replayable)
        for tracker in trackers:
            tracker.connect()
            answer(tracker)
        return trackers

    def tell(self, *events: Any, tracker: Tracker | None = None) -> None:
        """Publish events in one message, and apply it."""
        to = tracker or self.tracker
        to.sequence.live(self.number, batch(*events))
        self.number += 1
        settle(to)

    def matched(self, tokens: Sequence[int], adapter: str = "", salt: str = "") -> dict[str, int]:
        return matched_in(self.view, tokens, adapter, salt)


def answer(tracker: Tracker, *messages: tuple[int, bytes]) -> None:
    """Answer a replay."""
    tracker.sequence.replay_from = None
    for number, payload in messages:
        tracker.sequence.replayed(number, payload)
    tracker.sequence.replayed(END, b"")
    settle(tracker)


def settle(tracker: Tracker) -> None:
    while tracker.step():
        pass


def envelope_of(body: bytes) -> Envelope:
    """A body's top-level members; none of a body that cannot be read."""
    try:
        return EnvelopeReader().read(body, rich=False)
    except (UnreadableError, msgspec.DecodeError):
        return Envelope()


def located(
    lookup: KvLookup, pool: str, model: str, body: bytes, *, complete: bool = True, adapter: str = ""
) -> KvPrompt | None:
    """What a lookup makes of a body, for an adapter."""
    parsed = BodyReader(one_pass=False).read(body, complete=complete)
    if not isinstance(parsed.prompt, Prompt):
        return None
    return lookup.locate(pool, model, parsed.prompt._replace(adapter=adapter), parsed.envelope)
