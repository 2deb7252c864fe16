"""A hostile engine's HTTP port: answers to scrapes and probes that are slow to read, large or without end.

`attack` listens on the engine's address and answers every request alike, whatever its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import zlib
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Final

from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_OK: Final = b"HTTP/1.1 200 OK\r\n"
_CHUNKED: Final = _OK + b"transfer-encoding: chunked\r\n\r\n"
_PART: Final = 65_536


def _page(body: bytes, head: bytes = b"") -> list[bytes]:
    return [_OK + head + b"content-length: %d\r\n\r\n" % len(body) + body]


def _packed(body: Iterable[bytes]) -> list[bytes]:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(part) for part in body) + packer.flush()
    return _page(packed, b"content-encoding: gzip\r\n")


def _empty_blocks() -> list[bytes]:
    """Compressed blocks that hold nothing, each with tables of its own."""
    packer = zlib.compressobj(9, wbits=31)
    body = b"".join(packer.compress(b"#") + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(80_000))
    return _page(body + packer.flush(), b"content-encoding: gzip\r\n")


def _many_lines() -> list[bytes]:
    """As many series that are read as a page has room for, in an order of their own each time."""
    lines = b"".join(b'vllm:num_requests_running{a="%x"} 1\n' % number for number in range(28_000))
    return _page(lines[:1_000_000].rpartition(b"\n")[0])


def _long_labels() -> list[bytes]:
    """One line as long as the page, with a label in every sixth byte."""
    return _page(b"vllm:num_requests_running{" + b'a="",' * 200_000 + b"} 1\n")


def _almost_marks() -> list[bytes]:
    """Lines that begin as an engine's, and are none."""
    return _page(b"\nvllm\nsglang\nnv_infer\ntgi\nllamacpp\ntrtllm" * 23_000)


def _names() -> Iterator[bytes]:
    """The expected model, so that the engine is let in, and thousands of other names each time."""
    names = "".join(f',{{"id":"{secrets.token_hex(10)}"}}' for _ in range(25_000))
    yield from _page(f'{{"data":[{{"id":"smol"}}{names}]}}'.encode())


KINDS: Final[dict[str, Callable[[], Iterable[bytes]]]] = {
    "redirect": lambda: [
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/latest/meta-data/\r\ncontent-length: 0\r\n\r\n"
    ],
    "interim": lambda: repeat(b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" * 2000),
    "endless_head": lambda: chain([_OK], repeat(b"x: y\r\n" * 10_000)),
    "long_line": lambda: chain([_OK + b"x: "], repeat(b"y" * _PART)),
    "endless_body": lambda: chain([_OK + b"\r\n"], repeat(b"# x\n" * 16_384)),
    "tiny_chunks": lambda: chain([_CHUNKED], repeat(b"1\r\nx\r\n" * 10_000)),
    "chunk_extensions": lambda: chain([_CHUNKED], (b"1;a=%d\r\nx\r\n" % each * 100 for each in count())),
    "endless_trailer": lambda: chain([_CHUNKED + b"0\r\n"], repeat(b"x: y\r\n" * 10_000)),
    "announced": lambda: chain([_OK + b"content-length: 999999999999999999\r\n\r\n"], repeat(bytes(_PART))),
    "drip": lambda: chain([_OK + b"\r\n"], repeat(b"#")),
    "drip_interim": lambda: repeat(b"HTTP/1.1 103 Early\r\n\r\n"),
    "bomb": lambda: _packed(repeat(bytes(1 << 20), 256)),
    "empty_blocks": _empty_blocks,
    "many_lines": _many_lines,
    "long_labels": _long_labels,
    "almost_marks": _almost_marks,
    "models": lambda: _page(b'{"data":[' + b'{"id":""},' * 100_000 + b'{"id":"x"}]}'),
    "names": _names,
    "odd_models": lambda: _page(
        b'{"data":[{"id":"smol","root":'
        + b"[" * 400_000
        + b"]" * 400_000
        + b',"parent":{},"max_model_len":1e400}]}'
    ),
    "slots": lambda: _page(b"llamacpp:n_decode_total 1\n" * 2 + b"[" + b"{}," * 100_000 + b"{}]"),
}
"""What follows a request, part by part."""


async def attack(
    address: str,
    kind: str,
    *,
    most_bytes: int = 64 << 20,
    seconds: float = 10.0,
    listening: asyncio.Event | None = None,
) -> int:
    """Answer with one of `KINDS` until `most_bytes` are sent or the time is over.

    `listening` is set once the port accepts connections.
    """
    sent = 0
    over, serving = asyncio.Event(), set[asyncio.Task[None]]()
    parts = KINDS[kind]
    if isinstance(page := parts(), list):
        parts = lambda: page  # noqa: E731 - made once

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                for part in parts():
                    writer.write(part)
                    await writer.drain()
                    sent += len(part)
                    if kind.startswith("drip"):
                        await asyncio.sleep(0.001)
                    if sent >= most_bytes:
                        over.set()
                        return
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # The client has hung up, or the attack is over.
        finally:
            writer.transport.abort()

    host, port = split_host_port(address)
    server = await asyncio.start_server(serve, host, port)
    if listening is not None:
        listening.set()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await over.wait()
    finally:
        server.close()
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)
    return sent
