"""A hostile name server: answers that are slow to read or to come, contradict themselves, or are not ours."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import TYPE_CHECKING, Any, Final

from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Callable

_A, _CNAME, _SOA, _SRV = 1, 5, 6, 33
_OWNER: Final = b"\xc0\x0c"
_CUT: Final = 0x0200
_ANSWER: Final = 0x8580
_NO_NAME: Final = 0x8583
_NOBODY: Final = 0x7F090000
"""127.9.0.0: the host itself, without a listener; `serve` probes every resolved address."""


def record(owner: bytes, kind: int, data: bytes) -> bytes:
    """Return a record as it travels."""
    return owner + struct.pack("!HHIH", kind, 1, 1, len(data)) + data


def _message(query: bytes, records: list[bytes], flags: int = _ANSWER) -> bytes:
    head = query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    return head + question(query) + b"".join(records)


def question(query: bytes) -> bytes:
    """Return the question's part of a query."""
    end = query.index(b"\0", 12) + 5
    return query[12:end]


def _address(number: int) -> bytes:
    return struct.pack("!I", _NOBODY + number)


def _many(query: bytes) -> bytes:
    return _message(query, [record(_OWNER, _A, _address(n)) for n in range(4000)])


def _deep(query: bytes) -> bytes:
    """Services at names of 120 labels, which point at the first: each costs milliseconds."""
    first = record(_OWNER, _CNAME, b"\x01a" * 120 + b"\0")
    place = struct.pack("!H", 0xC000 | (12 + len(question(query)) + len(_OWNER) + 10))
    services = [record(_OWNER, _SRV, struct.pack("!HHH", 0, 0, n) + place) for n in range(1, 3000)]
    return _message(query, [first, *services])


def _deep_owners(query: bytes) -> bytes:
    first = record(_OWNER, _CNAME, b"\x01a" * 120 + b"\0")
    place = struct.pack("!H", 0xC000 | (12 + len(question(query)) + len(_OWNER) + 10))
    return _message(query, [first, *(record(place, _A, _address(n)) for n in range(3500))])


def _types(query: bytes) -> bytes:
    return _message(query, [record(_OWNER, 1000 + n, b"") for n in range(4000)])


def _loop(query: bytes) -> bytes:
    return _message(
        query, [record(_OWNER, _CNAME, b"\x01x\xc0\x0c"), record(b"\x01x\xc0\x0c", _CNAME, _OWNER)]
    )


def _chain(query: bytes, flags: int = _ANSWER) -> bytes:
    links = [
        record(b"\x03%03x\xc0\x0c" % n if n else _OWNER, _CNAME, b"\x03%03x\xc0\x0c" % (n + 1))
        for n in range(900)
    ]
    return _message(query, links, flags)


def _denied_chain(query: bytes) -> bytes:
    """A long chain to a name that is said not to be, with the proof."""
    soa = record(_OWNER, _SOA, b"\xc0\x0c\xc0\x0c" + struct.pack("!IIIII", 1, 60, 60, 60, 1))
    message = _chain(query, _NO_NAME)
    return message[:8] + struct.pack("!H", 1) + message[10:] + soa


def _pointers(query: bytes) -> bytes:
    """A name that points at itself."""
    place = struct.pack("!H", 0xC000 | (12 + len(question(query))))
    return _message(query, [record(place, _A, _address(1))])


KINDS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "many": _many,
    "deep": _deep,
    "deep_owners": _deep_owners,
    "types": _types,
    "loop": _loop,
    "chain": _chain,
    "denied_chain": _denied_chain,
    "pointers": _pointers,
    "wrong_id": lambda query: bytes([query[0] ^ 1]) + _message(query, [record(_OWNER, _A, _address(1))])[1:],
    "other_question": lambda query: (
        query[:2]
        + struct.pack("!HHHHH", _ANSWER, 1, 1, 0, 0)
        + b"\x01x\0\0\x01\0\x01"
        + record(_OWNER, _A, _address(1))
    ),
    "cut_off": lambda query: _many(query)[:-3],
    "counted": lambda query: query[:2] + struct.pack("!HHHHH", _ANSWER, 1, *(65_535,) * 3) + question(query),
    "drip": _many,
    "metadata": lambda query: _message(query, [record(_OWNER, _A, b"\xa9\xfe\xa9\xfe")]),
    "random": lambda query: query[:2] + bytes(n * 197 & 255 for n in range(3000)),
}
"""A question to its answer."""


class _Server(asyncio.DatagramProtocol):
    """Over UDP an answer that fits, or the word that there is more."""

    def __init__(self, kind: str, copies: int) -> None:
        self._kind, self._copies = kind, copies
        self.sent = 0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def datagram_received(self, data: bytes, peer: Any) -> None:
        """Answer."""
        answer = KINDS[self._kind](data)
        if len(answer) > 1232 or self._kind == "drip":
            answer = _message(data, [], _ANSWER | _CUT)
        for _ in range(self._copies):
            self._transport.sendto(answer, peer)
            self.sent += len(answer)


async def attack(
    address: str,
    kind: str,
    *,
    copies: int = 1,
    seconds: float = 10.0,
    listening: asyncio.Event | None = None,
) -> int:
    """Answer queries at an address with one of `KINDS`, several times over UDP, and over TCP.

    `listening` is set once it does.
    """
    host, port = split_host_port(address)
    loop = asyncio.get_running_loop()
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            query = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
            answer = KINDS[kind](query)
            wire = len(answer).to_bytes(2, "big") + answer
            for part in (wire[at : at + 1] for at in range(len(wire))) if kind == "drip" else (wire,):
                writer.write(part)
                await writer.drain()
                sent += len(part)
                if kind == "drip":
                    await asyncio.sleep(0.01)
            await reader.read(1)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The client has hung up, or the attack is over.
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, host, port)
    transport, datagrams = await loop.create_datagram_endpoint(
        lambda: _Server(kind, copies), local_addr=(host, port)
    )
    if listening is not None:
        listening.set()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().create_future()
    finally:
        server.close()
        transport.close()
    return sent + datagrams.sent
