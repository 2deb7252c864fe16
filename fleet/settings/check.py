"""Rules over several fields: references between them, duplicates, limits over all pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.settings import connections, role_check, sla_policy, tls_check, topology
from fleet.settings.address import same_socket
from fleet.settings.shared import is_guarded
from fleet.settings.workers import worker_admin_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleet.settings.model import Settings
    from fleet.settings.strict import FieldPath


def contradictions(settings: Settings) -> list[tuple[FieldPath, str]]:
    """Return path and text of each contradiction in settings whose fields are all valid."""
    return [
        *_duplicates(settings),
        *_same_sources(settings),
        *_unknown_pools(settings),
        *_too_many_endpoints(settings),
        *_exposed(settings),
        *_plain_store(settings),
        *_timing(settings),
        *_within(connections.contradictions(settings.connections), "connections"),
        *_within(topology.contradictions(settings.weights.topology), "weights", "topology"),
        *sla_policy.contradictions(settings),
        *tls_check.contradictions(settings),
        *role_check.contradictions(settings),
    ]


def _duplicates(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    pools: set[str] = set()
    addresses: dict[str, str] = {}
    for i, pool in enumerate(settings.pools):
        if pool.name in pools:
            yield ("pools", i, "name"), f"{pool.name!r}; allowed: each pool name once"
        pools.add(pool.name)
        for j, endpoint in enumerate(pool.endpoints):
            path: FieldPath = ("pools", i, "endpoints", j, "address")
            if endpoint.address in addresses:
                where = addresses[endpoint.address]
                yield path, f"{endpoint.address!r}; allowed: each address once, it is also in pool {where!r}"
            addresses[endpoint.address] = pool.name
    names: set[str] = set()
    bound: set[str] = set()
    for i, listener in enumerate(settings.listeners):
        if listener.name in names:
            yield ("listeners", i, "name"), f"{listener.name!r}; allowed: each listener name once"
        if listener.address in bound:
            yield ("listeners", i, "address"), f"{listener.address!r}; allowed: each address once"
        names.add(listener.name)
        bound.add(listener.address)
    yield from _services(settings)


def _services(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    """Each service has an address of its own, and no Envoy listener takes its port."""
    services = [
        ("xds", settings.xds.address),
        ("ext_proc", settings.ext_proc.address),
        ("control", settings.control.address),
        ("admin", settings.admin.address),
    ]
    bound: list[str] = []
    for section, address in services:
        if any(same_socket(address, other) for other in bound):
            yield (section, "address"), f"{address!r}; allowed: an address of its own for each service"
        bound.append(address)
    ours = [(f"{section}.address", address) for section, address in services]
    ours.append(("admin.ext_proc_address", settings.admin.ext_proc_address))
    for i, listener in enumerate(settings.listeners):
        for field, address in ours:
            if same_socket(listener.address, address):
                taken = f"{field} = {address!r} is this port"
                yield ("listeners", i, "address"), f"{listener.address!r}; allowed: another port, as {taken}"
    yield from _workers(settings, set(bound))


def _workers(settings: Settings, taken: set[str]) -> Iterator[tuple[FieldPath, str]]:
    """The addresses of further workers follow the first one's; they must exist and be free."""
    count, admin = settings.ext_proc.workers, settings.admin.ext_proc_address
    if count == 1:
        return
    try:
        addresses = [
            *settings.ext_proc.worker_addresses[1:],
            *(worker_admin_address(admin, number) for number in range(count) if admin),
        ]
    except ValueError as error:
        yield ("ext_proc", "workers"), f"{count}; {error}"
        return
    used = {*taken, *(listener.address for listener in settings.listeners), admin}
    for address in addresses:
        if address in used:
            yield (
                ("ext_proc", "workers"),
                f"{count}; allowed: fewer, or other addresses: {address!r} is used",
            )
            return
        used.add(address)


def _same_sources(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    for i, pool in enumerate(settings.pools):
        for j, source in enumerate(pool.discovery):
            if source in pool.discovery[:j]:
                yield ("pools", i, "discovery", j), "the same as one before; allowed: each source once"


def _unknown_pools(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    pools = sorted({pool.name for pool in settings.pools})
    for i, listener in enumerate(settings.listeners):
        if listener.pool not in pools:
            yield ("listeners", i, "pool"), f"{listener.pool!r}; allowed: {', '.join(pools)}"


def _too_many_endpoints(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    count, most = sum(len(pool.endpoints) for pool in settings.pools), settings.limits.endpoints
    if count > most:
        yield ("pools",), f"{count} endpoints; allowed: at most limits.endpoints = {most}"


def _exposed(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    for path, address in settings.exposed():
        guarded = None if settings.allow_plaintext else tls_check.missing_guard(settings, path, address)
        lacks = [] if guarded is None else [guarded]
        if path.startswith("admin.") and not settings.admin.token_file:
            lacks.append("beyond loopback also an admin.token_file")
        if lacks:
            yield tuple(path.split(".")), f"{address!r}; allowed: {'; '.join(lacks)}"


def _plain_store(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    """A password in the URL would cross the network in plaintext. The text does not show the URL."""
    text = "allowed: rediss://, a Unix socket or loopback, or allow_plaintext: true"
    for section in ("shared", "idempotency"):
        url = getattr(settings.ext_proc, section).url.get_secret_value()
        if url and not settings.allow_plaintext and not is_guarded(url):
            yield ("ext_proc", section, "url"), text


def _timing(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    signals = settings.signals
    if signals.stale_after_seconds < 2 * signals.scrape_interval_seconds:
        yield (
            ("signals", "stale_after_seconds"),
            f"{signals.stale_after_seconds}; allowed: at least twice scrape_interval_seconds",
        )


def _within(problems: Iterable[tuple[FieldPath, str]], *section: str) -> Iterator[tuple[FieldPath, str]]:
    """Put the section's path in front of the paths of its contradictions."""
    for path, text in problems:
        yield (*section, *path), text
