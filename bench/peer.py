"""A child process that answers questions: one JSON object a line on its standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, Final, Self

from fleet.service.logs import configure_logging
from fleet.service.serving import run
from warmroute.demo.processes import BenchError
from warmroute.demo.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

_LINE_BYTES: Final = 64 * 1024 * 1024
_STOP_SECONDS: Final = 5.0
_TAIL_CHARACTERS: Final = 3000


class Peer:
    """An async context manager: the process runs inside it, and ends with it or with this process."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], directory: Path) -> None:
        self.name = name
        self._argv = tethered([sys.executable, "-m", module, *arguments])
        self._log = directory / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        """Start the process; it may still be importing when this returns."""
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE_BYTES,
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close its input, which ends it; insist after a while."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def ask(self, seconds: float = 60.0, **question: Any) -> dict[str, Any]:
        """Return the answer to one question.

        Raises:
            BenchError: the process ended, or `seconds` have passed.
        """
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(json.dumps(question).encode() + b"\n")
                line = await process.stdout.readline()
        except TimeoutError:
            raise BenchError(
                f"{self.name}: no answer in {seconds:g} s to {question}:\n{self._tail()}"
            ) from None
        if not line:
            raise BenchError(f"{self.name} ended:\n{self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-_TAIL_CHARACTERS:]


def answer_all(verbs: Callable[[], Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]]) -> int:
    """Be the child: answer `{"do": VERB, ...}` with what `verbs()[VERB](...)` returns, until the input ends.

    It runs as the services do: uvloop, and the log on standard error.
    """
    configure_logging()
    return run(_answer_all(verbs))


async def _answer_all(verbs: Callable[[], Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]]) -> int:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    handlers = verbs()
    while line := await reader.readline():
        question = json.loads(line)
        answer = await handlers[question.pop("do")](**question)
        print(json.dumps(answer), flush=True)
    if stop := handlers.get("stop"):
        await stop()
    return 0
