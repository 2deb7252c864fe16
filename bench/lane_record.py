"""Record what Envoy and grpcio send to a server of the lane: the sources of `bench.lane_fuzz`.

python -m bench.lane_record bench/data/lane

A recording is what one connection received. Envoy sends buffered bodies, some at once, and resets a stream
whose client has gone. The calls of grpcio are echoed, some at once, with metadata and deadlines; one is
cancelled.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import grpc

from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.lane.budget import Budget
from fleet.lane.connection import Connection, HalfClosed, Message
from fleet.lane.limits import Limits
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from fleet.lane.connection import Event

_ROOM: Final = 1 << 28
_BODIES: Final = (0, 10, 4_000, 70_000)
_TYPES: Final = "type.googleapis.com/envoy.extensions"
_BOOTSTRAP: Final = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {types}.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, direct_response: {{status: 200}}}}]
          http_filters:
          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": {types}.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {{envoy_grpc: {{cluster_name: ext_proc}}}}
              processing_mode: {{response_header_mode: SKIP, request_body_mode: BUFFERED}}
              message_timeout: 60s
          - name: envoy.filters.http.router
            typed_config:
              "@type": {types}.filters.http.router.v3.Router
  clusters:
  - name: ext_proc
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": {types}.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: ext_proc
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{pipe: {{path: {socket}}}}}}}}}]}}]
"""


class _Tap(asyncio.Protocol):
    """A connection whose messages `answer` answers, and whose bytes are kept."""

    def __init__(self, answer: Callable[[bytes], bytes | None], received: list[bytes]) -> None:
        self._answer = answer
        self._connection = Connection(Limits(), Budget(_ROOM, _ROOM))
        self._received = received
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = transport
        self._write()

    def data_received(self, data: bytes) -> None:
        """Keep, and answer."""
        self._received.append(data)
        for event in self._connection.receive(data):
            self._take(event)
        self._write()

    def _take(self, event: Event) -> None:
        if isinstance(event, Message) and (reply := self._answer(event.data)) is not None:
            self._connection.send(event.stream, reply)
        elif isinstance(event, HalfClosed):
            self._connection.end(event.stream)

    def _write(self) -> None:
        while data := self._connection.take():
            self._transport.write(data)


def _reply(message: bytes) -> bytes | None:
    """Let a request pass; None for the one that is to be left waiting."""
    request, reply = pb.ProcessingRequest.FromString(message), pb.ProcessingResponse()
    kind = request.WhichOneof("request") or "request_headers"
    getattr(reply, kind).SetInParent()
    return None if b"wait" in message else reply.SerializeToString()


async def _envoy(socket: str) -> None:
    """Send requests through an Envoy."""
    port = free_port()
    async with (
        EnvoyProcess(_BOOTSTRAP.format(port=port, socket=socket, types=_TYPES)),
        aiohttp.ClientSession() as client,
    ):
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        await _until_up(client, url)

        async def ask(size: int) -> None:
            async with client.post(url, data=b"x" * size) as answer:
                assert answer.status == 200, await answer.text()

        await asyncio.gather(*map(ask, _BODIES))
        gone = asyncio.create_task(client.post(url, data=b"wait"))
        await asyncio.sleep(0.5)
        gone.cancel()
        await asyncio.sleep(0.5)
        await ask(100)


async def _until_up(client: aiohttp.ClientSession, url: str) -> None:
    while True:
        try:
            async with client.get(url):
                return
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.1)


async def _grpcio(socket: str) -> None:
    """Call by grpcio."""
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        call: Any = channel.stream_stream("/test.Echo/Call")

        async def echo(size: int, seconds: float | None) -> None:
            stream = call(metadata=[("x-size", str(size)), ("x-bytes-bin", bytes(9))], timeout=seconds)
            for _ in range(2):
                await stream.write(bytes(size))
                assert await stream.read() == bytes(size)
            await stream.done_writing()
            assert await stream.code() is grpc.StatusCode.OK

        await asyncio.gather(*(echo(size, 60.0 if size else None) for size in _BODIES))
        cancelled = call()
        await cancelled.write(bytes(10))
        await cancelled.read()
        cancelled.cancel()
        await echo(10, None)


_CLIENTS: Final[dict[str, tuple[Callable[[str], Awaitable[None]], Callable[[bytes], bytes | None]]]] = {
    "envoy": (_envoy, _reply),
    "grpcio": (_grpcio, lambda message: message),
}


async def record(folder: Path) -> None:
    """Write a recording of each client."""
    loop = asyncio.get_running_loop()
    for name, (send, answer) in _CLIENTS.items():
        taps: list[list[bytes]] = []

        def accept(answer: Callable[[bytes], bytes | None] = answer, taps: Any = taps) -> _Tap:
            taps.append([])
            return _Tap(answer, taps[-1])

        with tempfile.TemporaryDirectory() as place:
            server = await loop.create_unix_server(accept, f"{place}/lane")
            await send(f"{place}/lane")
            server.close()
        longest = max(map(b"".join, taps), key=len)
        (folder / f"{name}.bin.gz").write_bytes(gzip.compress(longest, mtime=0))


def main(arguments: Sequence[str] | None = None) -> int:
    """Record."""
    parser = argparse.ArgumentParser(prog="python -m bench.lane_record", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(record(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
