"""Child processes that end with their parent, whatever ends the parent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvloop

from fleet.errors import WarmrouteError
from warmroute.demo.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

T = TypeVar("T")
_POLL_SECONDS: Final = 0.02
_TAIL_LINES: Final = 15


class BenchError(WarmrouteError):
    """A part of the bench did not start or ended early; the text names it and ends with its log."""


class Child:
    """One process in a session of its own, its output in a file."""

    def __init__(self, name: str, argv: Sequence[str], directory: Path) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log = directory / f"{name}.log"
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                tethered(list(self.argv)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    async def wait_for(
        self, ready: Callable[[], bool] | Callable[[], Awaitable[bool]], seconds: float = 60.0
    ) -> None:
        """Return when `ready` (or what it awaits) is true.

        Raises:
            BenchError: the process ended before, or `seconds` have passed.
        """
        try:
            async with asyncio.timeout(seconds):
                while True:
                    answer = ready()
                    if answer if isinstance(answer, bool) else await answer:
                        return
                    if not self.running:
                        raise BenchError(f"{self.name} ended at its start:\n{self.tail()}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise BenchError(f"{self.name} is not ready after {seconds:g} s:\n{self.tail()}") from None

    async def wait_for_end(self, seconds: float = 10.0) -> None:
        """Return when the process has ended.

        Raises:
            TimeoutError: `seconds` have passed.
        """
        async with asyncio.timeout(seconds):
            while self.running:  # noqa: ASYNC110 (a process has no event)
                await asyncio.sleep(_POLL_SECONDS)

    def line_after(self, start: str) -> str | None:
        """Return the rest of the first whole line that begins with `start`; None while there is none."""
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)
        whole = (line.strip() for line in lines if line.startswith(start) and line.endswith("\n"))
        return next((line.removeprefix(start) for line in whole), None)

    def tail(self) -> str:
        """Return the last lines of the output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children; one that has ended is left alone."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """End the process: ask first, then insist."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            with contextlib.suppress(TimeoutError):
                await self.wait_for_end(grace_seconds)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process at once and reap it."""
        self.signal(signal.SIGKILL)
        self._process.wait()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a bench; SIGTERM and a closed terminal end it as Ctrl-C does, with everything that it started.

    Raises:
        KeyboardInterrupt: one of the three came, and all is stopped.
    """

    async def stoppable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await main

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(stoppable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def warmroute(*arguments: str) -> list[str]:
    """The command line of a verb, run by this interpreter."""
    return [sys.executable, "-m", "warmroute.cli.main", *arguments]


_PORTS: Final = range(20_000, 32_000)
"""Below those that the kernel gives to connections, which would take one of them sooner or later."""
_BLOCK_PORTS: Final = 100
_random: Final = random.SystemRandom()
"""No seed makes two processes begin with the same block."""


class _Ports:
    """Blocks of ports, each of one process, which keeps a block's first port bound until it ends.

    So no two processes get the same port, also while nothing listens there.
    """

    def __init__(self) -> None:
        self._rest = range(0)

    def take(self, count: int) -> int:
        """Return the first of `count` ports in a row that nothing is bound to."""
        assert count < _BLOCK_PORTS, count
        while True:
            while len(self._rest) < count:
                self._rest = self._new_block()
            ports, self._rest = self._rest[:count], self._rest[count:]
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                for port in ports:
                    stack.enter_context(_bound(port))
                return ports[0]

    def _new_block(self) -> range:
        blocks = len(_PORTS) // _BLOCK_PORTS
        for number in _random.sample(range(blocks), blocks):
            block = _PORTS[number * _BLOCK_PORTS :][:_BLOCK_PORTS]
            with contextlib.suppress(OSError):
                _bound(block[0]).detach()  # Bound until the process ends.
                return block[1:]
        raise BenchError(f"all ports from {_PORTS.start} to {_PORTS.stop - 1} are taken")


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        raise
    return bound


_ports: Final = _Ports()


def free_ports(count: int) -> int:
    """Return the first of `count` (99 at most) loopback ports in a row that no other caller gets.

    Raises:
        BenchError: there are none.
    """
    return _ports.take(count)


def free_port() -> int:
    """Return a loopback port that is free now and that no other caller gets."""
    return _ports.take(1)
