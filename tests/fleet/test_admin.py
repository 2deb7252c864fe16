"""The admin server's questions, changes and errors, over HTTP."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from fleet.service.admin import MAX_BODY_BYTES, AdminServer, ApiError, Query, _json_by_turns
from fleet.service.admin_access import Access
from fleet.service.turns import SLICE_SECONDS, Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PATH = "/api/v1/decisions"
CHANGE = "/api/v1/update"


class Served:
    """A server, its client and what it was asked."""

    def __init__(self, port: int) -> None:
        self.registry = CollectorRegistry()
        self.queries: list[Query] = []
        self.bodies: list[Any] = []
        address = f"127.0.0.1:{port}"
        self.server = AdminServer(
            Access(address),
            self.registry,
            lambda: True,
            {"/api/v1/broken": self.fail},
            queries={PATH: [self.first, lambda _: {"second": 2}]},
            actions={CHANGE: self.change},
        )
        self.url = f"http://{address}"

    def fail(self) -> None:
        raise RuntimeError("secret")

    def first(self, query: Query) -> dict[str, Any]:
        self.queries.append(query)
        return {"first": 1}

    async def change(self, body: Any) -> dict[str, Any]:
        self.bodies.append(body)
        if body == {"no": 1}:
            raise ApiError("not so", path="no")
        return {"done": True}


@pytest.fixture
async def served(unused_tcp_port: int) -> AsyncIterator[Served]:
    made = Served(unused_tcp_port)
    await made.server.start()
    yield made
    await made.server.stop()


async def call(served: Served, method: str, path: str, **keywords: Any) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(served.url) as client,
        client.request(method, path, **keywords) as response,
    ):
        return response.status, await response.json()


async def test_a_question_of_several_parts_gets_one_answer(served: Served) -> None:
    answer = await call(served, "GET", PATH + "?endpoint=10.0.0.1:80&limit=3")
    assert answer == (200, {"first": 1, "second": 2})
    assert (await call(served, "GET", PATH + "?request=a%20b"))[0] == 200
    assert served.queries == [Query("10.0.0.1:80", "", 3), Query("", "a b")]


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=x", "limit"),
        ("limit=%C2%B2", "limit"),
        ("pool=a", "pool"),
        ("request=" + "x" * 257, "request"),
    ],
)
async def test_a_wrong_parameter_is_named(served: Served, params: str, path: str) -> None:
    status, answer = await call(served, "GET", f"{PATH}?{params}")
    assert (status, answer["path"]) == (400, path)
    assert served.queries == []


async def test_a_change_gets_the_json_that_was_sent(served: Served) -> None:
    assert await call(served, "POST", CHANGE, json={"a": [1]}) == (200, {"done": True})
    json_type = {"content-type": "application/json"}
    assert (await call(served, "POST", CHANGE, headers=json_type))[0] == 200
    assert served.bodies == [{"a": [1]}, {}]


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[" * 100_000])
async def test_invalid_json_is_refused(served: Served, data: bytes) -> None:
    status, answer = await call(
        served, "POST", CHANGE, data=data, headers={"content-type": "application/json"}
    )
    assert status == 400
    assert "JSON" in answer["error"]
    assert served.bodies == []


async def test_errors_are_json_and_say_where(served: Served) -> None:
    assert await call(served, "POST", CHANGE, json={"no": 1}) == (400, {"error": "not so", "path": "no"})
    assert (await call(served, "POST", PATH, json={}))[0] == 405
    assert (await call(served, "GET", CHANGE))[0] == 405
    assert (await call(served, "GET", "/api/v1/none"))[0] == 404
    too_big = io.BytesIO(b'"' + b"x" * MAX_BODY_BYTES + b'"')
    status, _ = await call(served, "POST", CHANGE, data=too_big, headers={"content-type": "application/json"})
    assert status == 413


async def test_a_fault_of_ours_is_counted_and_tells_nothing(served: Served) -> None:
    assert await call(served, "GET", "/api/v1/broken") == (500, {"error": "internal error"})
    assert served.registry.get_sample_value("warmroute_admin_faults_total") == 1


async def test_long_views_are_written_by_turns() -> None:
    """5,000 endpoints took 120 ms in one piece; health and picks of the same process wait meanwhile."""
    passes, at = 0, list[int]()
    seconds = itertools.count(step=SLICE_SECONDS / 10)

    async def counting() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    def made() -> Iterator[tuple[str, dict[str, int]]]:
        for number in range(100):
            at.append(passes)
            yield str(number), {"n": number}

    view = {
        "made": made(),
        "list": [*made()],
        "none": [],
        "nobody": iter(()),
        "some": {"x": [1]},
    }
    entries = [[str(number), {"n": number}] for number in range(100)]
    at.clear()
    turns = Turns(lambda: next(seconds))
    task = asyncio.create_task(counting())
    response = await _json_by_turns(view, turns)
    objects = await _json_by_turns(made(), turns)
    task.cancel()
    assert max(map(at.count, at)) <= 12
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {**view, "made": entries, "list": entries, "nobody": []}
    assert isinstance(objects.body, bytes)
    assert json.loads(objects.body) == dict(made())
    assert (await _json_by_turns({}, turns)).body == (await _json_by_turns(iter(()), turns)).body == b"{}"
    assert (await _json_by_turns([1], turns)).body == b"[1]"


async def test_metrics_are_written_a_family_at_a_time(served: Served) -> None:
    passes, at = 0, list[int]()

    async def counting() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    class Noting(Metric):
        @property
        def samples(self) -> list[Any]:
            at.append(passes)
            return []

        @samples.setter
        def samples(self, _: list[Any]) -> None: ...

    class Families(Collector):
        def collect(self) -> list[Metric]:
            return [Noting(f"m{number}", "x", "gauge") for number in range(5)]

    served.registry.register(Families())
    task = asyncio.create_task(counting())
    async with aiohttp.ClientSession(served.url) as client, client.get("/metrics") as response:
        text = await response.text()
    task.cancel()
    assert len(set(at)) == 5
    assert "# TYPE m4 gauge" in text
