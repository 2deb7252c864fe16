"""Many engines that are only their metrics pages: one process, a port each, and pages that grow.

Run by `bench.scrape`. Prints the ports as one JSON line and serves until its input closes.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parent / "data" / "vllm-metrics.txt"
_PAGES: Final = 32
"""Different pages; each connection gets them one after the other, then the last again and again."""
_GROWING: Final = re.compile(rb"(?m)^(vllm:\S+(?:_total|_bucket|_sum|_count)(?:\{[^}]*\})?) (\S+)$")


def pages() -> list[bytes]:
    """The recorded page, and what it may look like after more and more work."""
    recorded = PAGE.read_bytes()
    return [_grown(recorded, number + 1) for number in range(_PAGES)]


def _grown(page: bytes, times: int) -> bytes:
    def longer(line: re.Match[bytes]) -> bytes:
        return b"%b %.1f" % (line[1], float(line[2]) * times)

    return _GROWING.sub(longer, page)


class Engine(asyncio.Protocol):
    """Answers every request on its connection with a page."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers
        self._served = 0
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each head that has come whole."""
        assert self._transport is not None
        *requests, self._buffer = (self._buffer + data).split(b"\r\n\r\n")
        for _ in requests:
            self._transport.write(self._answers[min(self._served, len(self._answers) - 1)])
            self._served += 1


def answer(page: bytes) -> bytes:
    """The page as an HTTP response, headed as vLLM's is."""
    head = f"content-length: {len(page)}\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
    return f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + page


async def serve(count: int) -> None:
    """Serve `count` engines until standard input ends."""
    loop = asyncio.get_running_loop()
    answers = [answer(page) for page in pages()]
    servers = [await loop.create_server(lambda: Engine(answers), "127.0.0.1", 0) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
