"""LoRA adapters' blocks and the base model's are never taken for each other's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from ext_proc.kv.adapters import MAX_NAMES, AdapterNames
from ext_proc.kv.lookup import FRESHNESS_SECONDS, KvLookup
from ext_proc.kv.service import KvEvents
from fleet.endpoint import Endpoint, KvEventSource, Membership, Pool
from fleet.settings import parse_settings
from fleet.store import FleetStore
from tests.ext_proc.kv_worlds import World, batch, located, settle, stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIZE = 16
PROMPT = list(range(100, 100 + 4 * SIZE + 1))
BODY = json.dumps({"prompt": PROMPT}).encode()
OWN = {"a": 3}
"""What the own index says, in blocks, of which the prompt has 4."""


class Asking(World):
    """A world with a pool of one followed endpoint; `blocks_by_endpoint` is what routing is told."""

    def __init__(self, *models: Sequence[str]) -> None:
        super().__init__()
        self.lookup = KvLookup(self.view, self.clock, 4096)
        self.lookup.set_pool("p", ["a"], None, models)
        self.next_hash = 1

    def store(self, blocks: int, **more: object) -> None:
        numbers = range(self.next_hash, self.next_hash + blocks)
        self.next_hash += blocks
        self.tell(stored(numbers, None, PROMPT[: blocks * SIZE], SIZE, **more))

    def blocks_by_endpoint(self, model: str, adapter: str = "", pool: str = "p") -> Mapping[str, int] | None:
        """Return what routing is told; None: it goes by its own index."""
        self.clock.now += FRESHNESS_SECONDS
        prompt = located(self.lookup, pool, model, BODY, adapter=adapter)
        return None if prompt is None else self.lookup.merged(prompt, OWN, 4)


@pytest.mark.parametrize("more", [{"lora_id": 1}, {"lora_id": 1, "lora_name": "sql"}])
def test_further_model_uses_own_index_until_events_name_it(
    more: dict[str, object],
) -> None:
    """Versions that tell names, and versions that tell numbers alone."""
    world = Asking(("base", "sql"))
    world.store(4)
    assert world.blocks_by_endpoint("sql") is None
    assert world.blocks_by_endpoint("base") == {"a": 4}
    world.store(2, **more)
    assert world.blocks_by_endpoint("sql") == ({"a": 2} if "lora_name" in more else None)
    assert world.blocks_by_endpoint("base") == {"a": 4}


def test_named_adapter_needs_events_of_that_name() -> None:
    world = Asking()
    world.store(4)
    assert world.blocks_by_endpoint("m", adapter="sql") is None
    world.store(2, lora_name="sql")
    assert world.blocks_by_endpoint("m", adapter="sql") == {"a": 2}


def test_numbered_adapters_leave_only_models_of_the_settings() -> None:
    world, named = Asking(), Asking(("m",))
    for each in (world, named):
        each.store(4)
        assert each.blocks_by_endpoint("m") == {"a": 4}
        each.store(1, lora_id=1)
    assert world.blocks_by_endpoint("m") is None
    assert named.blocks_by_endpoint("m") == {"a": 4}
    assert named.blocks_by_endpoint("sql") is None
    assert world.blocks_by_endpoint("") == {"a": 4}, "a body without a model means the base's"


def test_upgraded_engine_publishes_names() -> None:
    world = Asking(("base", "sql"))
    world.store(1, lora_id=1)
    assert world.blocks_by_endpoint("sql") is None
    world.store(2, lora_id=1, lora_name="sql")
    assert world.blocks_by_endpoint("sql") == {"a": 2}


def test_mixed_names_and_numbers_use_own_index() -> None:
    world = Asking(("base", "sql"))
    other = world.join("b")[0]
    world.lookup.set_pool("p", ["a", "b"], None, [("base", "sql")])
    world.store(2, lora_name="sql")
    assert world.blocks_by_endpoint("sql") == {"a": 2}
    other.sequence.live(0, batch(stored([1], None, PROMPT[:SIZE], SIZE, lora_id=1)))
    settle(other)
    assert world.blocks_by_endpoint("sql") is None
    assert world.blocks_by_endpoint("base") is not None
    world.view.forget("b")
    assert world.blocks_by_endpoint("sql") == {"a": 2}


def test_an_adapters_name_is_its_pools() -> None:
    """A full model elsewhere may have the same one."""
    world = Asking()
    other = world.join("b")[0]
    world.lookup.set_pool("q", ["b"])
    world.store(1, lora_name="sql")
    other.sequence.live(0, batch(stored(range(1, 5), None, PROMPT[: 4 * SIZE], SIZE)))
    settle(other)
    assert world.blocks_by_endpoint("sql", pool="q") == {**OWN, "b": 4}
    assert world.blocks_by_endpoint("sql") == {"a": 1}


def test_model_both_own_and_further_is_unknown() -> None:
    world = Asking(("base", "sql"), ("sql",))
    world.store(4)
    assert world.blocks_by_endpoint("sql") is None
    assert world.blocks_by_endpoint("base") == {"a": 4}


def test_names_are_bounded_and_recent_ones_stay() -> None:
    names, only = AdapterNames(), {"a"}
    names.add("a", "often")
    for number in range(3 * MAX_NAMES):
        names.add("a", f"l{number}")
        if number % 100 == 0:
            names.add("a", "often")
    assert names.has("often", only)
    assert names.has(f"l{3 * MAX_NAMES - 1}", only)
    assert not names.has("l0", only)
    assert len(names._endpoints) == len(names._names["a"]) == MAX_NAMES


def test_nothing_stays_of_an_endpoint_that_left() -> None:
    names = AdapterNames()
    for address in ("a", "b"):
        names.add(address, "l")
        names.add(address, "\0001")
    names.forget("a")
    assert not names.has("l", {"a"})
    assert names.has("l", {"a", "b"})
    assert not names.numbered({"a"})
    assert names.numbered({"a", "b"})
    names.forget("b")
    names.forget("c")
    assert (names._names, names._endpoints, names._numbered) == ({}, {}, set())


async def test_a_service_knows_what_its_pools_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = parse_settings(
        'pools: [{name: p, endpoints: [{address: "127.0.0.1:8000"}]}]\n'
        'listeners: [{name: l, address: "127.0.0.1:9000", pool: p}]',
        environ={},
    )
    service = KvEvents(settings, FleetStore(), CollectorRegistry())
    source = KvEventSource(1)
    # No socket is opened.
    monkeypatch.setattr(
        service, "_join", lambda endpoint: service._sources.update({endpoint.address: source})
    )
    endpoint = Endpoint("127.0.0.1:8000", "p", ("base", "sql"), kv_events=source)
    await service.follow(Membership((Pool("p", (endpoint,)),)))
    assert located(service.lookup, "p", "base", BODY) is not None
    assert located(service.lookup, "p", "sql", BODY) is None
    await service.follow(Membership(()))
    assert located(service.lookup, "p", "base", BODY) is None
    assert service.lookup._pools == {}
