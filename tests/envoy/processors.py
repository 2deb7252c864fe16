"""The product's service in processes of its own, which can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

_LIMIT_SECONDS = 300.0
_POLL_SECONDS = 0.5


class Processor:
    """One of them, which listens."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def kill(self) -> None:
        """SIGKILL: its connections break without a word; a second call does nothing."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = 0


class Nursery:
    """A process that has imported everything, which takes seconds, and forks a processor in no time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "tests.envoy.foreign")
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def start(self, socket: str, engines: Sequence[str]) -> Processor:
        """Start a processor on a Unix socket and wait until it listens."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([socket, *engines]).encode() + b"\n")
        async with asyncio.timeout(_LIMIT_SECONDS):
            return Processor(int(await process.stdout.readline()))


def mother(listen: Callable[[str, Sequence[str]], Awaitable[Any]]) -> None:
    """Fork for each line of standard input a child that listens and then tells its pid."""
    # Who was killed is nobody's zombie.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    here = os.getpid()
    while line := sys.stdin.buffer.readline():
        if os.fork() == 0:
            socket, *engines = json.loads(line)
            asyncio.run(_child(listen, socket, engines, here))
            break
    # At once: what is imported takes a while to be cleared away.
    os._exit(0)


async def _child(
    listen: Callable[[str, Sequence[str]], Awaitable[Any]], socket: str, engines: Sequence[str], parent: int
) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket)  # noqa: PTH108 - of whoever was killed before
    held = await listen(socket, engines)
    os.write(1, f"{os.getpid()}\n".encode())
    while held is not None and os.getppid() == parent:
        await asyncio.sleep(_POLL_SECONDS)
