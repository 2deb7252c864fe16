"""Connections that are made late: where Envoy's own 5 s would have served, so do the limits that we write."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from testing.certificates import Authority
from tests.envoy.site import site

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from pathlib import Path

    from tests.envoy.site import Site

SLA = {"first_token_p95_seconds": 2.0, "tolerated_error_ratio": 0.15, "base_round_trip_seconds": 0.002}
HANDSHAKE_SECONDS = 1.5
ACCEPTS_AFTER_SECONDS = 1.2
"""The kernel asks again one and three seconds after the first time."""
ENGINES = 2


class Engine:
    """Speaks HTTP/1.1, over TLS only after a while: its process has other things to do."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.bound = socket.socket()
        self.bound.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.bound.getsockname()[1]}"
        self._running: set[asyncio.Task[None]] = set()

    def accept(self) -> None:
        self.bound.listen(128)
        self.bound.setblocking(False)
        self._run(self._accept())

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self.bound.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _accept(self) -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(self.bound)
            self._run(self._serve(connection))

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Listen with a full queue, so that further connections wait until `accept`."""
        with contextlib.ExitStack() as held:
            self.bound.listen(0)
            for _ in range(3):
                caller = held.enter_context(socket.socket())
                caller.setblocking(False)
                caller.connect_ex(self.bound.getsockname())
            yield

    async def _serve(self, connection: socket.socket) -> None:
        try:
            if self.tls is not None:
                await asyncio.sleep(HANDSHAKE_SECONDS)
            reader, writer = await self._open(connection)
        except (asyncio.CancelledError, OSError):
            connection.close()
            return
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [
                    line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                ]
                await reader.readexactly(sum(int(line.partition(b":")[2]) for line in lengths))
                body = json.dumps({"over": "HTTP/1.1"}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def _open(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=self.tls)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


@contextlib.asynccontextmanager
async def started(*engines: Engine) -> Any:
    try:
        yield [engine.address for engine in engines]
    finally:
        for engine in engines:
            await engine.stop()


def with_tls(directory: Path) -> tuple[dict[str, Any], ssl.SSLContext]:
    authority = Authority(directory)
    issued = authority.issue("engine", "engines.test")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate_file, issued.key_file)
    return {"ca_file": str(authority.file), "sni": "engines.test"}, context


async def full(made: Site, pool: str, engines: Sequence[Engine]) -> str:
    """Ask while no connection is taken, and take them a moment later."""
    asked = asyncio.create_task(made.over(pool))
    await asyncio.sleep(ACCEPTS_AFTER_SECONDS)
    for engine in engines:
        engine.accept()
    return await asked


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All of them at the same time, before one Envoy: what they wait for is the same."""
    directory = tmp_path_factory.mktemp("late")
    tls, context = with_tls(directory)
    kinds = {"late": context, "late-sla": context, "full": None, "full-sla": None}
    engines = {name: [Engine(tls) for _ in range(ENGINES)] for name, tls in kinds.items()}
    more: dict[str, dict[str, Any]] = {name: {"tls": tls} for name in kinds if name.startswith("late")}
    for name in ("late-sla", "full-sla"):
        more.setdefault(name, {})["sla"] = SLA
    async with started(*(engine for held in engines.values() for engine in held)):
        with contextlib.ExitStack() as queues:
            for engine in (*engines["late"], *engines["late-sla"]):
                engine.accept()
            for engine in (*engines["full"], *engines["full-sla"]):
                queues.enter_context(engine.full())
            pools = {name: ("http1", [engine.address for engine in held]) for name, held in engines.items()}
            async with site(directory, pools, more) as made:
                found = await asyncio.gather(
                    *(made.over(name) for name in ("late", "late-sla")),
                    *(full(made, name, engines[name]) for name in ("full", "full-sla")),
                )
    return dict(zip(kinds, found, strict=True))


@pytest.mark.parametrize("pool", ["late", "late-sla"], ids=["no-sla", "sla"])
async def test_a_late_handshake_is_waited_for(outcomes: dict[str, str], pool: str) -> None:
    """The engines' own process makes it, so a busy one makes it late, and all may be busy."""
    assert outcomes[pool] == "HTTP/1.1"


@pytest.mark.parametrize("pool", ["full", "full-sla"], ids=["no-sla", "sla"])
async def test_a_full_queue_of_connections_is_waited_for(outcomes: dict[str, str], pool: str) -> None:
    """The kernel drops what does not fit; whoever accepts a moment later still serves it."""
    assert outcomes[pool] == "HTTP/1.1"
