"""The nginx of `deploy/front` and traps in it, for real, in front of Envoy: what the doctor says holds."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.envoy.conftest import free_address
from warmroute.cli.view.front_files import read_front
from warmroute.demo.processes import Child
from warmroute.doctor.front.rules import RULES
from warmroute.doctor.rule import Context, examine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from tests.envoy.conftest import World

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="no nginx: apt-get install nginx-light")
GOOD = Path(__file__).parents[2] / "deploy" / "front" / "nginx" / "nginx.conf"
HTTP11 = "proxy_http_version 1.1;"
KEPT = 'proxy_set_header Connection "";'
TRAPS = {
    "defaults": "",
    "buffering": f"{HTTP11} {KEPT}",
    "compressing": f"{HTTP11} {KEPT} gzip on; gzip_types text/event-stream;",
    "closing": f"{HTTP11} proxy_buffering off;",
}
"""Server to what stands in its location besides `proxy_pass`."""
PATHS = "".join(f"{name}_temp_path temp;" for name in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi"))
REQUESTS = 6


@dataclass
class Front:
    """nginx before the shared Envoy."""

    world: World
    config: Path
    addresses: dict[str, str]

    def url(self, server: str, path: str) -> str:
        return f"http://{self.addresses[server]}{path}"

    def post(self, server: str, path: str = "/v1/x", **options: Any) -> Any:
        return self.world.http.post(self.url(server, path), **options)

    def rules(self, server: str) -> set[str]:
        """What the doctor finds on the way of one server."""
        text = self.config.read_text()
        line = text[: text.index(f"server_name {server};")].count("\n") + 1
        findings = examine(RULES, read_front("nginx", self.config), Context())
        return {finding.rule for finding in findings if f"nginx.conf:{line} " in finding.where}

    async def connections(self) -> int:
        """How many connections clients have opened to Envoy's listener so far."""
        address = self.world.url(path="").removeprefix("http://").replace(":", "_")
        stats = await self.world.envoy.stats(f"listener.{address}.downstream_cx_total")
        return sum(stats.values())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def nginx(shared_world: World, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    folder = tmp_path_factory.mktemp("nginx")
    addresses = {name: free_address() for name in ("llm.example.com", *TRAPS)}
    text, envoy = GOOD.read_text(), shared_world.url(path="").removeprefix("http://")
    for old, new in {
        "worker_processes auto": "worker_processes 1",
        "listen 80": f"listen {addresses['llm.example.com']}",
        "127.0.0.1:8000": envoy,
    }.items():
        assert old in text
        text = text.replace(old, new)
    servers = "".join(
        f"\nupstream {name} {{ server {envoy}; keepalive 64; }}"
        f"\nserver {{ server_name {name}; listen {addresses[name]};"
        f" location / {{ proxy_pass http://{name}; {own} }} }}"
        for name, own in TRAPS.items()
    )
    text = f"{text.rstrip().removesuffix('}')}{PATHS} access_log off;{servers}\n}}\npid nginx.pid;\n"
    config = folder / "nginx.conf"
    config.write_text(text)
    assert NGINX is not None
    process = Child(
        "nginx",
        [NGINX, "-p", str(folder), "-c", str(config), "-e", "stderr", "-g", "daemon off; user root;"],
        folder,
    )
    front = Front(shared_world, config, addresses)

    async def ready() -> bool:
        with contextlib.suppress(OSError):
            host, _, port = addresses["llm.example.com"].partition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return True
        return False

    try:
        await process.wait_for(ready)
        yield front
    finally:
        await process.stop()


@pytest.fixture
def front(nginx: Front, world: World) -> Front:
    """The one nginx, with nothing left over in Envoy from the test before."""
    assert nginx.world is world
    return nginx


GOOD_SERVER = "llm.example.com"


async def event(response: aiohttp.ClientResponse) -> bytes:
    return await response.content.readuntil(b"\n\n")


async def first_of(front: Front, server: str) -> bytes:
    async with front.post(server, "/stream?held=1") as response:
        return await event(response)


async def test_the_good_way_has_no_findings(front: Front) -> None:
    assert front.rules(GOOD_SERVER) == set()


async def test_tokens_pass_one_by_one(front: Front) -> None:
    """With `proxy_buffering on` too, so that is a note; with gzip as well, the first waits for the last."""
    release = front.world.engines.release
    release.clear()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(first_of(front, "compressing"))
        async with front.post(GOOD_SERVER, "/stream?held=1") as response:
            assert await event(response) == b"data: first\n\n"
            assert await first_of(front, "buffering") == b"data: first\n\n"
            assert not waiting.done()
            release.set()
            assert await event(response) == b"data: last\n\n"
        assert await waiting == b"data: first\n\n"
    assert "response-buffering" in front.rules("compressing")
    assert "slow-clients" in front.rules("buffering")
    assert "response-buffering" not in front.rules("buffering")


async def test_large_bodies_pass_whole(front: Front) -> None:
    """And with the default limit, a body of more than a megabyte gets 413."""
    body = b'{"prompt": "' + b"word " * (6 << 17) + b'"}'
    headers = {"content-type": "application/json"}
    async with front.post(GOOD_SERVER, data=io.BytesIO(body), headers=headers) as response:
        echoed = await response.json()
    assert (echoed["bytes"], echoed["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    async with front.post("buffering", data=io.BytesIO(body), headers=headers) as response:
        assert response.status == 413
    assert "body-limit" in front.rules("buffering")


async def test_chunked_bodies_arrive_with_their_length(front: Front) -> None:
    """A body is read whole before it goes on, so that such requests get a pick too."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"prompt": "he'
        yield b'llo"}'

    headers = {"content-type": "application/json"}
    async with front.post(GOOD_SERVER, data=pieces(), headers=headers) as response:
        echoed = dict((await response.json())["headers"])
    assert echoed["content-length"] == str(len('{"prompt": "hello"}'))
    assert "request_body" in {message.kind for message in front.world.ext_proc.messages}


async def test_connections_to_envoy_are_reused(front: Front) -> None:
    """And without an empty Connection header, each request opens one."""
    opened = {}
    for server in (GOOD_SERVER, "closing"):
        before = await front.connections()
        for _ in range(REQUESTS):
            async with front.post(server, json={}) as response:
                assert response.status == 200
        opened[server] = await front.connections() - before
    assert opened[GOOD_SERVER] <= 1
    assert opened["closing"] == REQUESTS
    assert "upstream-keepalive" in front.rules("closing")


async def test_websockets_pass(front: Front) -> None:
    """And without the headers of the handshake, they do not."""
    async with front.world.http.ws_connect(front.url(GOOD_SERVER, "/v1/realtime")) as ws:
        await ws.send_str("hello")
        assert await ws.receive_str() == "echo hello"
    handshake = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    headers = {**handshake, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    url = front.url("buffering", "/v1/realtime")
    async with front.world.http.get(url, headers=headers) as response:
        assert response.status != 101
    assert "websocket-headers" in front.rules("buffering")


async def status_over_http10(address: str) -> int:
    """Ask as an HTTP/1.0 client does, and read to the end."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/x HTTP/1.0\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    )
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


async def test_http10_clients_of_nginx_reach_envoy_by_http11(front: Front) -> None:
    assert await status_over_http10(front.addresses[GOOD_SERVER]) == 200


async def test_http10_to_envoy_gets_what_envoys_listener_allows(front: Front) -> None:
    """By default: 426 unless the listener accepts HTTP/1.0, and then a connection for each request."""
    direct = await status_over_http10(front.world.url(path="").removeprefix("http://"))
    assert direct in (200, 426)
    before = await front.connections()
    for _ in range(REQUESTS):
        async with front.post("defaults", json={"prompt": "hello"}) as response:
            assert response.status == direct
            if direct == 200:
                assert (await response.json())["bytes"] == len('{"prompt": "hello"}')
    assert await front.connections() - before == REQUESTS
    assert "http10-upstream" in front.rules("defaults")
