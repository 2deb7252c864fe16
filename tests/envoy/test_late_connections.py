"""Connections that are made late: where Envoy's own 5 s would have served, so do the limits that we write."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from bench.certificates import Authority
from tests.envoy.site import site

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

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


@pytest.mark.parametrize("promised", [{}, {"sla": SLA}], ids=["no-sla", "sla"])
async def test_a_late_handshake_is_waited_for(tmp_path: Path, promised: dict[str, Any]) -> None:
    """The engines' own process makes it, so a busy one makes it late, and all may be busy."""
    tls, context = with_tls(tmp_path)
    engines = [Engine(context) for _ in range(ENGINES)]
    async with started(*engines) as addresses:
        for engine in engines:
            engine.accept()
        async with site(tmp_path, {"late": ("http1", addresses)}, tls=tls, **promised) as made:
            assert await made.over("late") == "HTTP/1.1"


@pytest.mark.parametrize("promised", [{}, {"sla": SLA}], ids=["no-sla", "sla"])
async def test_a_full_queue_of_connections_is_waited_for(tmp_path: Path, promised: dict[str, Any]) -> None:
    """The kernel drops what does not fit; whoever accepts a moment later still serves it."""
    engines = [Engine() for _ in range(ENGINES)]
    async with started(*engines) as addresses:
        with contextlib.ExitStack() as full:
            for engine in engines:
                full.enter_context(engine.full())
            async with site(tmp_path, {"late": ("http1", addresses)}, **promised) as made:
                asked = asyncio.create_task(made.over("late"))
                await asyncio.sleep(ACCEPTS_AFTER_SECONDS)
                for engine in engines:
                    engine.accept()
                assert await asked == "HTTP/1.1"
