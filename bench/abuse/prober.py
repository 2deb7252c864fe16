"""The process that polls `serve`, by its gRPC health check and its admin page, and a bare gRPC server.

One loop polls all of them, each on its own connection, so delays by the host show in each.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.peer import answer_all
from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

_PERIOD_SECONDS: Final = 0.01
_RETRY_SECONDS: Final = 0.01
_CPU_CLOCK: Final = 2
"""Of a whole process, as the kernel numbers its clocks (`clock_getcpuclockid`)."""


class Prober:
    """Sends one request at a time to one server."""

    def __init__(self, request: Callable[[], Awaitable[object]], pid: int) -> None:
        """`request` returns once the server has answered; `pid` is the server's."""
        self._request = request
        self._clock_id = ~pid << 3 | _CPU_CLOCK
        self._answers: list[tuple[float, float, float]] = []
        self._open: tuple[float, float] | None = None
        self._task = asyncio.create_task(self._run())

    def take(self) -> list[tuple[float, float, float]]:
        """Return the answers since the last call: start, duration, CPU time of the server meanwhile.

        A request without an answer so far comes last, with the time until now.
        """
        taken, self._answers = self._answers, []
        return [*taken, self._answer(*self._open)] if self._open else taken

    def _answer(self, began: float, cpu: float) -> tuple[float, float, float]:
        return began, time.monotonic() - began, self._cpu() - cpu

    def _cpu(self) -> float:
        try:
            return time.clock_gettime(self._clock_id)
        except OSError:
            return 0.0  # The server has ended, and its next request gets no answer.

    async def _run(self) -> None:
        while True:
            self._open = time.monotonic(), self._cpu()
            while True:
                try:
                    await self._request()
                    break
                except (grpc.aio.AioRpcError, OSError):
                    await asyncio.sleep(_RETRY_SECONDS)
            self._answers.append(answer := self._answer(*self._open))
            self._open = None
            await asyncio.sleep(max(0.0, _PERIOD_SECONDS - answer[1]))


def health_check(
    address: str, credentials: grpc.ChannelCredentials | None = None
) -> Callable[[], Awaitable[object]]:
    """Return the health check of a gRPC server."""
    options = [("grpc.ssl_target_name_override", "warmroute")]
    channel = (
        grpc.aio.insecure_channel(address)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=options)
    )
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return lambda: stub.Check(health_pb2.HealthCheckRequest())


class AdminPage:
    """GET /healthz of admin, on one connection as long as the server keeps it."""

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        self._host, self._port = split_host_port(address)
        self._tls = tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self) -> None:
        """Return once the whole answer is there.

        Raises:
            OSError: the connection failed, or ended.
        """
        try:
            if self._streams is None:
                name = "warmroute" if self._tls else None
                self._streams = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, server_hostname=name
                )
            reader, writer = self._streams
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        except BaseException as error:
            if self._streams is not None:
                self._streams[1].transport.abort()
            self._streams = None
            if isinstance(error, asyncio.IncompleteReadError):
                raise ConnectionError("admin closed the connection") from error
            raise


def credentials_of(authority: Path, certificate: Path, key: Path) -> grpc.ChannelCredentials:
    """Return what a client with a certificate shows and expects."""
    return grpc.ssl_channel_credentials(authority.read_bytes(), key.read_bytes(), certificate.read_bytes())


def _verbs() -> dict[str, Callable[..., Awaitable[dict[str, Any]]]]:
    probers: dict[str, Prober] = {}

    async def start(
        serve: tuple[str, int], bare: tuple[str, int], admin: str, tls: list[str] | None
    ) -> dict[str, Any]:
        from pathlib import Path  # noqa: PLC0415

        credentials = credentials_of(*map(Path, tls)) if tls else None
        context = ssl.create_default_context(cafile=tls[0]) if tls else None
        probers["serve"] = Prober(health_check(serve[0], credentials), serve[1])
        probers["bare"] = Prober(health_check(bare[0]), bare[1])
        probers["admin"] = Prober(AdminPage(admin, context).get, serve[1])
        return {}

    async def take() -> dict[str, Any]:
        return {name: prober.take() for name, prober in probers.items()}

    return {"start": start, "take": take}


if __name__ == "__main__":
    sys.exit(answer_all(_verbs))
