"""Hosts that vanish, without FIN or RST, in a network namespace of their own; and engines that only pause."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import aiohttp
import pytest

from tests.envoy.site import site
from xds_server.envoy import clusters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.envoy.site import Site

HERE, THERE = "10.253.77.1", "10.253.77.2"
PORT = 8000
AFTER, INTERVAL, PROBES = 1, 1, 2
"""In the place of 20 s, 10 s and 3."""
LIMIT_SECONDS = 60
"""Ends a test that would wait for ever: an assertion about order, none about time."""
ENGINE = """
import asyncio
async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n5\\r\\nfirst\\r\\n")
    await asyncio.sleep(3600)
async def main():
    server = await asyncio.start_server(serve, "%s", %d)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(("ip", *words), check=check, capture_output=True, timeout=30)


@pytest.fixture
def away() -> Iterator[str]:
    """A namespace with the address `THERE`, by its name."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and iproute2")
    name = f"wr-{os.getpid()}"
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError:
        pytest.skip("this host permits no network namespace")
    try:
        ip("link", "add", "wr-here", "type", "veth", "peer", "name", "wr-there", "netns", name)
        ip("addr", "add", f"{HERE}/30", "dev", "wr-here")
        ip("link", "set", "wr-here", "up")
        ip("-n", name, "addr", "add", f"{THERE}/30", "dev", "wr-there")
        ip("-n", name, "link", "set", "wr-there", "up")
        yield name
    finally:
        ip("link", "del", "wr-here", check=False)
        ip("netns", "del", name, check=False)


@contextlib.asynccontextmanager
async def engine_in(namespace: str) -> AsyncIterator[None]:
    """An engine that sends one token and computes for an hour."""
    program = ENGINE % (THERE, PORT)
    process = await asyncio.create_subprocess_exec(
        "ip", "netns", "exec", namespace, sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
def soon() -> Iterator[None]:
    with mock.patch.multiple(
        clusters,
        _KEEPALIVE_AFTER_SECONDS=AFTER,
        _KEEPALIVE_INTERVAL_SECONDS=INTERVAL,
        _KEEPALIVE_PROBES=PROBES,
    ):
        yield


async def stream(world: Site) -> aiohttp.ClientResponse:
    url = f"http://{world.addresses['chat']}/v1/chat/completions"
    return await world.client.post(url, json={"messages": []})


@pytest.mark.usefixtures("soon")
async def test_streams_of_a_vanished_host_end(tmp_path: Path, away: str) -> None:
    """Its engine may compute for an hour without a word; a host that answers no probe of TCP is gone."""
    pools = {"chat": ("http1", [f"{THERE}:{PORT}"])}
    async with engine_in(away), site(tmp_path, pools) as world, asyncio.timeout(LIMIT_SECONDS):
        response = await stream(world)
        assert await response.content.readexactly(5) == b"first"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * (AFTER + INTERVAL * PROBES)):
                await response.content.read()
        ip("-n", away, "link", "set", "wr-there", "down")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()
        response.close()


READER = """
import asyncio, sys
async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    await reader.readexactly(int(sys.argv[1]))
    writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 4\\r\\n\\r\\nread")
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@pytest.mark.usefixtures("soon")
async def test_a_paused_engine_loses_no_large_body(tmp_path: Path) -> None:
    """Its kernel answers and its window is full, for longer than the probes of a host take."""
    body = b"x" * 30_000_000
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READER, str(len(body)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        engine = f"127.0.0.1:{int(await process.stdout.readline())}"
        pools = {"chat": ("http1", [engine])}
        async with site(tmp_path, pools, retries=0) as world, asyncio.timeout(LIMIT_SECONDS):
            process.send_signal(signal.SIGSTOP)
            url = f"http://{world.addresses['chat']}/v1/files"
            sending = asyncio.create_task(world.client.post(url, data=io.BytesIO(body)))
            await asyncio.wait([sending], timeout=3 * (AFTER + INTERVAL * PROBES))
            process.send_signal(signal.SIGCONT)
            async with await sending as response:
                assert (response.status, await response.read()) == (200, b"read")
    finally:
        process.kill()
        await process.wait()


def keepalive_seconds(port: int) -> list[float]:
    """Seconds until the next probe of each connection to a port here, from the kernel's table (proc(5))."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = [row[5].split(":") for row in rows if int(row[2].rpartition(":")[2], 16) == port]
    return [int(left, 16) / os.sysconf("SC_CLK_TCK") for kind, left in timers if kind == "02"]


async def test_connections_to_engines_are_probed(tmp_path: Path) -> None:
    """The default: the first probe after 20 s of silence, so that a stream ends within a minute."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            await reader.read()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with site(tmp_path, {"chat": ("http1", [f"127.0.0.1:{port}"])}) as world:
            response = await stream(world)
            assert await response.content.readexactly(5) == b"first"
            assert any(0 < left <= 20 for left in keepalive_seconds(port))
            response.close()
