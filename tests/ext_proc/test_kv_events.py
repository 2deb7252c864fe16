"""Every encoding of the same events means the same, and no bytes raise."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.kv.events import (
    MAX_BLOCKS,
    MAX_EVENTS,
    Cleared,
    Removed,
    Stored,
    Tier,
    extra_of_salt,
)
from tests.ext_proc.kv_worlds import Batch, batch, decode_batch, pack, recorded, stored

TOKENS = list(range(8))
PARENT = 2**64 - 5
"""As vLLM writes it; SGLang writes the same bits as -5."""
ENCODINGS = {
    "vllm 0.10": [1.0, [["BlockStored", [1, 2], PARENT, TOKENS, 4, None]]],
    "vllm 0.11": [1.0, [["BlockStored", [1, 2], PARENT, TOKENS, 4, None, "GPU"]], 0],
    "vllm 0.16": [1.0, [["BlockStored", [1, 2], PARENT, TOKENS, 4, None, "GPU", None, None]], 0],
    "vllm 0.20": [1.0, [["BlockStored", [1, 2], PARENT, TOKENS, 4, None, "GPU", None, [None, None], 0]], 0],
    "vllm 0.32": [1.0, [
        stored([1, 2], PARENT, TOKENS, 4, lora_id=None, medium="GPU", lora_name=None,
               extra_keys=[None, None], group_idx=0, kv_cache_spec_kind="full_attention"),
    ], 0],
    "vllm main, batch as a map": {"ts": 1.0, "events": [stored([1, 2], PARENT, TOKENS, 4)]},
    "vllm, hashes as bytes": [1.0, [stored([b"\x07" * 24 + bytes(7) + b"\x01", bytes(31) + b"\x02"],  # type: ignore[list-item]
                                           b"\xff" * 31 + b"\xfb", TOKENS, 4)]],  # type: ignore[arg-type]
    "sglang 0.5": {"ts": 1.0, "events": [stored([1, 2], -5, TOKENS, 4, lora_id=None, medium="GPU")],
                   "attn_dp_rank": 0},
}  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_means_the_same(encoding: str) -> None:
    read = decode_batch(pack(ENCODINGS[encoding]))
    assert (read.unknown, read.malformed) == (0, 0)
    (event,) = read.events
    assert isinstance(event, Stored)
    assert event.tokens is not None
    assert event.tokens.tolist() == TOKENS
    assert (event.hashes, event.parent, event.block_tokens) == ((1, 2), PARENT, 4)
    assert (event.tier, event.adapter, event.extras) == (Tier.FAST, "", ())


@pytest.mark.parametrize("events", [
    [["BlockRemoved", [3], "GPU"], ["AllBlocksCleared"]],
    [["BlockRemoved", [3]], ["AllBlocksCleared"]],
    [{"type": "BlockRemoved", "block_hashes": [3], "medium": "GPU", "group_idx": 0},
     {"type": "AllBlocksCleared"}],
])  # fmt: skip
def test_removals_in_both_encodings(events: list[Any]) -> None:
    assert decode_batch(batch(*events)).events == (Removed((3,)), Cleared())


@pytest.mark.parametrize("medium", ["CPU", "STORAGE", "CPU_PINNED", "DISK", "EXTERNAL"])
def test_whatever_is_not_the_gpu_is_slow(medium: str) -> None:
    decoded = decode_batch(batch(stored([1], None, [1], 1, medium=medium), {
        "type": "BlockRemoved", "block_hashes": [1], "medium": medium}))  # fmt: skip
    assert [event.tier for event in decoded.events if isinstance(event, Stored | Removed)] == [Tier.SLOW] * 2


def test_a_tier_may_tell_hashes_alone() -> None:
    (event,) = decode_batch(batch(stored([1], None, [], 0, medium="CPU"))).events
    assert isinstance(event, Stored)
    assert event.tokens is None


def test_salts_images_and_adapters_are_identity() -> None:
    raw_event = stored([1, 2], None, range(4), 2, lora_name="l", extra_keys=[["l", "s"], ["l"]])
    (event,) = decode_batch(batch(raw_event)).events
    assert isinstance(event, Stored)
    assert (event.adapter, event.extras) == ("l", (extra_of_salt("s"), b""))
    (event,) = decode_batch(batch(stored([1], None, [1], 1, extra_keys=[[["image", 0]]]))).events
    assert isinstance(event, Stored)
    assert event.extras != (extra_of_salt("image"),)
    assert event.extras != ()


def test_no_request_can_name_a_numbered_adapter() -> None:
    (event,) = decode_batch(batch(stored([1], None, [1], 1, lora_id=3))).events
    assert isinstance(event, Stored)
    assert event.adapter == "\x003"


def test_sliding_window_caches_do_not_count() -> None:
    """A model with several kinds of attention tells the same hashes of each."""
    read = decode_batch(batch(
        stored([1], None, [1], 1, kv_cache_spec_kind="sliding_window", group_idx=0),
        stored([1], None, [1], 1, group_idx=1),
        {"type": "BlockRemoved", "block_hashes": [1], "group_idx": 1},
    ))  # fmt: skip
    assert read == Batch()


def test_unknown_kinds_are_passed_over_and_counted() -> None:
    read = decode_batch(batch(["BlockMoved", 1], {"type": "Heartbeat"}, {}, {"type": "AllBlocksCleared"}))
    assert read == Batch((Cleared(),), unknown=3)


@pytest.mark.parametrize("event", [
    stored([1, 2], None, [1], 1),
    stored([1], None, [1.5], 1),
    stored([1], None, ["1"], 1),
    stored([1], None, [[1]], 1),
    stored([1], None, [1], 0),
    stored([1], None, [1], 1, extra_keys=[None, None]),
    stored([1], None, [1], 1, extra_keys="x"),
    stored([1], None, [1], 1, medium=3),
    stored(["x"], None, [1], 1),
    stored([b""], None, [1], 1),
    stored([True], None, [1], 1),
    stored([1], "x", [1], 1),
    {"type": "BlockStored"},
    {"type": "BlockRemoved", "block_hashes": 3},
    ["BlockRemoved"],
    [], 3, None, "x",
])  # fmt: skip
def test_malformed_events_are_counted_and_the_others_count(event: Any) -> None:
    assert decode_batch(batch(event, {"type": "AllBlocksCleared"})) == Batch((Cleared(),), malformed=1)


@pytest.mark.parametrize("payload", [
    b"", b"\xc1", pack(1), pack([]), pack([1.0]), pack([1.0, {}]), pack({}), pack({"events": 3}),
    b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", pack([1.0, [["x"]] * (MAX_EVENTS + 1)]), pack({1: 2}),
    b"\x81\x90\x01", b"\x81\xa6events\xc0",
])  # fmt: skip
def test_malformed_batches_are_counted(payload: bytes) -> None:
    assert decode_batch(payload) == Batch(malformed=1)


def test_long_events_come_in_parts_that_continue_each_other() -> None:
    count = 2 * MAX_BLOCKS + 3
    hashes = list(range(1, count + 1))
    read = decode_batch(
        batch(stored(hashes, 77, range(2 * count), 2, extra_keys=[["s"], *[None] * (count - 1)]))
    )
    parts = [event for event in read.events if isinstance(event, Stored)]
    assert [len(part.hashes) for part in parts] == [MAX_BLOCKS, MAX_BLOCKS, 3]
    assert [part.parent for part in parts] == [77, MAX_BLOCKS, 2 * MAX_BLOCKS]
    assert sum((part.hashes for part in parts), ()) == tuple(hashes)
    tokens = np.concatenate([part.tokens for part in parts if part.tokens is not None])
    assert tokens.tolist() == list(range(2 * count))
    assert parts[0].extras[0] == extra_of_salt("s")


def test_what_a_real_engine_published_is_all_understood() -> None:
    read = [decode_batch(entry["payload"]) for entry in recorded() if "payload" in entry]
    assert sum(decoded.unknown + decoded.malformed for decoded in read) == 0
    kinds = {type(event) for decoded in read for event in decoded.events}
    assert kinds == {Stored, Removed, Cleared}


@given(st.binary(max_size=400))
def test_no_bytes_raise(payload: bytes) -> None:
    decode_batch(payload)


_INTEGERS = st.integers(-(2**63), 2**64 - 1)
_LEAVES = st.none() | st.booleans() | _INTEGERS | st.floats() | st.text() | st.binary()
_ANY = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
)
_KINDS = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "x"])
_FIELDS = (
    *("block_hashes", "parent_block_hash", "token_ids", "block_size", "medium", "lora_name", "extra_keys"),
    *("group_idx", "kv_cache_spec_kind"),
)
_EVENT = st.one_of(
    _ANY,
    st.tuples(_KINDS, st.lists(_ANY)).map(lambda pair: [pair[0], *pair[1]]),
    st.fixed_dictionaries({"type": _KINDS}, optional=dict.fromkeys(_FIELDS, _ANY)),
)


@pytest.mark.untraced
@given(st.lists(_EVENT, max_size=5))
def test_no_event_raises_and_each_is_accounted_for(events: list[Any]) -> None:
    read = decode_batch(msgspec.msgpack.encode([1.0, events, None]))
    assert read.unknown + read.malformed <= len(events)
