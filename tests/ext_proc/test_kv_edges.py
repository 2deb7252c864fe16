"""Faults of other people's libraries, and our own, end neither of the tasks of KV events."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from ext_proc.kv.service import KvEvents
from ext_proc.kv.tokens import PoolReader
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import parse_settings
from fleet.store import FleetStore, FleetView
from tests.ext_proc.kv_tokenizer import files
from tests.ext_proc.kv_worlds import envelope_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

SETTINGS = """
pools: [{name: p, endpoints: [{address: "127.0.0.1:8000"}]}]
listeners: [{name: l, address: "127.0.0.1:9000", pool: p}]
"""
FAILED = "warmroute_kv_event_faults_total"


class Made:
    """A running service, with what it counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.store = FleetStore()
        self.kv = KvEvents(parse_settings(SETTINGS, environ={}), self.store, self.registry)

    def failed(self) -> float:
        return self.registry.get_sample_value(FAILED, {"fault": "failed"}) or 0.0


@pytest.fixture
async def made() -> AsyncIterator[Made]:
    made = Made()
    await made.kv.start()
    yield made
    await made.kv.stop()


class Reader:
    """A pool's reader, whose tokenizer cannot read one of the texts."""

    def __init__(self) -> None:
        self.waiting = [["good", "secret", "other"], ["later"]]
        self.kept: list[str] = []
        self.dropped: list[str] = []
        self.done = asyncio.Event()

    def take_waiting(self) -> list[str]:
        return self.waiting.pop(0) if self.waiting else []

    def tokenise(self, segments: Sequence[str]) -> list[Any]:
        if "secret" in segments:
            raise RuntimeError(f"cannot read {segments}")
        return [*segments]

    def keep(self, segments: Sequence[str], _ids: Sequence[Any]) -> None:
        self.kept += segments
        if "later" in segments:
            self.done.set()

    def drop(self, segment: str) -> None:
        self.dropped.append(segment)


async def test_text_that_fails_to_tokenise_is_dropped_alone(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader()
    made.kv._readers[Path("t"), None] = reader  # type: ignore[assignment]
    made.kv._waiting.set()
    async with asyncio.timeout(60):
        await reader.done.wait()
    assert reader.kept == ["good", "other", "later"]
    assert reader.dropped == ["secret"]
    assert made.failed() > 0
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text, "no prompt in a log"


async def test_fault_in_following_is_retried_with_the_next_view(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: asyncio.Queue[Membership] = asyncio.Queue()

    async def follow(membership: Membership) -> None:
        first = asked.empty() and made.failed() == 0
        asked.put_nowait(membership)
        if first:
            raise OSError

    monkeypatch.setattr(made.kv, "follow", follow)
    membership = Membership((Pool("p", (Endpoint("127.0.0.1:8000", "p"),)),))
    async with asyncio.timeout(60):
        for count in (1, 2):
            made.store.publish(FleetView(membership, {"127.0.0.1:8000": count}))
            assert await asked.get() is membership
    assert made.failed() == 1


def test_a_text_that_is_dropped_may_wait_again(tmp_path: Path) -> None:
    reader = PoolReader.load(*files(tmp_path))
    # The end of a text far longer than what is made at once.
    body = json.dumps({"prompt": " ".join(map(str, range(60_000)))}).encode()
    reader.read(envelope_of(body))
    while batch := reader.take_waiting():
        last = batch[-1:]
    reader.read(envelope_of(body))
    assert reader.take_waiting() == [], "it is being made"
    reader.drop(last[0])
    reader.read(envelope_of(body))
    assert reader.take_waiting() == last


def test_a_panic_of_the_tokenizer_is_an_ordinary_exception(tmp_path: Path) -> None:
    """Its own class is none of `Exception`, so no edge would catch it."""

    class PanicException(BaseException):
        pass

    class Tokenizer:
        def encode_batch_fast(self, *_: Any, **__: Any) -> Any:
            raise PanicException

    reader = PoolReader.load(*files(tmp_path))
    reader._tokenizer = Tokenizer()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="PanicException"):
        reader.tokenise(["a"])
    assert reader.read(envelope_of(b'{"prompt":"a"}')) is None
