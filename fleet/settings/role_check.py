"""Whether roles can be told apart by what the settings say: pure, without a look at any certificate."""

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
"""Service to the roles for which it is there."""
_ASKING_ROLES: Final[Mapping[str, tuple[Role, ...]]] = {
    "xds": ("envoys", "grpc_clients", "agents", "operators"),
    "ext_proc": ("envoys", "gateways"),
    "control": ("workers", "agents"),
    "admin": ("operators",),
}
"""Service to the roles that may use any of it."""
_DUTIES: Final[Mapping[str, tuple[str, ...]]] = {
    "xds": ("fetch the configuration", "report GPUs"),
    "ext_proc": ("ask for picks",),
    "control": ("follow the fleet", "report GPUs"),
    "admin": ("use admin",),
}
_KEYS: Final = "fetch the keys of listeners and pools"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with settings that can be used all the same."""

    text: str
    """The field's path in front, the value, what is allowed and the next step."""
    grave: bool
    """Whether others than Envoys can fetch keys, or a part of Warmroute is of no use: `check` ends with 2."""


def contradictions(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    """Path and text of roles by which an address is of no use to anybody, or that no address asks for."""
    tls = settings.tls
    if tls.roles is None:
        return
    asking = asking_services(settings)
    if not asking:
        yield ("tls", "roles"), "nobody is asked for a certificate; allowed: with a client_ca_file only"
        return
    for service in asking:
        needed = NEEDED_ROLES[service]
        if not any(getattr(tls.roles, role) for role in needed):
            yield (
                ("tls", "roles", needed[0]),
                f"without a name nobody could use tls.{service}; allowed: at least one"
                + "".join(f", or one in {role}" for role in needed[1:]),
            )
    for role in get_args(Role):
        services = [service for service, roles in _ASKING_ROLES.items() if role in roles]
        open_to_all = [service for service in services if getattr(tls, service) is not None]
        if getattr(tls.roles, role) and open_to_all and not asking.keys() & set(services):
            lacking = " or ".join(f"tls.{service}.client_ca_file" for service in open_to_all)
            told = "its names count for nothing, as nobody is asked for a certificate"
            step = f"{lacking} with the authority that signs them, otherwise delete tls.roles.{role}"
            yield ("tls", "roles", role), f"{told}; allowed: {step}"


def findings(settings: Settings) -> tuple[Finding, ...]:
    """Say which roles cannot be told apart; empty: all can, or there are no certificates to tell them by."""
    asking = asking_services(settings)
    if not asking:
        return ()
    keys = keys_by_certificate(settings)
    roles = settings.tls.roles
    if roles is None:
        return (Finding(_unnamed(asking, keys=keys), keys),)
    return (*_doubles(roles, keys=keys), *_unasked(settings, roles))


def opened(before: Settings, after: Settings) -> list[str]:
    """Say what a reload would open to others than before; empty: nothing.

    The settings in force go on, so there is no reason to take such a change over, as there is at a start.
    """
    if before.tls.roles is not None and after.tls.roles is None and asking_services(after):
        told = "tls.roles: deleted, which would give each certificate every role at once"
        return [f"{told}; allowed: names by role; to go on without them, restart the service"]
    known = findings(before)
    return [finding.text for finding in findings(after) if finding.grave and finding not in known]


def asking_services(settings: Settings) -> dict[str, str]:
    """Services that ask for certificates, and whose."""
    found = {}
    for service in NEEDED_ROLES:
        section: ServerTlsSettings | None = getattr(settings.tls, service)
        if section is not None and section.client_ca_file is not None:
            found[service] = section.client_ca_file
    return found


def keys_by_certificate(settings: Settings) -> bool:
    """Whether keys are sent to whom a certificate shows, not to whom a Unix socket lets in."""
    own = [held.tls for held in settings.listeners if held.tls is not None]
    shown = [held.tls for held in settings.pools if held.tls is not None and held.tls.key_file]
    return bool(own or shown) and "xds" in asking_services(settings)


def _unnamed(asking: Mapping[str, str], *, keys: bool) -> str:
    duties: dict[str, dict[str, None]] = {}
    for service, authority in asking.items():
        mine = (_KEYS, *_DUTIES[service][1:]) if keys and service == "xds" else _DUTIES[service]
        duties.setdefault(authority, {}).update(dict.fromkeys(mine))
    told = "; ".join(
        f"every certificate that {authority} has signed may {', '.join(mine)}"
        for authority, mine in duties.items()
    )
    roles = dict.fromkeys(role for service in asking for role in NEEDED_ROLES[service][:1])
    wanted = ", ".join(f"{role}: [NAME]" for role in roles)
    return (
        f"tls.roles: not set, so {told}; allowed: the names in certificates, by role, as in"
        f" `roles: {{{wanted}, agents: []}}`"
    )


def _doubles(roles: RoleSettings, *, keys: bool) -> Iterator[Finding]:
    """The first pair of names of each pair of roles that one certificate may match."""
    for one, other in combinations(get_args(Role), 2):
        pair = _pair(getattr(roles, one), getattr(roles, other))
        if pair is None:
            continue
        (i, name), (j, other_name) = pair
        may = _KEYS if keys and one == "envoys" else f"do what both {one} and {other} may"
        yield Finding(
            f"tls.roles.{other}[{j}]: {other_name!r} cannot be told from {name!r} in tls.roles.{one}[{i}],"
            f" so its holder may {may}; allowed: names that no certificate of another role carries",
            keys and one == "envoys",
        )


def _pair(ones: tuple[str, ...], others: tuple[str, ...]) -> tuple[tuple[int, str], tuple[int, str]] | None:
    """Index and name in each of two lists that a certificate may match by one name; None: there are none."""
    mine = {name: i for i, name in reversed([*enumerate(map(_spelt, ones))])}
    theirs = {name: j for j, name in reversed([*enumerate(map(_spelt, others))])}
    found = {(mine[wide], j) for name, j in theirs.items() for wide in _including(name) if wide in mine}
    found |= {(i, theirs[wide]) for name, i in mine.items() for wide in _including(name) if wide in theirs}
    if not found:
        return None
    i, j = min(found)
    return (i, ones[i]), (j, others[j])


def _spelt(name: str) -> str:
    return name if "://" in name else name.lower()


def _including(name: str) -> Iterator[str]:
    """A name, and those that match whatever it matches."""
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
    """Addresses with TLS that ask for no certificate although names are set for what they serve."""
    asking = asking_services(settings)
    for service in NEEDED_ROLES:
        named = [role for role in _ASKING_ROLES[service] if getattr(roles, role)]
        if getattr(settings.tls, service) is None or service in asking or not named:
            continue
        shown = " and ".join(f"tls.roles.{role}" for role in named)
        yield Finding(
            f"tls.{service}: without client_ca_file, so {shown} count for nothing there; allowed: a"
            " client_ca_file with the authority that signs such certificates",
            grave=False,
        )
