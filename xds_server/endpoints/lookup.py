"""One DNS query, and the certainty of its answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver

from fleet.service.turns import Turns
from fleet.settings.address import split_host_port
from xds_server.endpoints.name_server import NameServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dns.message import Message, QueryMessage

TRY_SECONDS: Final = 1.0
LIFETIME_SECONDS: Final = 4.0
"""Of one query, over all name servers and tries."""
_EDNS_BYTES: Final = 1232
"""Of a UDP answer (dnsflagday.net 2020); a longer one comes by TCP."""

_ON_LOOP: Final = 256
"""Addresses that are read on the loop."""
_ADDRESSES: Final = (dns.rdatatype.A, dns.rdatatype.AAAA)


class ReplyStatus(Enum):
    """What an answer says about the records of the query."""

    RECORDS = "records"
    NO_RECORDS = "no records"
    """Certainly none: NXDOMAIN or no data, with the zone's SOA (RFC 2308)."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or the reason why there is none."""

    status: ReplyStatus
    records: tuple[Any, ...] = ()
    """Of A and AAAA the addresses as text, of SRV the records."""
    ttl: float | None = None
    """Seconds; the lowest of the chain that leads to the records. None when unknown."""
    problem: str = ""
    unproven: bool = False
    """The answer has no data, but lacks the SOA record that would prove it."""
    additional: Mapping[tuple[str, dns.rdatatype.RdataType], tuple[str, ...]] = field(default_factory=dict)
    """Lower-case absolute name and family to the addresses of the additional section."""


class Lookup:
    """Queries the name servers (`ip:port`) of the settings, or those of the system."""

    def __init__(self, nameservers: Sequence[str] = (), turns: Turns | None = None) -> None:
        """Queries and answers take turns."""
        self._nameservers = nameservers
        self._turns = turns or Turns()
        self._backend = dns.asyncbackend.get_backend("asyncio")
        self._resolver: dns.asyncresolver.Resolver | None = None

    async def ask(self, name: str, kind: dns.rdatatype.RdataType) -> Reply:
        """Ask once; never raises for what DNS or the network does."""
        kind_text = dns.rdatatype.to_text(kind)
        try:
            resolver = self._resolver
            if resolver is None:
                # On a thread: it may read /etc/resolv.conf.
                resolver = await asyncio.to_thread(_resolver, self._nameservers, self._turns)
                self._resolver = resolver
            absolute = dns.name.from_text(name)
            await self._turns.step()
            # Meanwhile another query may have failed, and `_resolver` be None again.
            answer = await resolver.resolve(
                absolute,
                kind,
                raise_on_no_answer=False,
                search=False,
                lifetime=LIFETIME_SECONDS,
                backend=self._backend,
            )
        except dns.resolver.NXDOMAIN as error:
            return _negative(error.kwargs["responses"].values(), f"{kind_text}: no such name")
        except (dns.exception.DNSException, OSError, EOFError) as error:
            # The system's name servers may have changed.
            self._resolver = None
            return Reply(ReplyStatus.UNKNOWN, problem=f"{kind_text}: {_reason(error)}")
        if answer.rrset is None:
            return _negative([answer.response], f"{kind_text}: no data")
        ttl = float(answer.chaining_result.minimum_ttl)
        if kind == dns.rdatatype.SRV:
            additional = await asyncio.to_thread(_additional, answer.response)
            return Reply(ReplyStatus.RECORDS, tuple(answer.rrset), ttl, additional=additional)
        few = len(answer.rrset) <= _ON_LOOP
        addresses = _usable(answer.rrset) if few else await asyncio.to_thread(_usable, answer.rrset)
        if not addresses:
            return Reply(ReplyStatus.UNKNOWN, problem=f"{kind_text}: no address that can be connected to")
        return Reply(ReplyStatus.RECORDS, addresses, ttl)


def _resolver(nameservers: Sequence[str], turns: Turns) -> dns.asyncresolver.Resolver:
    resolver = dns.asyncresolver.Resolver(configure=not nameservers)
    places = [split_host_port(address) for address in nameservers]
    if not nameservers:
        places = [(entry, resolver.port) for entry in resolver.nameservers if isinstance(entry, str)]
    resolver.nameservers = [NameServer(*place, turns) for place in places]
    resolver.timeout = TRY_SECONDS
    resolver.use_edns(0, 0, _EDNS_BYTES)
    return resolver


def _negative(responses: Iterable[QueryMessage], said: str) -> Reply:
    """A negative answer is certain only with its SOA, which a resolver that lost its zone does not have."""
    try:
        ttls = [
            response.resolve_chaining().minimum_ttl
            for response in responses
            if any(rrset.rdtype == dns.rdatatype.SOA for rrset in response.authority)
        ]
    except dns.exception.DNSException as error:
        return Reply(ReplyStatus.UNKNOWN, problem=f"{said}: {_reason(error)}")
    if not ttls:
        return Reply(ReplyStatus.UNKNOWN, problem=f"{said}, without SOA", unproven=True)
    return Reply(ReplyStatus.NO_RECORDS, ttl=float(min(ttls)))


def _additional(
    response: Message,
) -> dict[tuple[str, dns.rdatatype.RdataType], tuple[str, ...]]:
    return {
        (rrset.name.to_text().lower(), rrset.rdtype): _usable(rrset)
        for rrset in response.additional
        if rrset.rdtype in _ADDRESSES
    }


def _usable(records: Iterable[Any]) -> tuple[str, ...]:
    """The addresses that can be connected to; some filters answer 0.0.0.0 for names that they block."""
    parsed = [ip_address(record.address) for record in records]
    return tuple(str(address) for address in parsed if not (address.is_unspecified or address.is_multicast))


def _reason(error: Exception) -> str:
    """Equal text for equal faults: dnspython's own text contains seconds."""
    if isinstance(error, dns.exception.Timeout):
        return "no answer in time"
    if isinstance(error, dns.resolver.NoNameservers):
        # Each is (name server, by TCP, port, response code or exception, response).
        reasons = [entry[3] for entry in error.kwargs.get("errors", ())]
        texts = {reason if isinstance(reason, str) else type(reason).__name__ for reason in reasons}
        return "every name server failed: " + ", ".join(sorted(texts))
    if isinstance(error, dns.resolver.NoResolverConfiguration):
        return "the system names no name server"
    return type(error).__name__
