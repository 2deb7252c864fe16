"""One name server, asked within limits: some answers would take dnspython half a minute to read.

Before an answer is read, a walk over its records sees that there are not too many, and that none has a name
of many labels or a rare type, which cost most; a large one is read on a thread.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, Final

import dns.exception
import dns.flags
import dns.message
import dns.nameserver
import dns.rdatatype

if TYPE_CHECKING:
    from fleet.service.turns import Turns

MAX_RECORDS: Final = 4096
"""Of an answer: as many addresses as have room in one."""
MAX_LABELS: Final = 16
MAX_RARE: Final = 16
"""Records of other types than those that are read here."""
MAX_UDP_BYTES: Final = 4096
_LOOP_BYTES: Final = 1232
_HEAD_BYTES: Final = 12
_POINTER: Final = 0xC0
_NAME_AT: Final[dict[int, int | None]] = {
    dns.rdatatype.A: None,
    dns.rdatatype.AAAA: None,
    dns.rdatatype.OPT: None,
    dns.rdatatype.CNAME: 0,
    dns.rdatatype.NS: 0,
    dns.rdatatype.SOA: 0,
    dns.rdatatype.SRV: 6,
}
"""Type to where a name begins in its data."""


class NameServer(dns.nameserver.Do53Nameserver):
    """Asks over UDP, or TCP when the answer is large."""

    def __init__(self, address: str, port: int, turns: Turns) -> None:
        """Answers are read in turns, which others share: a name server can let many come at one moment."""
        super().__init__(address, port)
        self._turns = turns
        self._large = asyncio.Lock()

    async def async_query(
        self,
        request: dns.message.QueryMessage,
        timeout: float,  # noqa: ASYNC109 - dnspython's interface
        source: str | None,
        source_port: int,
        max_size: bool,  # noqa: FBT001 - dnspython's interface
        backend: Any,
        one_rr_per_rrset: bool = False,  # noqa: FBT001 - dnspython's interface
        ignore_trailing: bool = False,  # noqa: FBT001 - dnspython's interface
    ) -> dns.message.Message:
        """Ask once; `max_size` asks by TCP.

        Raises:
            dns.exception.DNSException: there is no answer in time, or none that is read.
            OSError: the name server cannot be reached.
            EOFError: it hung up.
        """
        del source, source_port, backend, one_rr_per_rrset, ignore_trailing
        try:
            async with asyncio.timeout(timeout):
                wire = await (self._by_tcp(request) if max_size else self._by_udp(request))
        except TimeoutError as error:
            raise dns.exception.Timeout(timeout=timeout) from error  # type: ignore[no-untyped-call]
        response = await self._read(wire, by_udp=not max_size)
        if not request.is_response(response):
            raise _refused("an answer to another question")
        return response

    async def _read(self, wire: bytes, *, by_udp: bool) -> dns.message.Message:
        if len(wire) > _LOOP_BYTES:
            async with self._large:
                return await asyncio.to_thread(_read, wire, by_udp=by_udp)
        await self._turns.step()
        return _read(wire, by_udp=by_udp)

    async def _by_udp(self, request: dns.message.QueryMessage) -> bytes:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(request.id, answered), remote_addr=(self.address, self.port)
        )
        try:
            transport.sendto(request.to_wire())
            return await answered
        finally:
            transport.close()

    async def _by_tcp(self, request: dns.message.QueryMessage) -> bytes:
        reader, writer = await asyncio.open_connection(self.address, self.port)
        try:
            question = request.to_wire()
            writer.write(len(question).to_bytes(2, "big") + question)
            return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        finally:
            writer.transport.abort()


class _Datagrams(asyncio.DatagramProtocol):
    """Waits for the answer with the question's id; others may be anybody's."""

    def __init__(self, number: int, answered: asyncio.Future[bytes]) -> None:
        self._number = number.to_bytes(2, "big")
        self._answered = answered

    def datagram_received(self, data: bytes, peer: Any) -> None:
        """Take the answer."""
        del peer
        if data[:2] == self._number and len(data) <= MAX_UDP_BYTES and not self._answered.done():
            self._answered.set_result(data)

    def error_received(self, error: Exception) -> None:
        """Nobody is there."""
        if not self._answered.done():
            self._answered.set_exception(error)


def _refused(text: str) -> dns.exception.FormError:
    return dns.exception.FormError(text)  # type: ignore[no-untyped-call]


def _read(wire: bytes, *, by_udp: bool) -> dns.message.Message:
    check(wire, by_udp=by_udp)
    return dns.message.from_wire(wire, raise_on_truncation=by_udp)


def check(wire: bytes, *, by_udp: bool = False) -> None:
    """Walk over an answer's records.

    Raises:
        dns.exception.FormError: it would take long to read, or is none.
        dns.message.Truncated: it came by UDP and says that there is more, which TCP brings.
    """
    try:
        _, flags, questions, *counts = struct.unpack_from("!HHHHHH", wire)
        if by_udp and flags & dns.flags.TC:
            # Some are cut within a record.
            raise dns.message.Truncated(message=None)  # type: ignore[no-untyped-call]
        if questions > 1:
            raise _refused(f"{questions} questions; allowed: 1")
        if sum(counts) > MAX_RECORDS:
            raise _refused(f"{sum(counts)} records; allowed: {MAX_RECORDS}")
        at, rare = _HEAD_BYTES, 0
        if questions:
            at = _name_end(wire, at) + 4
        for _ in range(sum(counts)):
            at = _name_end(wire, at)
            kind, _, _, size = struct.unpack_from("!HHIH", wire, at)
            at += 10
            if kind not in _NAME_AT:
                rare += 1
                if rare > MAX_RARE:
                    raise _refused(f"more than {MAX_RARE} records of rare types")
            elif (offset := _NAME_AT[kind]) is not None:
                _name_end(wire, at + offset)
            at += size
        if at > len(wire):
            raise _refused("cut off")
    except (struct.error, IndexError) as error:
        raise _refused("cut off") from error


def _name_end(wire: bytes, at: int) -> int:
    """Return where a name ends; what it points at is followed for its labels."""
    end = 0
    for _ in range(MAX_LABELS + 1):
        size = wire[at]
        if size >= _POINTER:
            end = end or at + 2
            at = (size & 0x3F) << 8 | wire[at + 1]
        elif size == 0:
            return end or at + 1
        else:
            at += size + 1
    raise _refused(f"a name of more than {MAX_LABELS} labels")
