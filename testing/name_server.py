"""A name server on loopback, by UDP and TCP, whose answers a test sets."""

from __future__ import annotations

import asyncio
from typing import Final, Self

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

_SOA: Final = "ns.test. root.test. 1 60 60 60 1"


class NameServer(asyncio.DatagramProtocol):
    """Answers by name and type; what is not set is no data with SOA."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[str] | dns.rcode.Rcode | None] = {}
        """Texts of records; a response code; None: silence."""
        self.additional: list[tuple[str, str, str]] = []
        self.ttl = 1
        self.soa = True
        self.queries: list[tuple[str, str]] = []
        self.cut = False
        self.address = ""

    async def __aenter__(self) -> Self:
        self._tcp = await asyncio.start_server(self.stream, "127.0.0.1", 0)
        port = self._tcp.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", port))
        self.address = f"127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.transport.close()
        self._tcp.close()
        await self._tcp.wait_closed()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Keep the transport for responses."""
        self.transport = transport

    def datagram_received(self, data: bytes, peer: tuple[str, int]) -> None:
        """Answer a query."""
        response = self.respond(data)
        if response is not None:
            if self.cut:
                response.flags |= dns.flags.TC
                response.answer.clear()
            self.transport.sendto(response.to_wire(), peer)

    async def stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one query by TCP."""
        size = int.from_bytes(await reader.readexactly(2), "big")
        response = self.respond(await reader.readexactly(size))
        assert response is not None
        wire = response.to_wire(max_size=65_535)
        writer.write(len(wire).to_bytes(2, "big") + wire)
        await writer.drain()
        writer.close()

    def respond(self, data: bytes) -> dns.message.Message | None:
        """Return the response to a query; None: silence."""
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text(), dns.rdatatype.to_text(question.rdtype)
        self.queries.append((name, kind))
        answer = self.answers.get((name, kind), [])
        if answer is None:
            return None
        response = dns.message.make_response(query)
        if isinstance(answer, dns.rcode.Rcode):
            response.set_rcode(answer)
        elif answer:
            response.answer.append(dns.rrset.from_text_list(question.name, self.ttl, "IN", kind, answer))
            for extra_name, extra_kind, text in self.additional:
                response.additional.append(dns.rrset.from_text(extra_name, 1, "IN", extra_kind, text))
        if not response.answer and self.soa and response.rcode() != dns.rcode.SERVFAIL:
            response.authority.append(dns.rrset.from_text("test.", 1, "IN", "SOA", _SOA))
        return response
