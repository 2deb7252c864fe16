"""Endpoints behind a DNS name: A and AAAA with one port, or SRV; resolved again when the TTL is over."""

from __future__ import annotations

import asyncio
import random
import socket
from ipaddress import ip_address
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import dns.name
import dns.rdatatype

from fleet.endpoint import address_of
from fleet.settings import EndpointSettings
from fleet.settings.membership import endpoint_of
from xds_server.endpoints.lookup import Lookup, Reply, ReplyStatus
from xds_server.endpoints.name_server import MAX_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dns.rdtypes.IN.SRV import SRV

    from fleet.endpoint import Endpoint
    from fleet.settings import DnsDiscoverySettings, PoolSettings
    from fleet.settings.pools import DnsFamily
    from xds_server.endpoints.source import OnEndpoints, TroubleReport
    from xds_server.endpoints.special import Screen

_FAMILIES: Final[Mapping[DnsFamily, tuple[dns.rdatatype.RdataType, ...]]] = {
    "v4_preferred": (dns.rdatatype.A, dns.rdatatype.AAAA),
    "v6_preferred": (dns.rdatatype.AAAA, dns.rdatatype.A),
    "v4_only": (dns.rdatatype.A,),
    "v6_only": (dns.rdatatype.AAAA,),
    "all": (dns.rdatatype.A, dns.rdatatype.AAAA),
}
"""Record types in the order of preference."""
_ROUTES_TRIED: Final = 4
"""Addresses of a family: if none of them has a route, the family has none."""
_AT_ONCE: Final = 16
"""Targets of SRV records that are resolved at the same time."""
MAX_PLACES: Final = 4 * MAX_RECORDS
"""Most addresses with ports of one source: as many SRV records as allowed, with four addresses each."""
_JITTER: Final = 0.1
"""Added to the TTL, never taken from it: a cache between us and the zone would only repeat its answer."""

_Place = tuple[str, int]


def has_route(address: str) -> bool:
    """Whether this host has a route to an address; no packet is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
    except OSError:
        return False
    return True


class DnsSource:
    """Resolves one name again and again.

    Each query (a name and a record type) is known or unknown by itself: when A is answered and AAAA fails,
    the AAAA records from before stay. Only the SRV records of the lowest priority number with any address
    count; the others are backups. SRV weights are ignored, because weights come from the engines' signals.

    Nothing says which A and which AAAA of a name are one engine. So a name gives the addresses of one family:
    the first in the order of preference that has records and a route from here, otherwise the first that has
    records. An SRV target is a name of its own.
    """

    def __init__(
        self,
        pool: PoolSettings,
        settings: DnsDiscoverySettings,
        trouble: TroubleReport,
        lookup: Lookup | None = None,
        jitter: Callable[[], float] = random.random,
        screen: Screen | None = None,
        routed: Callable[[str], bool] = has_route,
    ) -> None:
        self.name = f"pool {pool.name}: dns {settings.name} {settings.kind}"
        self._pool = pool
        self._settings = settings
        self._trouble = trouble
        self._lookup = lookup or Lookup(settings.nameservers)
        self._jitter = jitter
        self._screen = screen
        self._routed = routed
        self._families = _FAMILIES[settings.family]
        self._memory: dict[tuple[str, dns.rdatatype.RdataType], tuple[str, ...]] = {}
        self._problem = ""
        self._ttl: float | None = None
        self._resolved: tuple[frozenset[_Place], tuple[Endpoint, ...] | None] = (frozenset(), ())

    async def run(self, on_endpoints: OnEndpoints) -> None:
        """Resolve until cancelled."""
        failures = 0
        while True:
            self._problem, self._ttl = "", None
            places = await (self._by_address() if self._settings.kind == "a" else self._by_service())
            if places is not None and (endpoints := await self._endpoints(frozenset(places))) is not None:
                on_endpoints(endpoints)
            if self._problem:
                self._trouble.failed(self._problem)
            else:
                self._trouble.fine()
            # A family that always fails does not slow down the other.
            failed = bool(self._problem) and (not places or self._ttl is None)
            failures = failures + 1 if failed else 0
            await asyncio.sleep(self._wait(failures))

    def _wait(self, failures: int) -> float:
        low, high = self._settings.min_ttl_seconds, self._settings.max_ttl_seconds
        if failures:
            wait = min(high, low * 2.0 ** min(failures - 1, 30))
        else:
            wait = min(high, max(low, self._ttl or 0.0))
        return wait * (1.0 + _JITTER * self._jitter())

    async def _by_address(self) -> set[_Place] | None:
        assert self._settings.port is not None
        addresses = await self._addresses(self._settings.name)
        return None if addresses is None else {(address, self._settings.port) for address in addresses}

    async def _by_service(self) -> set[_Place] | None:
        reply = await self._ask(self._settings.name, dns.rdatatype.SRV)
        if reply.status is ReplyStatus.UNKNOWN:
            return None
        offered = await asyncio.to_thread(_offered, reply.records)
        records = [record for record in offered if record[2]]
        if offered and not records:
            self._problem = "SRV: no record with a port"
            return None
        targets = {name for _, name, _ in records}
        self._memory = {key: addresses for key, addresses in self._memory.items() if key[0] in targets}
        for _, same in groupby(records, itemgetter(0)):
            places = await self._of_targets([record[1:] for record in same], reply)
            # Unknown is not gone: the next priority is for targets that certainly have no address.
            if places is None or places:
                return places
        return set()

    async def _of_targets(self, records: Sequence[_Place], reply: Reply) -> set[_Place] | None:
        """Return the places of targets, which are in order."""
        names = list(dict.fromkeys(name for name, _ in records))
        left, addresses = iter(names), dict[str, frozenset[str] | None]()

        async def ask() -> None:
            for name in left:
                addresses[name] = await self._target(name, reply)

        async with asyncio.TaskGroup() as asking:
            for _ in names[:_AT_ONCE]:
                asking.create_task(ask())
        each = ((address, port) for name, port in records for address in sorted(addresses[name] or ()))
        places = set(islice(each, MAX_PLACES))
        if next(each, None) is not None:
            self._problem = f"SRV: more than {MAX_PLACES} places; the others are left out"
        unknown = None in addresses.values()
        return None if unknown and not places else places

    async def _target(self, name: str, reply: Reply) -> frozenset[str] | None:
        additional = {family: reply.additional.get((name, family), ()) for family in self._families}
        # That section may be cut: without the preferred family it does not tell that there is none.
        if additional[self._families[0]] or (self._settings.family == "all" and any(additional.values())):
            for family, addresses in additional.items():
                self._memory[name, family] = addresses
            return self._counting(name)
        return await self._addresses(name)

    async def _addresses(self, name: str) -> frozenset[str] | None:
        """A host's addresses; None while they are unknown, empty if it certainly has none."""
        replies = dict(
            zip(
                self._families,
                await asyncio.gather(*(self._ask(name, family) for family in self._families)),
                strict=True,
            )
        )
        has_records = any(reply.status is ReplyStatus.RECORDS for reply in replies.values())
        for family, reply in replies.items():
            if reply.status is ReplyStatus.RECORDS:
                self._memory[name, family] = reply.records
            elif reply.status is ReplyStatus.NO_RECORDS or (reply.unproven and has_records):
                # A name that has the one family exists, so that no data for the other needs no proof.
                self._memory[name, family] = ()
            else:
                self._problem = self._problem or reply.problem
        addresses = self._counting(name)
        complete = all((name, family) in self._memory for family in self._families)
        return addresses if addresses or complete else None

    def _counting(self, name: str) -> frozenset[str]:
        """Return the addresses that count of those in memory."""
        families = [self._memory.get((name, family), ()) for family in self._families]
        present = [addresses for addresses in families if addresses]
        if self._settings.family == "all" or len(present) < 2:
            return frozenset(address for addresses in present for address in addresses)
        routed = (each for each in present if any(map(self._routed, each[:_ROUTES_TRIED])))
        return frozenset(next(routed, present[0]))

    async def _ask(self, name: str, kind: dns.rdatatype.RdataType) -> Reply:
        reply = await self._lookup.ask(name, kind)
        if reply.ttl is not None:
            self._ttl = reply.ttl if self._ttl is None else min(self._ttl, reply.ttl)
        if kind == dns.rdatatype.SRV:
            self._problem = reply.problem
        return reply

    async def _endpoints(self, places: frozenset[_Place]) -> tuple[Endpoint, ...] | None:
        """In one order, since name servers shuffle; None: all addresses are refused."""
        if places != self._resolved[0]:
            self._resolved = places, await asyncio.to_thread(self._endpoints_at, places)
        return self._resolved[1]

    def _endpoints_at(self, places: frozenset[_Place]) -> tuple[Endpoint, ...] | None:
        texts = [address_of(host, port) for host, port in sorted(places, key=_order)]
        endpoints = tuple(endpoint_of(self._pool, EndpointSettings(address=text)) for text in texts)
        return endpoints if self._screen is None else self._screen(endpoints)


def _offered(records: Iterable[SRV]) -> list[tuple[int, str, int]]:
    """Priority, target and port of each service, in one order."""
    services = [(record.priority, record.target, record.port) for record in records]
    return sorted(
        (prio, name.to_text().lower(), port) for prio, name, port in services if name != dns.name.root
    )


def _order(place: _Place) -> tuple[int, int, int]:
    host = ip_address(place[0])
    return host.version, int(host), place[1]
