"""Over real sockets: what engines publish arrives, is replayed, and is told apart when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from ext_proc.kv.metrics import KvMetrics
from ext_proc.kv.service import REPLAYS_AT_ONCE, KvEvents
from ext_proc.kv.subscriber import MISSED_AFTER_SECONDS, REPLAY_PATIENCE_SECONDS, Limits, RankSubscriber
from ext_proc.kv.view import Freshness
from fleet.codec import decode_membership, encode_membership
from fleet.endpoint import Endpoint, KvEventSource, Membership, Pool
from fleet.service.admin import Query
from fleet.service.turns import Turns
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from fleet.store import FleetStore, FleetView
from tests.ext_proc.kv_publisher import LoopClock, Publisher
from tests.ext_proc.kv_tokenizer import files
from tests.ext_proc.kv_worlds import World, batch, located, matched_in, recorded, removed, stored
from warmroute.cli.view.explanation import explained

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

SIZE = 16
PROMPT = list(range(100, 100 + 4 * SIZE + 1))
ADDRESS = "127.0.0.1:8000"


def settings_of(**pool: Any) -> Any:
    text = json.dumps({
        "pools": [{"name": "p", "endpoints": [{"address": ADDRESS}], **pool}],
        "listeners": [{"name": "l", "address": "127.0.0.1:9000", "pool": "p"}],
    })  # fmt: skip
    return parse_settings(text, environ={})


def at(publisher: Publisher, *, replay: bool = True, **more: Any) -> KvEventSource:
    return KvEventSource(publisher.port, publisher.replay_port if replay else 0, **more)


def view_of(*sources: KvEventSource | None) -> FleetView:
    endpoints = tuple(
        Endpoint(f"127.0.0.1:{8000 + n}", "p", kv_events=source) for n, source in enumerate(sources)
    )
    return FleetView(Membership((Pool("p", endpoints),)))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


class Running:
    """A service over a store, with what it counts."""

    def __init__(self, **pool: Any) -> None:
        self.registry = CollectorRegistry()
        self.store = FleetStore()
        self.kv = KvEvents(settings_of(**pool), self.store, self.registry)

    def freshness(self, address: str = ADDRESS) -> Freshness:
        return self.kv.view.freshness(address)

    def status(self) -> dict[str, Any]:
        return dict(dict(self.kv.status()).get(ADDRESS, {}))

    def cause(self) -> str:
        return str(self.status().get("cause", ""))

    def matched(self) -> int | None:
        return matched_in(self.kv.view, PROMPT).get(ADDRESS)

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@contextlib.asynccontextmanager
async def running(*sources: KvEventSource | None, **pool: Any) -> AsyncIterator[Running]:
    made = Running(**pool)
    await made.kv.start()
    try:
        made.store.publish(view_of(*sources))
        yield made
    finally:
        await made.kv.stop()


def first(blocks: int) -> bytes:
    return batch(stored(range(1, blocks + 1), None, PROMPT[: blocks * SIZE], SIZE))


@pytest.mark.parametrize("form", ["topic", "old", "bare"])
async def test_what_was_published_before_and_after_is_known(form: str) -> None:
    """In each form in which engines' versions answer a replay."""
    async with Publisher(form=form) as engine:
        await engine.publish(first(2), lost=True)
        async with running(at(engine)) as made:
            await until(lambda: made.freshness() is Freshness.WHOLE)
            assert made.matched() == 2 * SIZE
            await engine.subscribed()
            await engine.publish(batch(stored([3], 2, PROMPT[2 * SIZE : 3 * SIZE], SIZE)))
            await until(lambda: made.matched() == 3 * SIZE)
            assert engine.asked == [0]
            assert made.count("warmroute_kv_event_blocks_total", change="stored") == 3
            assert made.count("warmroute_kv_event_endpoints", freshness="whole") == 1
            assert made.count("warmroute_kv_event_stale_endpoints", cause="not_connected") == 0
            assert made.count("warmroute_kv_event_index_blocks") == 3


async def test_status_shows_a_healthy_publisher() -> None:
    async with Publisher() as engine, running(at(engine)) as made:
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await engine.subscribed()
        assert made.status()["ranks"][0]["last_message_seconds_ago"] is None
        await engine.publish(first(3))
        await engine.publish(batch(stored([4], 99, PROMPT[:SIZE], SIZE), removed(98)))
        await until(lambda: made.status()["ranks"][0]["unknown_removals"])
        status = made.status()
        assert status["ranks"][0].pop("last_message_seconds_ago") >= 0
        assert status == {
            "freshness": "whole",
            "shapes_without_trace": 0,
            "blocks": 3,
            "block_tokens": SIZE,
            "ranks": [{
                "connected": True, "blocks": 3, "waiting_bytes": 0, "gaps": 0, "restarts": 0,
                "unreadable": 0, "failed_replays": 0, "orphaned_blocks": 1, "unknown_removals": 1,
            }],
        }  # fmt: skip
        assert made.kv.query(Query(endpoint=ADDRESS))["kv_events"][0]["endpoint"] == ADDRESS
        assert made.kv.query(Query(endpoint="127.0.0.1:1")) == made.kv.query(Query()) == {}


async def test_explain_shows_the_cause_of_missing_events(unused_tcp_port: int) -> None:
    """By the path of operators: the admin server's answer about an endpoint, in words."""
    store, settings = FleetStore(), settings_of()
    server = ExtProcServer(settings, store, CollectorRegistry(), TracerProvider(), follow=False)

    def shown() -> dict[str, Any]:
        return dict(server.views()["/api/v1/kv_events"]())

    assert shown() == {}
    await server._kv.start()
    try:
        store.publish(view_of(KvEventSource(unused_tcp_port)))
        await until(lambda: "refused" in str(shown()))
        answer = server.queries()["/api/v1/decisions"](Query(endpoint=ADDRESS))
        assert answer["picks"] == []
        lines = [line.strip() for line in explained(answer)]
        assert "cause: not connected: connection refused" in lines
        assert "freshness: stale" in lines
    finally:
        await server._kv.stop()


async def test_status_says_why_there_is_no_connection(unused_tcp_port: int) -> None:
    async with running(KvEventSource(unused_tcp_port)) as made:
        await until(lambda: "refused" in made.cause())
        assert made.status()["freshness"] == "stale"
        assert made.cause() == "not connected: connection refused"
        assert made.count("warmroute_kv_event_stale_endpoints", cause="not_connected") == 1
        assert made.status()["block_tokens"] is None


async def test_status_names_a_peer_of_another_protocol() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request".ljust(64))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, running(KvEventSource(server.sockets[0].getsockname()[1])) as made:
        await until(lambda: "ZMTP 3" in made.cause())
        assert made.status()["ranks"][0]["unreadable"] >= 1


async def test_status_tells_what_a_lost_message_cost() -> None:
    """Without a replay, earlier blocks are void and the engine may have others."""
    async with Publisher() as engine, running(at(engine, replay=False)) as made:
        await engine.subscribed()
        await until(lambda: "no message has come" in made.cause())
        await engine.publish(first(2))
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await engine.publish(first(2), lost=True)
        await engine.publish(batch(stored([9], None, PROMPT[:SIZE], SIZE)))
        await until(lambda: made.freshness() is Freshness.PARTIAL)
        status = made.status()
        assert made.cause() == "earlier messages are missing, and no replay has them"
        assert (status["ranks"][0]["gaps"], status["blocks"]) == (1, 1)
        await engine.publish(b"junk")
        await until(lambda: made.cause() == "a message was unreadable")


async def test_status_names_a_full_index() -> None:
    async with Publisher() as engine, running(at(engine)) as made:
        made.kv.view.index.limit = 2
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await engine.subscribed()
        await engine.publish(first(4))
        await until(lambda: made.cause())
        assert "limits.index_blocks_per_endpoint" in made.cause()
        assert made.status()["freshness"] == "partial"


async def test_a_missing_publisher_is_logged_once(
    caplog: pytest.LogCaptureFixture, unused_tcp_port: int
) -> None:
    clock = LoopClock()
    async with running(KvEventSource(unused_tcp_port, 0)) as made:
        await until(lambda: "refused" in made.cause())
        assert "no connection" not in caplog.text
        for _ in range(3):
            clock.advance(MISSED_AFTER_SECONDS)
            await until(lambda: "no connection" in caplog.text)
    assert caplog.text.count(f"no connection to 127.0.0.1:{unused_tcp_port} within") == 1
    assert "pools.kv_events.port" in caplog.text


async def test_a_lost_message_is_replayed() -> None:
    async with Publisher() as engine, running(at(engine)) as made:
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await engine.subscribed()
        await engine.publish(first(1))
        await engine.publish(batch(stored([2], 1, PROMPT[SIZE : 2 * SIZE], SIZE)), lost=True)
        await engine.publish(batch(stored([3], 2, PROMPT[2 * SIZE : 3 * SIZE], SIZE)))
        await until(lambda: made.matched() == 3 * SIZE)
        assert engine.asked == [0, 1]
        assert made.freshness() is Freshness.WHOLE
        await until(lambda: made.count("warmroute_kv_event_faults_total", fault="gap") == 1)


async def test_restarted_engine_is_followed() -> None:
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(Publisher())
        made = await stack.enter_async_context(running(at(engine)))
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await engine.subscribed()
        for _ in range(2):
            await engine.publish(first(3))
        await until(lambda: made.matched() == 3 * SIZE)
        await engine.__aexit__()
        await until(lambda: made.freshness() is Freshness.STALE)
        async with Publisher(ports=(engine.port, engine.replay_port)) as other:
            await other.publish(first(1), lost=True)
            await until(lambda: made.matched() == SIZE)
            assert made.freshness() is Freshness.WHOLE
            assert other.asked == [1, 0]


async def test_without_replay_only_what_comes_is_known() -> None:
    async with Publisher() as engine:
        await engine.publish(first(1), lost=True)
        async with running(at(engine, replay=False)) as made:
            await engine.subscribed()
            assert made.freshness() is Freshness.STALE
            await engine.publish(first(2))
            await until(lambda: made.freshness() is Freshness.PARTIAL)
            assert made.matched() == 2 * SIZE


async def test_a_silent_replay_is_given_up() -> None:
    clock = LoopClock()
    async with Publisher() as engine:
        engine.silent = True
        await engine.publish(first(1), lost=True)
        async with running(at(engine)) as made:
            await engine.subscribed()
            await engine.publish(first(2))
            await until(lambda: engine.asked)
            assert made.cause() == "a replay is in progress"
            clock.advance(REPLAY_PATIENCE_SECONDS)
            await until(lambda: made.freshness() is Freshness.PARTIAL)
            assert made.matched() == 2 * SIZE
            assert made.status()["ranks"][0]["failed_replays"] == 1
            await until(lambda: made.count("warmroute_kv_event_replays_total", outcome="failed") == 1)


async def test_an_answer_that_breaks_off_is_continued() -> None:
    """ROUTER sockets drop what their queues do not take, the end included."""
    clock = LoopClock()
    async with Publisher() as engine:
        engine.limit = 2
        for n in range(4):
            event = stored([n + 1], n or None, PROMPT[n * SIZE : (n + 1) * SIZE], SIZE)
            await engine.publish(batch(event), lost=True)
        async with running(at(engine)) as made:
            for blocks in (2, 4):
                await until(lambda blocks=blocks: made.status().get("blocks") == blocks)
                engine.limit = 2 if blocks == 2 else None
                clock.advance(REPLAY_PATIENCE_SECONDS)
            await until(lambda: made.matched() == 4 * SIZE)
            assert made.freshness() is Freshness.WHOLE
            assert engine.asked == [0, 2, 4]


async def test_junk_is_counted_and_harms_nobody() -> None:
    async with Publisher() as engine, running(at(engine)) as made:
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await engine.subscribed()
        for frames in ((b"kv",), (b"kv", b"short", b"x"), (b"kv", b"", b""), (b"",)):
            await engine.send(*frames)
        await engine.publish(batch(["BlockMoved"]))
        await engine.publish(b"junk")
        await engine.publish(first(2))
        await until(lambda: made.matched() == 2 * SIZE)
        assert made.freshness() is Freshness.PARTIAL
        await until(lambda: made.count("warmroute_kv_event_faults_total", fault="unreadable") == 5)
        assert made.count("warmroute_kv_event_faults_total", fault="unknown_kind") == 1


async def test_other_topics_are_ignored() -> None:
    async with Publisher(topic=b"kv@other") as engine, running(at(engine, topic="kv@mine")) as made:
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await engine.subscribed()
        await engine.publish(first(2))
        await engine.send(b"kv@mine", (0).to_bytes(8, "big"), first(1))
        await until(lambda: made.matched() == SIZE)


@contextlib.asynccontextmanager
async def neighbours() -> AsyncIterator[tuple[Publisher, Publisher]]:
    """Open two publishers at neighbouring ports, which others may have taken: then somewhere else."""
    while True:
        async with Publisher() as one:
            two = Publisher(ports=(one.port + 1, one.replay_port + 1))
            try:
                async with asyncio.timeout(0.5):
                    await two.__aenter__()
            except TimeoutError:
                continue
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_exit(two)
                yield one, two
            return


async def test_each_rank_has_ports_of_its_own() -> None:
    """Rank n publishes at the port plus n."""
    async with neighbours() as (one, two):
        await one.publish(first(2), lost=True)
        await two.publish(first(4), lost=True)
        async with running(at(one, ranks=2)) as made:
            await until(lambda: made.freshness() is Freshness.WHOLE)
            assert made.matched() == 3 * SIZE


async def test_a_real_engines_recording_arrives_over_sockets() -> None:
    async with Publisher() as engine:
        entries = list(recorded())
        for entry in entries:
            if "payload" in entry:
                await engine.publish(entry["payload"], lost=True)
        async with running(at(engine)) as made:
            await until(lambda: made.freshness() is Freshness.WHOLE)
            last = entries[max(n for n, entry in enumerate(entries) if "request" in entry)]["request"]
            matched = matched_in(made.kv.view, last["tokens"])
            assert matched[ADDRESS] >= last["cached_tokens"] > 0


async def test_endpoints_that_leave_or_move_are_followed() -> None:
    async with Publisher() as one, Publisher() as two, running(at(one)) as made:
        await one.publish(first(1), lost=True)
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await two.publish(first(3), lost=True)
        made.store.publish(view_of(at(two)))
        await until(lambda: made.matched() == 3 * SIZE)
        made.store.publish(view_of(None))
        await until(lambda: made.matched() is None)
        assert list(made.kv.view.addresses) == []
        assert made.count("warmroute_kv_event_index_blocks") == 0
        # Nobody is left who would sweep while at work.
        await until(lambda: not any(made.kv.view.index._fast))


async def test_fault_on_a_message_is_logged_and_following_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Publisher() as engine, running(at(engine)) as made:
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await engine.subscribed()

        def store(*_: object) -> None:
            raise MemoryError("words of a prompt")

        with monkeypatch.context() as patched:
            patched.setattr(made.kv.view.index, "store", store)
            for _ in range(2):
                await engine.publish(first(1))
            await until(lambda: made.count("warmroute_kv_event_faults_total", fault="failed") == 2)
        assert made.freshness() is Freshness.PARTIAL
        await engine.publish(first(2))
        await until(lambda: made.matched() == 2 * SIZE)
    assert caplog.text.count("MemoryError at ") == 1
    assert "words" not in caplog.text


async def test_prompts_are_read_with_the_pools_tokenizer(tmp_path: Path) -> None:
    tokenizer, template = files(tmp_path)
    pool = {"tokenizer": str(tokenizer), "chat_template": str(template)}
    async with Publisher() as engine, running(at(engine), **pool) as made:
        await until(lambda: made.freshness() is Freshness.WHOLE)
        await engine.subscribed()
        long = " ".join(f"train {number} of the day" for number in range(2000))
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": long}]}).encode()
        answers: list[bool] = []

        def whole() -> bool:
            asked = located(made.kv.lookup, "p", "m", body)
            if asked is not None:
                answers.append(asked.whole)
            return answers[-1:] == [True]

        await until(whole)
        assert answers[0] is False
        assert located(made.kv.lookup, "p", "m", b'{"prompt": [1, 2]}') is not None


async def test_wrong_tokenizer_is_logged_and_ids_still_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    named = str(tmp_path / "tokenizer.json")
    async with Publisher() as engine, running(at(engine), tokenizer=named) as made:
        ask = partial(located, made.kv.lookup)
        await until(lambda: ask("p", "m", b'{"prompt": [1, 2]}', complete=True) is not None)
        assert ask("p", "m", b'{"prompt": "x"}', complete=True) is None
    assert "tokenizer not usable" in caplog.text


async def test_changed_settings_are_taken_over(tmp_path: Path) -> None:
    tokenizer, template = files(tmp_path)
    async with Publisher() as engine, running(at(engine)) as made:
        ask = partial(located, made.kv.lookup)
        await until(lambda: ask("p", "m", b'{"prompt": [1, 2]}', complete=True) is not None)
        body = b'{"messages": [{"role": "user", "content": "x"}]}'
        assert ask("p", "m", body, complete=True) is None
        await made.kv.apply(settings_of(tokenizer=str(tokenizer), chat_template=str(template)))
        assert ask("p", "m", body, complete=True) is not None


async def test_without_the_extra_token_ids_still_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    tokenizer, _ = files(tmp_path)
    async with Publisher() as engine, running(at(engine), tokenizer=str(tokenizer)) as made:
        await engine.subscribed()
        await engine.publish(first(2))
        await until(lambda: made.matched() == 2 * SIZE)
        assert located(made.kv.lookup, "p", "m", b'{"prompt": [1]}') is not None
        made.store.publish(view_of(at(engine), at(engine)))
        await until(lambda: len([*made.kv.status()]) == 2)
    assert caplog.text.count("extra kv-events") == 1


async def test_extra_is_not_loaded_before_a_pool_needs_it() -> None:
    script = (
        "import sys, warmroute.cli.main, ext_proc.app, ext_proc.kv.service, xds_server.app\n"
        "print(sorted({'zmq', 'tokenizers', 'jinja2'} & set(sys.modules)))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.strip() == b"[]"


def test_event_sources_reach_workers_over_the_control_stream() -> None:
    events = {"port": 5557, "replay_port": 5667, "topic": "kv", "ranks": 2}
    endpoints = [
        {"address": ADDRESS},
        {"address": "127.0.0.1:8001", "kv_events": {"port": 7000}},
    ]
    told = membership(settings_of(kv_events=events, endpoints=endpoints))
    assert [endpoint.kv_events for endpoint in told.endpoints] == [
        KvEventSource(5557, 5667, "kv", 2), KvEventSource(7000)
    ]  # fmt: skip
    far = decode_membership(encode_membership(told).membership)
    assert [endpoint.kv_events for endpoint in far.endpoints] == [e.kv_events for e in told.endpoints]
    silent = membership(settings_of())
    assert silent.endpoints[0].kv_events is None
    assert decode_membership(encode_membership(silent).membership).endpoints[0].kv_events is None
    assert replace(silent.endpoints[0], kv_events=KvEventSource(1)) != silent.endpoints[0]


@pytest.mark.parametrize("pool", [
    {"kv_events": {"port": 65_535, "ranks": 2}},
    {"kv_events": {"port": 1, "replay_port": 65_530, "ranks": 7}},
    {"kv_events": {}},
    {"chat_template": "/x"},
    {"tokenizer": "x"},
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(pool: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"kv_events|chat_template|tokenizer"):
        settings_of(**pool)


async def test_replays_of_one_endpoint_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank of a hostile engine needs a replay that never ends."""
    world = World()
    begun: list[str] = []

    async def endless(subscriber: RankSubscriber) -> None:
        begun.append(subscriber._host)
        await asyncio.Event().wait()

    monkeypatch.setattr(RankSubscriber, "_replay", endless)
    replays, metrics = asyncio.Semaphore(REPLAYS_AT_ONCE), KvMetrics(CollectorRegistry())
    turns = Turns(world.clock)
    tasks = []
    for host, ranks in (("hostile", REPLAYS_AT_ONCE), ("honest", 1)):
        more = Limits(turns, replays), metrics, world.clock
        for rank, tracker in enumerate(world.join(host, ranks=ranks)):
            subscriber = RankSubscriber(host, KvEventSource(1, 2), rank, tracker, *more)
            tracker.sequence.replay_from = 0
            assert tracker.cause == "a replay waits for its turn"
            subscriber._work.set()
            tasks.append(asyncio.create_task(subscriber._apply()))
    await until(lambda: "honest" in begun)
    assert begun == ["hostile", "honest"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
