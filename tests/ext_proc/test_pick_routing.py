"""From request to pick: prompts, models, pools, membership, settings, and what is remembered."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

import pytest

from ext_proc.pick import Reason
from ext_proc.pick.first_token import STEP_SECONDS
from fleet.endpoint import Membership, Pool
from fleet.store import FleetView
from tests.ext_proc.worlds import World, chat, http_request, pool_of, settings_with, view_of, whole

LONG = "You are a helpful assistant. " * 100


def test_the_same_prefix_goes_where_it_went_before() -> None:
    world = World(view_of(pool_of()))
    first = world.route(whole(chat(LONG)))
    second = world.route(whole(chat(LONG + "and more")))
    assert (first.reason, second.reason) == (Reason.COLD, Reason.WARM)
    assert first.endpoints[0] == second.endpoints[0]
    assert first.prefix == second.prefix
    assert second.matched_share > 0.8


def test_a_conversation_that_grows_stays_warm_for_ten_turns() -> None:
    world = World(view_of(pool_of()))
    turns, picks = [], []
    for turn in range(10):
        turns.append({"role": "user", "content": f"{turn} {LONG}"})
        body = json.dumps({"model": "m", "messages": turns}).encode()
        picks.append(world.route(whole(body)))
        turns.append({"role": "assistant", "content": f"answer {turn}"})
    assert len({pick.endpoints[0] for pick in picks}) == 1
    assert len({pick.prefix for pick in picks}) == 1
    assert all(pick.reason is Reason.WARM for pick in picks[1:])


def test_other_models_and_salts_share_nothing() -> None:
    world = World(view_of(pool_of(models=("m", "n"))))
    asked = [chat(LONG), chat(LONG, "n"), chat(LONG, cache_salt="a"), chat(LONG, cache_salt="b")]
    picks = [world.route(whole(body)) for body in asked]
    assert all(pick.reason is Reason.COLD for pick in picks)
    assert len({pick.prefix for pick in picks}) == 4
    assert world.route(whole(asked[2])).reason is Reason.WARM


def test_one_popular_prefix_does_not_overload_its_holder() -> None:
    """1,000 users of one system prompt, all in flight: the busiest endpoint is near the mean."""
    world = World(view_of(pool_of(count=8)))
    rng = random.Random(6)
    for user in range(1000):
        body = json.dumps(
            {
                "model": "m",
                "messages": [
                    {"role": "system", "content": LONG},
                    {"role": "user", "content": f"{user} " + "q" * rng.randrange(200, 20_000)},
                ],
            }
        ).encode()
        world.director.started(world.route(whole(body)).endpoints[0])
        world.clock.now += 0.001
    counts = [entry.in_flight for entry in world.director.traffic.snapshot()]
    assert sum(counts) == 1000
    assert max(counts) < 2 * 1000 / 8


def test_key_order_and_white_space_change_nothing() -> None:
    world = World(view_of(pool_of()))
    one = world.route(whole(chat(LONG)))
    spaced = json.dumps({"messages": [{"content": LONG, "role": "user"}], "model": "m"}, indent=3).encode()
    assert world.route(whole(spaced)).prefix == one.prefix


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "hi"},
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2, 3]},
        {"prompt": [[1, 2], [3]]},
        {"messages": [{"role": "user", "content": "hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
        {"messages": [{"role": "user"}]},
        {"input": "hi"},
        {"input": ["a", "b"]},
        {"input": [1, 2]},
        {"input": [[1], [2]]},
    ],
)
def test_every_legal_prompt_shape_is_picked_for(body: dict[str, Any]) -> None:
    pick = World(view_of(pool_of())).route(whole(json.dumps({"model": "m", **body}).encode()))
    assert len(pick.endpoints) == 3
    assert len(pick.prefix) == 16


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        (b"", {Reason.NOT_JSON}),
        (b"[" * 40_000, {Reason.TOO_DEEP, Reason.NOT_JSON, Reason.WRONG_SHAPE}),
        (b'{"model":"m","messages":' + b"[" * 40_000, {Reason.TOO_DEEP, Reason.NOT_JSON}),
        (b'{"model":"m","prompt":"\\ud835"}', set(Reason)),
        (b'{"model":"m","prompt":"x","n":' + b"9" * 5000 + b"}", set(Reason)),
        (b"[]", {Reason.WRONG_SHAPE, Reason.NO_PROMPT, Reason.NOT_JSON}),
        (b'{"model":"m","prompt":NaN}', {Reason.NOT_JSON}),
        (b'{"model":"m","model":"n","prompt":"x"}', {Reason.AMBIGUOUS}),
        ('{"model":"m","prompt":"x"}'.encode("utf-16"), {Reason.NOT_JSON}),
        (b'{"model":7,"prompt":"x"}', {Reason.WRONG_SHAPE}),
        (b'{"model":"m"}', {Reason.NO_PROMPT}),
        (b"\xff\xfe\x00", {Reason.NOT_JSON}),
        (b"--x\r\nContent-Disposition: form-data\r\n\r\n", {Reason.NOT_JSON}),
    ],
)
def test_hostile_bodies_raise_nothing(body: bytes, reasons: set[Reason]) -> None:
    world = World(view_of(pool_of()))
    assert world.route(whole(body)).reason in reasons
    assert world.route(whole(chat(LONG))).endpoints


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", " x-gzip"])
def test_a_compressed_body_is_read(encoding: str) -> None:
    world = World(view_of(pool_of()))
    packed = world.route(whole(gzip.compress(chat(LONG)), content_encoding=encoding))
    plain = world.route(whole(chat(LONG)))
    assert (plain.prefix, plain.reason) == (packed.prefix, Reason.WARM)


@pytest.mark.parametrize("encoding", ["snappy", " zstd", "gzip, br"])
def test_an_unknown_or_broken_coding_is_no_pick(encoding: str) -> None:
    body = gzip.compress(chat(LONG))
    pick = World(view_of(pool_of())).route(whole(body, content_encoding=encoding))
    assert (pick.endpoints, pick.reason) == ((), Reason.COMPRESSED)


def test_identity_is_no_compression() -> None:
    pick = World(view_of(pool_of())).route(whole(chat(LONG), content_encoding="Identity"))
    assert pick.endpoints


def test_a_cut_body_matches_what_the_whole_one_left() -> None:
    world = World(view_of(pool_of()))
    body = chat(LONG * 10)
    sent = world.route(whole(body))
    world.clock.now += 1.0  # What was computed is there.
    cut = world.route(http_request(body[:10_000], complete=False))
    assert cut.reason is Reason.WARM
    assert cut.endpoints[0] == sent.endpoints[0]


def test_without_a_view_there_is_no_pick() -> None:
    assert World().route(whole(chat(LONG))).reason is Reason.NO_FLEET


def test_a_pool_without_endpoints_is_no_pick() -> None:
    assert World(view_of(Pool("p"))).route(whole(chat(LONG))).reason is Reason.NO_ENDPOINT


def test_a_model_that_nobody_serves_is_no_pick() -> None:
    assert World(view_of(pool_of())).route(whole(chat(LONG, "x"))).reason is Reason.UNKNOWN_MODEL


@pytest.mark.parametrize(
    ("cluster", "model", "expected"),
    [
        ("a", "m", "a"),
        ("b", "m", "b"),
        ("", "only-b", "b"),
        ("", "m", None),
        ("x", "m", None),
        ("", None, None),
    ],
)
def test_pool_is_the_cluster_otherwise_that_of_the_model(
    cluster: str, model: str | None, expected: str | None
) -> None:
    view = view_of(pool_of("a", base=1, models=("m",)), pool_of("b", base=2, models=("m", "only-b")))
    pick = World(view).route(whole(chat(LONG, model), cluster=cluster))
    if expected is None:
        assert pick.reason is Reason.NO_POOL
    else:
        assert pick.endpoints[0].startswith({"a": "10.0.1.", "b": "10.0.2."}[expected])


def test_an_endpoint_that_leaves_takes_its_warmth_along() -> None:
    world = World(view_of(pool_of()))
    first = world.route(whole(chat(LONG))).endpoints[0]
    kept = tuple(e for e in pool_of().endpoints if e.address != first)
    world.store.publish(view_of(Pool("p", kept)))
    moved = world.route(whole(chat(LONG)))
    assert moved.reason is Reason.COLD
    assert first not in moved.endpoints


def test_endpoint_that_returns_in_time_is_still_warm() -> None:
    """Discovery may lose an endpoint for a moment; what it is warm for is forgotten only after the grace."""
    world = World(view_of(pool_of()))
    first = world.route(whole(chat(LONG))).endpoints[0]
    kept = tuple(e for e in pool_of().endpoints if e.address != first)
    world.store.publish(view_of(Pool("p", kept)))
    world.director.pools.follow()
    world.clock.now += 30
    world.store.publish(view_of(pool_of(), now=world.clock.now))
    assert world.route(whole(chat(LONG))).endpoints[0] == first
    world.store.publish(view_of(Pool("p", kept), now=world.clock.now))
    world.director.pools.follow()
    world.clock.now += 61
    world.store.publish(view_of(Pool("p", kept), now=world.clock.now))
    world.director.pools.follow()
    assert world.director.warmth.index.block_count(first) == 0


def test_returned_endpoint_counts_its_requests_in_flight() -> None:
    world = World(view_of(pool_of(count=1)))
    token = world.director.started(world.route(whole(chat(LONG))).endpoints[0])
    world.store.publish(view_of(Pool("p")))
    assert world.route(whole(chat(LONG))).reason is Reason.NO_ENDPOINT
    world.store.publish(view_of(pool_of(count=1)))
    decision = world.decide(whole(chat(LONG)))
    assert decision.result.expected_seconds == pytest.approx(1.5 * STEP_SECONDS + decision.cold_seconds)
    world.director.finished(token)
    assert world.director.traffic.in_flight(token.address) == 0
    assert world.route(whole(chat("x" * 5000))).expected_seconds is not None


def test_signals_age_when_nobody_publishes_any_more() -> None:
    """The last load is too old to count: weights place what is new, and what is warm stays."""
    world = World(view_of(pool_of()))
    assert world.route(whole(chat(LONG))).reason is Reason.COLD
    world.clock.now += 11
    assert world.route(whole(chat("something else " * 50))).reason is Reason.COLD
    assert world.route(whole(chat(LONG))).reason is Reason.WARM


def test_the_index_is_as_large_as_the_engines_cache() -> None:
    world = World(view_of(pool_of(count=1), capacity=640.0))
    world.route(whole(chat("z" * 100_000)))
    assert world.director.warmth.index.block_count("10.0.0.0:80") == 640 * 4 // 256


def test_the_index_never_exceeds_its_limit() -> None:
    world = World(view_of(pool_of(count=1), capacity=1e9), limits={"index_blocks_per_endpoint": 20})
    world.route(whole(chat("z" * 100_000)))
    assert world.director.warmth.index.block_count("10.0.0.0:80") == 20


def test_looked_up_blocks_are_limited() -> None:
    world = World(view_of(pool_of(count=1)), limits={"prompt_blocks": 5})
    world.route(whole(chat("z" * 100_000)))
    assert world.director.warmth.index.block_count("10.0.0.0:80") == 5


def test_settings_are_taken_over_at_once() -> None:
    world = World(view_of(pool_of()))
    world.route(whole(chat(LONG)))
    pick = {"block_bytes": 512, "fallbacks": 0}
    world.director.reconfigure(settings_with(ext_proc={"pick": pick}))
    after = world.route(whole(chat(LONG)))
    assert (after.reason, len(after.endpoints)) == (Reason.COLD, 1), "blocks of another size match nothing"
    assert world.route(whole(chat(LONG))).reason is Reason.WARM


def test_status_tells_traffic_and_index_and_no_prompt() -> None:
    world = World(view_of(pool_of(count=1)))
    world.director.started(world.route(whole(chat("MARKER-7f3a " * 100))).endpoints[0])
    status = world.director.status()
    assert status["p"]["10.0.0.0:80"]["in_flight"] == 1
    assert "MARKER-7f3a" not in json.dumps(status)
    assert world.registry.get_sample_value("warmroute_prefix_index_blocks") == float(
        status["p"]["10.0.0.0:80"]["index_blocks"]
    )


def test_an_empty_membership_has_no_pool() -> None:
    assert World(FleetView(Membership())).route(whole(chat(LONG))).reason is Reason.NO_POOL
