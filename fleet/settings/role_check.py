"""Whether names separate the roles: pure, without reading any certificate."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final, get_args

from fleet.settings.tls import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.settings.model import Settings
    from fleet.settings.strict import FieldPath
    from fleet.settings.tls import RoleSettings, ServerTlsSettings

NEEDED_ROLES: Final[Mapping[str, tuple[Role, ...]]] = {
    "xds": ("envoys", "grpc_clients"),
    "ext_proc": ("envoys", "gateways"),
    "control": ("workers",),
    "admin": ("operators",),
}
"""Service to the roles that it exists for."""
_ASKING_ROLES: Final[Mapping[str, tuple[Role, ...]]] = {
    "xds": ("envoys", "grpc_clients", "agents", "operators"),
    "ext_proc": ("envoys", "gateways"),
    "control": ("workers", "agents"),
    "admin": ("operators",),
}
"""Service to the roles that may use a part of it."""
_DUTIES: Final[Mapping[str, tuple[str, ...]]] = {
    "xds": ("fetch the configuration", "report GPUs"),
    "ext_proc": ("ask for picks",),
    "control": ("follow the fleet", "report GPUs"),
    "admin": ("use admin",),
}
_KEYS: Final = "fetch the keys of listeners and pools"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of settings that can still be used."""

    text: str
    """The field's path, the value, what is allowed and the next step."""
    grave: bool
    """Whether peers other than Envoys can fetch keys, or a part of Warmroute is unusable: `check` ends with
    2."""


def contradictions(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    """Return path and text of roles that leave an address unusable, and of roles without an address."""
    tls = settings.tls
    if tls.roles is None:
        return
    asking = asking_services(settings)
    if not asking:
        yield ("tls", "roles"), "no service requests certificates; allowed: with a client_ca_file only"
        return
    for service in asking:
        needed = NEEDED_ROLES[service]
        if not any(getattr(tls.roles, role) for role in needed):
            yield (
                ("tls", "roles", needed[0]),
                f"without a name no peer could use tls.{service}; allowed: at least one"
                + "".join(f", or one in {role}" for role in needed[1:]),
            )
    for role in get_args(Role):
        services = [service for service, roles in _ASKING_ROLES.items() if role in roles]
        open_to_all = [service for service in services if getattr(tls, service) is not None]
        if getattr(tls.roles, role) and open_to_all and not asking.keys() & set(services):
            lacking = " or ".join(f"tls.{service}.client_ca_file" for service in open_to_all)
            problem = "its names count for nothing, as no service requests certificates"
            step = f"{lacking} with the authority that signs them, otherwise delete tls.roles.{role}"
            yield ("tls", "roles", role), f"{problem}; allowed: {step}"


def findings(settings: Settings) -> tuple[Finding, ...]:
    """Return the roles that one certificate may have together; empty: none, or no service requests one."""
    asking = asking_services(settings)
    if not asking:
        return ()
    keys = keys_by_certificate(settings)
    roles = settings.tls.roles
    if roles is None:
        return (Finding(_unnamed(asking, keys=keys), keys),)
    return (*_doubles(roles, keys=keys), *_unasked(settings, roles))


def added_access(before: Settings, after: Settings) -> list[str]:
    """Return the access that a reload would give to further peers; empty: none.

    A start has no settings to go on with; a reload has, so it can refuse such a change.
    """
    if before.tls.roles is not None and after.tls.roles is None and asking_services(after):
        problem = "tls.roles: deleted, which would give each certificate every role at once"
        return [f"{problem}; allowed: names by role; to go on without them, restart the service"]
    earlier = findings(before)
    return [finding.text for finding in findings(after) if finding.grave and finding not in earlier]


def asking_services(settings: Settings) -> dict[str, str]:
    """Return the services that request certificates, with the file of their authorities."""
    authorities = {}
    for service in NEEDED_ROLES:
        section: ServerTlsSettings | None = getattr(settings.tls, service)
        if section is not None and section.client_ca_file is not None:
            authorities[service] = section.client_ca_file
    return authorities


def keys_by_certificate(settings: Settings) -> bool:
    """Whether certificates, not a Unix socket, decide which peers get keys."""
    of_listeners = any(listener.tls is not None for listener in settings.listeners)
    of_pools = any(pool.tls is not None and pool.tls.key_file for pool in settings.pools)
    return (of_listeners or of_pools) and "xds" in asking_services(settings)


def _unnamed(asking: Mapping[str, str], *, keys: bool) -> str:
    duties: dict[str, dict[str, None]] = {}
    for service, authority in asking.items():
        mine = (_KEYS, *_DUTIES[service][1:]) if keys and service == "xds" else _DUTIES[service]
        duties.setdefault(authority, {}).update(dict.fromkeys(mine))
    access = "; ".join(
        f"every certificate that {authority} has signed may {', '.join(mine)}"
        for authority, mine in duties.items()
    )
    roles = dict.fromkeys(role for service in asking for role in NEEDED_ROLES[service][:1])
    example = ", ".join(f"{role}: [NAME]" for role in roles)
    return (
        f"tls.roles: not set, so {access}; allowed: the names in certificates, by role, as in"
        f" `roles: {{{example}, agents: []}}`"
    )


def _doubles(roles: RoleSettings, *, keys: bool) -> Iterator[Finding]:
    """For each pair of roles, yield the first pair of names that one certificate may match."""
    for one, other in combinations(get_args(Role), 2):
        pair = _pair(getattr(roles, one), getattr(roles, other))
        if pair is None:
            continue
        (i, name), (j, other_name) = pair
        may = _KEYS if keys and one == "envoys" else f"do what both {one} and {other} may"
        yield Finding(
            f"tls.roles.{other}[{j}]: {other_name!r} overlaps with {name!r} in tls.roles.{one}[{i}], so its"
            f" holder may {may}; allowed: names that no certificate of another role carries",
            keys and one == "envoys",
        )


def _pair(ones: tuple[str, ...], others: tuple[str, ...]) -> tuple[tuple[int, str], tuple[int, str]] | None:
    """Return index and name in each list that one name of a certificate may match; None: no pair."""
    mine = {name: i for i, name in reversed([*enumerate(map(_spelt, ones))])}
    theirs = {name: j for j, name in reversed([*enumerate(map(_spelt, others))])}
    pairs = {(mine[wide], j) for name, j in theirs.items() for wide in _including(name) if wide in mine}
    pairs |= {(i, theirs[wide]) for name, i in mine.items() for wide in _including(name) if wide in theirs}
    if not pairs:
        return None
    i, j = min(pairs)
    return (i, ones[i]), (j, others[j])


def _spelt(name: str) -> str:
    return name if "://" in name else name.lower()


def _including(name: str) -> Iterator[str]:
    """Yield a name, and the patterns that match all that it matches."""
    yield name
    if "://" not in name:
        if not name.startswith("*."):
            yield f"*.{name.partition('.')[2]}"
        return
    end = len(name.removesuffix("/*"))
    start = name.index("://") + len("://")
    while (end := name.rfind("/", start, end)) > 0:
        yield f"{name[:end]}/*"


def _unasked(settings: Settings, roles: RoleSettings) -> Iterator[Finding]:
    """Yield the TLS addresses that request no certificate although roles for them have names."""
    asking = asking_services(settings)
    for service in NEEDED_ROLES:
        roles_named = [role for role in _ASKING_ROLES[service] if getattr(roles, role)]
        if getattr(settings.tls, service) is None or service in asking or not roles_named:
            continue
        shown = " and ".join(f"tls.roles.{role}" for role in roles_named)
        yield Finding(
            f"tls.{service}: without client_ca_file, so {shown} count for nothing there; allowed: a"
            " client_ca_file with the authority that signs such certificates",
            grave=False,
        )
