"""The process that polls the health of `serve` and of a bare gRPC server next to it.

Both are asked by the same loop on connections of their own, so what the host costs shows in both.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.peer import answer_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

_PERIOD_SECONDS: Final = 0.01
_RETRY_SECONDS: Final = 0.01
_CPU_CLOCK: Final = 2
"""Of a whole process, as the kernel numbers its clocks (`clock_getcpuclockid`)."""


class Prober:
    """Asks one server, one question at a time."""

    def __init__(self, address: str, pid: int, credentials: grpc.ChannelCredentials | None) -> None:
        """`pid` is the server's."""
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address)
        else:
            self._channel = grpc.aio.secure_channel(
                address, credentials, options=[("grpc.ssl_target_name_override", "warmroute")]
            )
        self._stub: Any = health_pb2_grpc.HealthStub(self._channel)
        self._clock_id = ~pid << 3 | _CPU_CLOCK
        self._answers: list[tuple[float, float, float]] = []
        self._open: tuple[float, float] | None = None
        self._task = asyncio.create_task(self._run())

    def take(self) -> list[tuple[float, float, float]]:
        """Return the answers since the last call: start, duration, CPU time of the server meanwhile.

        A question without an answer so far comes last, with the time until now.
        """
        taken, self._answers = self._answers, []
        return [*taken, self._answer(*self._open)] if self._open else taken

    def _answer(self, began: float, cpu: float) -> tuple[float, float, float]:
        return began, time.monotonic() - began, self._cpu() - cpu

    def _cpu(self) -> float:
        try:
            return time.clock_gettime(self._clock_id)
        except OSError:
            return 0.0  # The server has ended; what asks for it will not be answered.

    async def _run(self) -> None:
        while True:
            self._open = time.monotonic(), self._cpu()
            while True:
                try:
                    await self._stub.Check(health_pb2.HealthCheckRequest())
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(_RETRY_SECONDS)
            self._answers.append(answer := self._answer(*self._open))
            self._open = None
            await asyncio.sleep(max(0.0, _PERIOD_SECONDS - answer[1]))


def credentials_of(authority: Path, certificate: Path, key: Path) -> grpc.ChannelCredentials:
    """Return what a client with a certificate shows and expects."""
    return grpc.ssl_channel_credentials(authority.read_bytes(), key.read_bytes(), certificate.read_bytes())


def _verbs() -> dict[str, Callable[..., Awaitable[dict[str, Any]]]]:
    probers: dict[str, Prober] = {}

    async def start(servers: dict[str, tuple[str, int]], tls: list[str] | None) -> dict[str, Any]:
        from pathlib import Path  # noqa: PLC0415

        credentials = credentials_of(*map(Path, tls)) if tls else None
        for name, (address, pid) in servers.items():
            probers[name] = Prober(address, pid, credentials if name == "serve" else None)
        return {}

    async def take() -> dict[str, Any]:
        return {name: prober.take() for name, prober in probers.items()}

    return {"start": start, "take": take}


if __name__ == "__main__":
    sys.exit(answer_all(_verbs))
