"""Every attack by its name, and the process that runs one."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.abuse import (
    access_log,
    admin,
    calls,
    clients,
    control,
    crowd,
    discovery,
    dns,
    ext_proc_messages,
    idempotency,
    kv_events,
    lane,
    pages,
    shared_stream,
    slow_readers,
    tls,
)
from bench.peer import answer_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    Run = Callable[["Doors", str, dict[str, Any]], Awaitable[int]]

_MOST_BYTES: Final = 4 << 30
"""The time ends an attack, not the bytes: a door that takes memory without end shows it."""
_RECONNECT_SECONDS: Final = 5.0
"""After at most so long a follower of KV events tries a port again."""
_STREAMS: Final = 2200
_CROWDS: Final = ("many", "deep_owners", "drip")
"""Answers that name thousands of addresses: these are endpoints from then on, whatever is attacked next."""
_ANSWERS: Final = tuple(kind for kind in dns.KINDS if kind not in (*_CROWDS, "metadata"))
"""An answer that names the clouds' metadata address is for tests that send nothing there."""
_SILENT: Final = frozenset(
    {
        "silent", "nothing", "silent_workers", "silent_agents", "silent_check", "silent_logs",
        "silent_status", "silent_requests", "silent_leading",
    }
)  # fmt: skip
"""Kinds that send nothing at all."""


@dataclass(frozen=True, slots=True)
class Doors:
    """Where a running `serve` and its Envoy listen, and where `serve` expects hostile peers to listen."""

    front: str
    """Envoy's address for clients."""
    xds: str
    ext_proc: str
    control: str
    admin: str
    kv_events: str
    """Where an engine is to publish KV events."""
    page: str
    """Where an engine is to answer scrapes and probes."""
    nameserver: str
    """The address of the DNS server for a pool's endpoints."""
    shared: str
    """The URL of the shared index's server."""
    stream: str
    """The shared index's stream there."""
    idempotency: str
    """Where the server of idempotency keys is expected."""
    model: str
    engines: list[str]
    """Honest ones, which the fleet has."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack on one door; `run` takes the doors, the kind and bounds, and returns bytes sent."""

    kind: str
    run: Run
    tls: bool
    """Against a `serve` whose doors have TLS."""
    apart: bool = False
    """Against `warmroute xds`, which has a door for workers."""

    @property
    def sends(self) -> bool:
        """Whether it has missed its door when it has sent nothing."""
        return self.kind not in _SILENT

    async def strike(self, doors: Doors, seconds: float) -> int:
        """Attack for so long; returns how many bytes were sent."""
        return await self.run(doors, self.kind, {"most_bytes": _MOST_BYTES, "seconds": seconds})


def _each(
    door: str, kinds: Iterable[str], run: Run, *, tls: bool = False, apart: bool = False
) -> dict[str, Attack]:
    """Return an attack for each kind of a module, by name."""
    return {f"{door}.{kind}": Attack(kind, run, tls, apart) for kind in kinds}


def _messages(counts: Mapping[str, int]) -> Run:
    return lambda at, kind, how: ext_proc_messages.attack(at.ext_proc, kind, counts[kind], **how)


def _publish(at: Doors, kind: str, how: dict[str, Any]) -> Awaitable[int]:
    """Publish until after the moment at which a port that was silent is tried again."""
    lasts = how["seconds"] + _RECONNECT_SECONDS
    return kv_events.attack(at.kv_events, kind, **{**how, "seconds": lasts})


async def _answer_keys(at: Doors, kind: str, how: dict[str, Any]) -> int:
    """Answer for keys while requests are sent that have one: the honest ones, streams, have none."""
    asking = asyncio.create_task(clients.ask(at.front, at.model))
    try:
        return await idempotency.attack(at.idempotency, kind, **how)
    finally:
        asking.cancel()


def _crowd(at: Doors, kind: str, how: dict[str, Any]) -> Awaitable[int]:
    """Open more streams than `limits.xds_streams` allows."""
    return discovery.attack(at.xds, kind, streams=_STREAMS, **how)


def _call(at: Doors, kind: str, how: dict[str, Any]) -> Awaitable[int]:
    address = at.ext_proc if kind in calls.OF_EXT_PROC else at.xds
    return calls.attack(at.control if kind == "half_report" else address, kind, **how)


_HUGE: Final = {
    "repeated": 100_000, "empty": 8_000_000, "commas": 1_000_000, "allowed": 500_000, "attributes": 500_000
}  # fmt: skip
"""Entries of a message that is over every limit."""
_FULL: Final = {
    "repeated": 6_000, "empty": 255_000, "commas": 510_000, "allowed": 45_000, "attributes": 50_000
}  # fmt: skip
"""Entries of a message that is just taken: half a megabyte."""
_FULL_XDS: Final = ("same_name", "empty_names", "unlike_names", "locators", "extensions", "metadata", "error")
_TAKEN: Final = 2_000_000
"""Bytes of a message from an Envoy that is just taken."""

ATTACKS: Final[dict[str, Attack]] = {
    **_each("clients", clients.KINDS, lambda at, kind, how: clients.attack(at.front, at.model, kind, **how)),
    **_each("pages", pages.KINDS, lambda at, kind, how: pages.attack(at.page, kind, **how)),
    **_each("kv_events", kv_events.KINDS, _publish),
    **_each("ext_proc_huge", ext_proc_messages.KINDS, _messages(_HUGE)),
    **_each("ext_proc_full", ext_proc_messages.KINDS, _messages(_FULL)),
    **_each(
        "ext_proc_answers",
        ext_proc_messages.ANSWERS,
        lambda at, kind, how: ext_proc_messages.attack_answers(at.ext_proc, kind, **how),
    ),
    **_each(
        "ext_authz",
        ext_proc_messages.CHECKS,
        lambda at, kind, how: ext_proc_messages.attack_checks(at.ext_proc, kind, **how),
    ),
    **_each(
        "ext_proc_unread",
        slow_readers.EXT_PROC,
        lambda at, kind, how: slow_readers.attack(at.ext_proc, kind, **how),
    ),
    **_each("lane", lane.KINDS, lambda at, kind, how: lane.attack(at.ext_proc, kind, **how)),
    **_each("xds", discovery.KINDS, lambda at, kind, how: discovery.attack(at.xds, kind, **how)),
    **_each("xds_many", ("clusters", "nothing"), _crowd),
    **_each("xds_many", ("error",), lambda at, kind, how: _crowd(at, kind, {"size": _TAKEN // 4, **how})),
    **_each("xds_unread", slow_readers.XDS, lambda at, kind, how: slow_readers.attack(at.xds, kind, **how)),
    **_each("xds_delta", ("small_messages",), lambda at, _, how: discovery.change_little(at.xds, **how)),
    **_each(
        "xds_full",
        _FULL_XDS,
        lambda at, kind, how: discovery.repeat(
            at.xds, discovery.METHOD, discovery.KINDS[kind](_TAKEN), **how
        ),
    ),
    **_each(
        "access_log",
        access_log.KINDS,
        lambda at, kind, how: access_log.attack(at.xds, kind, _TAKEN, **how),
    ),
    **_each("csds", crowd.KINDS, lambda at, kind, how: crowd.attack(at.xds, at.admin, kind, **how)),
    **_each("csds", ("large_requests",), lambda at, _, how: discovery.fetch_status(at.xds, **how)),
    **_each("calls", calls.KINDS, _call),
    **_each("calls", ("half_report",), _call, apart=True),
    **_each(
        "control",
        control.KINDS,
        lambda at, kind, how: control.attack(at.control, kind, addresses=at.engines, **how),
        apart=True,
    ),
    **_each(
        "control_full",
        control.LARGE,
        lambda at, kind, how: control.attack(
            at.control, kind, addresses=at.engines, size=control.LARGE[kind], streams=8, **how
        ),
        apart=True,
    ),
    **_each("dns", _ANSWERS, lambda at, kind, how: dns.attack(at.nameserver, kind, seconds=how["seconds"])),
    **_each("admin", admin.KINDS, lambda at, kind, how: admin.attack(at.admin, kind, **how)),
    **_each(
        "shared_stream",
        shared_stream.KINDS,
        lambda at, kind, how: shared_stream.attack(at.shared, at.stream, kind, **how),
    ),
    **_each("idempotency", idempotency.KINDS, _answer_keys),
    **_each(
        "dns_crowd", _CROWDS, lambda at, kind, how: dns.attack(at.nameserver, kind, seconds=how["seconds"])
    ),
    **_each("tls_ext_proc", tls.KINDS, lambda at, kind, how: tls.attack(at.ext_proc, kind, **how), tls=True),
    **_each("tls_xds", tls.KINDS, lambda at, kind, how: tls.attack(at.xds, kind, **how), tls=True),
    **_each("tls_admin", tls.KINDS, lambda at, kind, how: tls.attack(at.admin, kind, **how), tls=True),
}
"""Name to attack: one entry for each module and door."""


def _verbs() -> dict[str, Callable[..., Awaitable[dict[str, Any]]]]:
    async def ready() -> dict[str, Any]:
        return {}

    async def attack(name: str, doors: dict[str, Any], lasts: float) -> dict[str, Any]:
        return {"sent": await ATTACKS[name].strike(Doors(**doors), lasts)}

    return {"ready": ready, "attack": attack}


if __name__ == "__main__":
    sys.exit(answer_all(_verbs))
