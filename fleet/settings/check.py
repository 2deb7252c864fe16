"""Rules over several fields: references between them, duplicates, limits over all pools."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from fleet.settings import role_check, sla_policy
from fleet.settings.address import WILDCARDS, is_local, same_socket, split_host_port
from fleet.settings.ext_proc import worker_admin_address
from fleet.settings.shared import is_guarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleet.settings.model import Settings
    from fleet.settings.strict import FieldPath
    from fleet.settings.tls import ServerTlsSettings

    Problems = Iterator[tuple[FieldPath, str]]

SAFE_FOR_KEYS: Final = "xds.address a Unix socket, or tls.xds with client_ca_file"


def contradictions(settings: Settings) -> list[tuple[FieldPath, str]]:
    """Return path and text of each contradiction in settings whose fields are all valid."""
    return [
        *_duplicates(settings),
        *_services(settings),
        *_workers(settings),
        *_unknown_pools(settings),
        *_too_many_endpoints(settings),
        *_exposed(settings),
        *_plain_store(settings),
        *_timing(settings),
        *_topology(settings),
        *sla_policy.contradictions(settings),
        *_tls(settings),
        *role_check.contradictions(settings),
    ]


def repeated(values: Iterable[object]) -> Iterator[int]:
    """Yield the index of each value that equals an earlier one."""
    earlier = set()
    for i, value in enumerate(values):
        if value in earlier:
            yield i
        earlier.add(value)


def _duplicates(settings: Settings) -> Problems:
    pools, listeners = settings.pools, settings.listeners
    for i in repeated(pool.name for pool in pools):
        yield ("pools", i, "name"), f"{pools[i].name!r}; allowed: each pool name once"
    addresses: dict[str, str] = {}
    for i, pool in enumerate(pools):
        for j, endpoint in enumerate(pool.endpoints):
            if (other := addresses.get(endpoint.address)) is not None:
                text = f"{endpoint.address!r}; allowed: each address once, it is also in pool {other!r}"
                yield ("pools", i, "endpoints", j, "address"), text
            addresses[endpoint.address] = pool.name
        for j in repeated(pool.discovery):
            yield ("pools", i, "discovery", j), "the same as one before; allowed: each source once"
    for i in repeated(listener.name for listener in listeners):
        yield ("listeners", i, "name"), f"{listeners[i].name!r}; allowed: each listener name once"
    for i in repeated(listener.address for listener in listeners):
        yield ("listeners", i, "address"), f"{listeners[i].address!r}; allowed: each address once"


def _services(settings: Settings) -> Problems:
    """Each service has an address of its own, and no Envoy listener takes its port."""
    addresses = settings.addresses
    # `ext-proc` may run on another host than `xds`.
    bound = {path: address for path, address in addresses.items() if path != "admin.ext_proc_address"}
    for i, (path, address) in enumerate(bound.items()):
        if any(same_socket(address, other) for other in list(bound.values())[:i]):
            yield tuple(path.split(".")), f"{address!r}; allowed: an address of its own for each service"
    for i, listener in enumerate(settings.listeners):
        for path, address in addresses.items():
            if same_socket(listener.address, address):
                collision = f"{path} = {address!r} is this port"
                yield (
                    ("listeners", i, "address"),
                    f"{listener.address!r}; allowed: another port, as {collision}",
                )
        for pool in settings.pools:
            for endpoint in pool.endpoints:
                address = endpoint.address
                # A wildcard is of the Envoy's host only, and an endpoint may be on another one.
                own_host = is_local(address) or split_host_port(listener.address)[0] not in WILDCARDS
                if own_host and same_socket(listener.address, address):
                    collision = f"an endpoint of pool {pool.name!r} has this one"
                    yield (
                        ("listeners", i, "address"),
                        f"{listener.address!r}; allowed: another port, as {collision}",
                    )


def _workers(settings: Settings) -> Problems:
    """The addresses of further workers follow the first one's; they must exist and be free."""
    count, admin = settings.ext_proc.workers, settings.admin.ext_proc_address
    if count == 1:
        return
    path: FieldPath = ("ext_proc", "workers")
    try:
        addresses = [
            *settings.ext_proc.worker_addresses[1:],
            *(worker_admin_address(admin, number) for number in range(count) if admin),
        ]
    except ValueError as error:
        yield path, f"{count}; {error}"
        return
    used = [*settings.addresses.values(), *(listener.address for listener in settings.listeners)]
    both = [*dict.fromkeys(used), *addresses]
    for i in repeated(both):
        yield path, f"{count}; allowed: fewer, or other addresses: {both[i]!r} is used"
        return


def _unknown_pools(settings: Settings) -> Problems:
    pools = sorted({pool.name for pool in settings.pools})
    for i, listener in enumerate(settings.listeners):
        for name in listener.pools:
            if name not in pools:
                field = "pool" if len(listener.pools) == 1 else "pools"
                yield ("listeners", i, field), f"{name!r}; allowed: {', '.join(pools)}"


def _too_many_endpoints(settings: Settings) -> Problems:
    count, most = sum(len(pool.endpoints) for pool in settings.pools), settings.limits.endpoints
    if count > most:
        yield ("pools",), f"{count} endpoints; allowed: at most limits.endpoints = {most}"


def _exposed(settings: Settings) -> Problems:
    for path, address in settings.addresses.items():
        if not address or is_local(address):
            continue
        lacks = [] if settings.allow_plaintext else [*_missing_guard(settings, path.partition(".")[0])]
        if path.startswith("admin.") and not settings.admin.token_file:
            lacks.append("beyond loopback also an admin.token_file")
        if lacks:
            yield tuple(path.split(".")), f"{address!r}; allowed: {'; '.join(lacks)}"


def _plain_store(settings: Settings) -> Problems:
    """A password in the URL would cross the network in plaintext. The text does not show the URL."""
    text = "allowed: rediss://, a Unix socket or loopback, or allow_plaintext: true"
    for section in ("shared", "idempotency"):
        url = getattr(settings.ext_proc, section).url.get_secret_value()
        if url and not settings.allow_plaintext and not is_guarded(url):
            yield ("ext_proc", section, "url"), text


def _timing(settings: Settings) -> Problems:
    signals = settings.signals
    if signals.stale_after_seconds < 2 * signals.scrape_interval_seconds:
        yield (
            ("signals", "stale_after_seconds"),
            f"{signals.stale_after_seconds}; allowed: at least twice scrape_interval_seconds",
        )
    pings = settings.connections
    if pings.ping_timeout_seconds > pings.ping_seconds:
        path: FieldPath = ("connections", "ping_timeout_seconds")
        yield path, f"{pings.ping_timeout_seconds:g}; allowed: at most ping_seconds"
    interval, permitted = pings.engine_ping_seconds, pings.engine_permitted_ping_seconds
    if interval is not None and interval < permitted:
        allowed = f"at least engine_permitted_ping_seconds = {permitted:g}"
        yield ("connections", "engine_ping_seconds"), f"{interval:g}; allowed: {allowed}"


def _topology(settings: Settings) -> Problems:
    topology = settings.weights.topology
    for nearer, farther in pairwise(("same_sub_zone", "same_zone", "same_region", "elsewhere")):
        most, value = getattr(topology, nearer), getattr(topology, farther)
        if value > most:
            text = f"{value}; allowed: 0.8 to {nearer} = {most}, what is farther weighs no more"
            yield ("weights", "topology", farther), text
    links: dict[tuple[str, str], str] = {}
    for i, entry in enumerate(topology.links):
        pair = (entry.from_, entry.to)
        if pair in links:
            text = f"{entry.link} from {entry.from_!r} to {entry.to!r}; allowed: each direction once"
            yield ("weights", "topology", "links", i), f"{text}, it is {links[pair]} already"
        links.setdefault(pair, entry.link)


def _tls(settings: Settings) -> Problems:
    """Yield TLS sections that lack another one, and unprotected keys."""
    tls = settings.tls
    for service in ("xds", "ext_proc"):
        if getattr(tls, service) is not None and tls.envoy is None:
            yield ("tls", service), "without tls.envoy no Envoy could connect; allowed: both or neither"
    if tls.control is not None and tls.workers is None:
        yield ("tls", "control"), "without tls.workers no worker could connect; allowed: both or neither"
    admin, workers = tls.admin, settings.ext_proc.workers
    if admin is not None and admin.client_ca_file is not None and workers > 1:
        yield (
            ("tls", "admin", "client_ca_file"),
            f"allowed: none with ext_proc.workers = {workers}, because their parent shows none",
        )
    if keys_are_safe(settings):
        return
    text = f"every peer that can connect to xds.address could fetch {{}}; allowed: {SAFE_FOR_KEYS}"
    for i, listener in enumerate(settings.listeners):
        if listener.tls is not None:
            yield ("listeners", i, "tls"), text.format("this listener's key")
    for i, pool in enumerate(settings.pools):
        if pool.tls is not None:
            what = "this pool's key" if pool.tls.key_file else "what this pool trusts"
            yield ("pools", i, "tls"), text.format(what)


def keys_are_safe(settings: Settings) -> bool:
    """Whether only authorised peers can read what xds_server sends."""
    own = settings.tls.xds
    return settings.xds.address.startswith("unix:") or (own is not None and own.client_ca_file is not None)


def _missing_guard(settings: Settings, service: str) -> Iterator[str]:
    """Yield what the address of a service lacks that other hosts can reach."""
    section: ServerTlsSettings | None = getattr(settings.tls, service)
    if section is None:
        yield f"a Unix socket or loopback, or tls.{service}, or allow_plaintext: true"
    elif service != "admin" and section.client_ca_file is None:
        yield f"a Unix socket or loopback, or tls.{service}.client_ca_file"
