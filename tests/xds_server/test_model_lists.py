"""What engines list: which names count, and routes and headers that follow from it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.models import MOST_NAMES
from fleet.names import TYPE_LISTENER, TYPE_ROUTE
from fleet.settings import Settings, parse_settings
from fleet.settings.membership import membership
from xds_server.endpoints.engine_client import EngineClient
from xds_server.endpoints.model_lists import MOST_LISTED, ModelLists, names_of
from xds_server.envoy.build import build_snapshot
from xds_server.envoy.models import MOST_ANSWER_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from xds_server.snapshot.snapshot import Snapshot


def listing(*ids: Any) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": each, "object": "model"} for each in ids]}).encode()


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (listing("m", "lora", "lora", "x/y"), ("lora", "x/y")),
        (listing(), ()),
        (listing("", "a\nb", "z" * 257), ()),
        (listing(*map(str, range(1000))), tuple(map(str, range(MOST_LISTED)))),
        (listing(3, "a"), ("a",)),
        (b"[]", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_names_that_count(body: bytes, names: tuple[str, ...] | None) -> None:
    assert names_of(body, ("m",)) == names


def snapshot_of(
    listed: tuple[str, ...] = (), pools: tuple[str, ...] = ("a", "b"), last: str = "", **sections: Any
) -> Snapshot:
    """All engines list these models, or those of the `last` pool alone."""
    settings = settings_of(pools, **sections)
    members = membership(settings)
    changed = tuple(
        Pool(
            pool.name,
            tuple(
                dataclasses.replace(end, listed=listed if last in ("", pool.name) else ())
                for end in pool.endpoints
            ),
        )
        for pool in members.pools
    )
    return build_snapshot(settings, Membership(changed), {}, frozenset())


def settings_of(pools: tuple[str, ...], **sections: Any) -> Settings:
    made = [
        {"name": name, "models": [f"m{name}"], "endpoints": [{"address": f"10.0.0.{n}:80"}]}
        for n, name in enumerate(("a", "b"), start=1)
    ]
    listener = {"name": "l", "address": "127.0.0.1:9000", "pools": pools}
    return parse_settings(json.dumps({"pools": made, "listeners": [listener], **sections}), environ={})


def host_of(snapshot: Snapshot) -> Any:
    config = route_pb2.RouteConfiguration.FromString(snapshot.of_type(TYPE_ROUTE)["l"].body.value)
    return config.virtual_hosts[0]


def test_listed_names_change_routes_only_where_pools_compete() -> None:
    assert snapshot_of(("lora",)).version(TYPE_ROUTE) != snapshot_of().version(TYPE_ROUTE)
    assert snapshot_of(("lora",), ("a",)).version(TYPE_ROUTE) == snapshot_of((), ("a",)).version(TYPE_ROUTE)
    assert snapshot_of(("lora",)).version(TYPE_LISTENER) == snapshot_of().version(TYPE_LISTENER)


def test_routes_grow_with_pools_not_with_names() -> None:
    few, many = (len(host_of(snapshot_of(names)).routes) for names in ((), tuple(map(str, range(200)))))
    assert few == many


def test_longest_list_of_models_is_within_what_envoy_takes() -> None:
    config = host_of(snapshot_of(tuple(f"{n}" + "\u00e9" * 250 for n in range(MOST_NAMES))))
    (answer,) = (route.direct_response for route in config.routes if route.name == "models")
    assert len(answer.body.inline_string) <= MOST_ANSWER_BYTES
    names = [model["id"] for model in json.loads(answer.body.inline_string)["data"]]
    assert names[0] == "ma"
    assert len(names) > 100


def test_conditions_are_made_once_for_all_routes() -> None:
    """Each name in each route of a pool, one by one, took minutes of the loop."""
    times = []
    for count in (10, 1000):
        began = time.process_time()
        snapshot_of(tuple(f"lora/{n}" for n in range(count)), last="b")
        times.append(time.process_time() - began)
    assert times[1] < 10 * times[0]


def test_routes_of_one_pool_have_no_condition() -> None:
    assert not any(route.match.dynamic_metadata for route in host_of(snapshot_of(pools=("a",))).routes)
    assert any(route.match.dynamic_metadata for route in host_of(snapshot_of()).routes)


@pytest.mark.parametrize(("tenants", "shown"), [({}, True), ({"tenants_apart": True}, True), (None, False)])
def test_tenants_never_see_the_warmth_of_others(tenants: dict[str, Any] | None, shown: bool) -> None:
    pick = {"tenant_header": "x-tenant", "tenants_apart": False} if tenants is None else tenants
    pick = {**({"tenant_header": "x-tenant"} if tenants else {}), **pick}
    host = host_of(snapshot_of(ext_proc={"pick": pick}))
    names = {option.header.key for option in host.response_headers_to_add}
    assert {"x-warmroute-matched", "x-warmroute-reason", "x-warmroute-endpoint"} <= names or not shown
    assert shown or names == {"x-request-id", "x-warmroute-served", "x-warmroute-attempts"}


async def test_requests_for_lists_have_their_pools_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-secret\n")
    keys: list[str | None] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        keys.append(request.headers.get("Authorization"))
        return web.Response(body=listing("ma", "lora"))

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint = Endpoint(
        "{}:{}".format(*runner.addresses[0]), "a", ("ma",), api_key_file=str(tmp_path / "key")
    )
    changed = asyncio.Event()
    lists = ModelLists(settings_of(("a", "b")), EngineClient(), changed.set)
    members = Membership((Pool("a", (endpoint,)),))
    try:
        assert lists.joined(members) is members
        async with asyncio.timeout(60):
            await changed.wait()
        assert lists.joined(members).pools[0].endpoints[0].listed == ("lora",)
        assert lists.joined(members) is lists.joined(members)
    finally:
        await lists.close()
        await runner.cleanup()
    assert set(keys) == {"Bearer sk-secret"}
