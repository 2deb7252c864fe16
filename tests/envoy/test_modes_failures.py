"""The processor dies in the midst of a request: what real Envoys make of it, in every mode and failure mode.

`docs/picker-protocol.md` shows the same table. Short names of what a client gets:

    whole   200, and the engine saw the body as it was (or the client the whole response)
    500     an error of Envoy's, or the connection ends
    broken  200 with a body that is not what was sent, or a response that is cut
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.envoy.conftest import eventually
from tests.envoy.foreign import DUPLEX, MODES, Foreign, Way, foreign

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.envoy.processors import Nursery

BODY = json.dumps({"model": "m", "prompt": " ".join(str(number) for number in range(6000))}).encode()
HALF = len(BODY) // 2
POINTS = ("before", "headers", "body", "response")
WAYS = [
    *(Way(f"{mode}-{retries}", mode, allow=True, retries=retries) for mode in MODES for retries in (0, 2)),
    *(Way(f"{mode}-closed", mode, allow=False) for mode in MODES),
    Way("gateway", DUPLEX, allow=True, response=DUPLEX),
    Way("gateway-closed", DUPLEX, allow=False, response=DUPLEX),
    *(
        Way(f"{mode}-checked", mode, extra={"grpc_service": {"envoy_grpc": {"cluster_name": "checked"}}})
        for mode in MODES
    ),
]
TABLE = {
    # Way                        before,  after headers, mid-body, mid-response
    "NONE-0": "whole whole whole whole",
    "NONE-2": "whole whole whole whole",
    "NONE-closed": "500 whole whole whole",
    "BUFFERED-0": "whole whole whole whole",
    "BUFFERED-2": "whole whole whole whole",
    "BUFFERED-closed": "500 500 500 broken",
    "BUFFERED_PARTIAL-0": "whole whole whole whole",
    "BUFFERED_PARTIAL-2": "whole whole broken whole",
    "BUFFERED_PARTIAL-closed": "500 500 500 broken",
    "STREAMED-0": "whole whole whole whole",
    "STREAMED-2": "whole whole broken whole",
    "STREAMED-closed": "500 500 500 broken",
    f"{DUPLEX}-0": "500 whole 500 whole",
    f"{DUPLEX}-2": "500 whole 500 whole",
    f"{DUPLEX}-closed": "500 500 500 whole",
    "gateway": "500 whole 500 broken",
    "gateway-closed": "500 500 500 broken",
}
STRICT = [
    name for name in TABLE if name.endswith("-closed") or ("broken" in TABLE[name] and "gateway" not in name)
]
"""Where a processor that is killed harms most."""
STOPS = [
    *(("lane", name) for name in (*STRICT, f"{DUPLEX}-0")),
    *(("grpcio", name) for name in TABLE if name.endswith("-closed")),
    *(
        pytest.param("lane", name, marks=pytest.mark.slow)
        for name in TABLE
        if name not in STRICT and name not in ("gateway", f"{DUPLEX}-0")
    ),
]
ALWAYS = ["BUFFERED-2", f"{DUPLEX}-2"]
"""Looked at in every run, the whole table in `make slow`."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def apart() -> AsyncIterator[Foreign]:
    async with foreign(WAYS, inside=False) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def inside(request: pytest.FixtureRequest) -> AsyncIterator[Foreign]:
    """On the lane, or on the transport that the test names."""
    async with foreign(WAYS, transport=getattr(request, "param", "lane")) as made:
        yield made


class Upload:
    """One request over a connection of its own, sent step by step."""

    def __init__(self, world: Foreign, way: str, path: str) -> None:
        self._host, _, self._port = world.addresses[way].partition(":")
        self._path = path

    async def start(self, body: bytes = b"") -> None:
        """Send the headers, in one piece with this much of the body."""
        self.reader, self.writer = await asyncio.open_connection(self._host, int(self._port))
        self.writer.write(
            f"POST {self._path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n".encode()
            + body
        )

    async def outcome(self, received: bytes = b"") -> str:
        """What came of it, in the words of this module."""
        try:
            received += await asyncio.wait_for(self.reader.read(-1), 60)
        except OSError:
            return "500"
        finally:
            self.writer.close()
        if not received.startswith(b"HTTP/1.1 200"):
            return "500"
        whole = b"data: last" if "/stream" in self._path else hashlib.sha256(BODY).hexdigest().encode()
        return "whole" if whole in received else "broken"


async def die(world: Foreign, way: str, point: str, end: Callable[[], Awaitable[None]]) -> str:
    """Play a request in whose midst `end` happens and Envoy hears of it; returns its outcome."""
    world.engines.release = asyncio.Event()
    upload = Upload(world, way, "/stream?held=1" if point == "response" else "/v1/x")
    before = await world.stat(way, "stream_msgs_sent"), await world.stat(way, "stream_msgs_received")
    read = await world.bytes_received(way)
    if point == "before":
        # As clients do. A body that comes later finds Envoy informed, and full duplex fails open too.
        await end()
        await upload.start(BODY)
        return await upload.outcome()
    await upload.start()
    received = b""
    if point == "headers":
        await world.rose(way, "stream_msgs_sent", before[0])
        if not way.startswith((DUPLEX, "gateway")):
            await world.rose(way, "stream_msgs_received", before[1])
        await end()
    elif point == "body":
        upload.writer.write(BODY[:HALF])
        pieces = way.startswith((DUPLEX, "gateway", "STREAMED"))
        await world.rose(way, "stream_msgs_sent", before[0] + int(pieces))
        if not way.startswith((DUPLEX, "gateway")):
            await world.rose(way, "stream_msgs_received", before[1] + int(pieces))

        async def half() -> bool:
            return await world.bytes_received(way) > read + HALF

        await eventually(half, "half of the body")
        await end()
    upload.writer.write(BODY[HALF:] if point == "body" else BODY)
    if point == "response":
        received = await asyncio.wait_for(upload.reader.readuntil(b"data: first"), 60)
        await end()
        world.engines.release.set()
    return await upload.outcome(received)


async def killed(world: Foreign, nursery: Nursery, way: str, point: str) -> str:
    processor = await nursery.start(world.socket, world.pool)

    async def end() -> None:
        processor.kill()
        await world.deserted()

    try:
        return await die(world, way, point, end)
    finally:
        processor.kill()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", ALWAYS)
async def test_a_killed_processor(apart: Foreign, nursery: Nursery, way: str, point: str) -> None:
    """What may be expected of a configuration like ours, and of a gateway's, when failures may pass."""
    assert await killed(apart, nursery, way, point) == TABLE[way].split()[POINTS.index(point)]


@pytest.mark.slow
@pytest.mark.parametrize("way", TABLE)
async def test_a_killed_processor_in_every_way(apart: Foreign, nursery: Nursery, way: str) -> None:
    """The whole table: which combinations can fail open at all."""
    assert [await killed(apart, nursery, way, point) for point in POINTS] == TABLE[way].split()


def test_the_documents_show_the_table() -> None:
    """What is measured here is what is promised there."""
    text = (Path(__file__).parents[2] / "docs" / "picker-protocol.md").read_text()
    rows = re.findall(r"^\| `([A-Z_]+)` \| ((?:not )?allowed[^|]*) \| (.+) \|$", text, flags=re.MULTILINE)
    told = {(mode, how): [cell.strip() for cell in cells.split("|")] for mode, how, cells in rows}
    hows = {"0": "allowed, no retries", "2": "allowed, retries", "closed": "not allowed"}
    named = {way.rpartition("-")[::2]: outcome for way, outcome in TABLE.items()}
    assert told == {
        (mode, hows[how]): outcome.split() for (mode, how), outcome in named.items() if mode in MODES
    }


@pytest.mark.parametrize("mode", MODES)
async def test_a_processor_that_is_known_to_be_away_harms_no_request(apart: Foreign, mode: str) -> None:
    """A health check lets every mode fail open, full duplex too: nothing is handed over at all."""
    way = f"{mode}-checked"

    async def noticed() -> bool:
        return await die(apart, way, "before", _nothing) == "whole"

    await eventually(noticed, "the health check")
    for _ in range(5):
        assert await noticed()


async def _nothing() -> None:
    """The processor is away already."""


@pytest.mark.parametrize("point", ["headers", "body", "response"])
@pytest.mark.parametrize(("inside", "way"), STOPS, indirect=["inside"])
async def test_a_processor_that_stops_harms_no_request(inside: Foreign, way: str, point: str) -> None:
    """It ends its streams with OK, and waits for bodies that are on their way: no failure in any mode."""
    service = inside.service
    assert service is not None
    closing: list[asyncio.Task[None]] = []

    async def end() -> None:
        closing.append(asyncio.create_task(service.close(60.0)))
        # What is to end at once has done so by then; what waits for a body goes on.
        await asyncio.sleep(0.05)

    try:
        assert await die(inside, way, point, end) == "whole"
        await asyncio.gather(*closing)
    finally:
        service.closing = False


@pytest.mark.parametrize(
    "way", ["BUFFERED-closed", "BUFFERED_PARTIAL-2", "STREAMED-closed", f"{DUPLEX}-closed"]
)
async def test_faults_of_ours_harm_no_request(
    inside: Foreign, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in any step is answered, whether or not Envoy lets failures pass."""
    service = inside.service
    assert service is not None
    for step in ("pick", "started", "finished"):
        with monkeypatch.context() as patch:
            patch.setattr(service.processor.director, step, None)
            upload = Upload(inside, way, "/v1/x")
            await upload.start()
            upload.writer.write(BODY)
            assert await upload.outcome() == "whole", step
