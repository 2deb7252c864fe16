"""What a form of the service needs of its host beyond good settings: files, addresses, and one process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from fleet.errors import SettingsError
from fleet.service import binding
from fleet.service.admin_access import TokenFile
from fleet.service.credentials import Dialler, certificate_provider
from fleet.service.tls import Certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleet.settings import Settings

Role = Literal["serve", "xds", "ext-proc"]
ROLES: Final[tuple[Role, ...]] = ("serve", "xds", "ext-proc")
_SERVICES: Final = {
    "serve": ("xds", "ext_proc", "admin"),
    "xds": ("xds", "control", "admin"),
    "ext-proc": ("ext_proc", "admin"),
}


def obstacles(settings: Settings, role: Role) -> Iterator[str]:
    """Yield the problems that would end the role at its start on this host, except taken addresses."""
    if role == "serve" and (problem := several_workers(settings)):
        yield problem
    for needed in _needs(settings, role):
        try:
            needed()
        except SettingsError as error:
            yield from error.problems


def admin_field(role: Role) -> str:
    """Return the setting with the address of the role's admin server."""
    return "admin.ext_proc_address" if role == "ext-proc" else "admin.address"


def addresses(settings: Settings, role: Role) -> list[tuple[str, str]]:
    """Return setting and value of each address that the role listens on."""
    services = [f"{service}.address" for service in _SERVICES[role] if service != "admin"]
    bound = [(field, settings.addresses[field]) for field in (admin_field(role), *services)]
    return [(field, address) for field, address in bound if address]


def several_workers(settings: Settings) -> str:
    """Return the reason that `serve` rejects these settings; empty when it accepts them."""
    count = settings.ext_proc.workers
    if count == 1:
        return ""
    return f"ext_proc.workers: {count}; allowed: 1, as `serve` is one process: use `xds` and `ext-proc`"


def _needs(settings: Settings, role: Role) -> Iterator[Callable[[], object]]:
    """Yield checks of the role: its addresses can be bound, and its files can be read."""
    for field, address in addresses(settings, role):
        yield partial(binding.check, field, address)
    certificates, token = Certificates(), settings.admin.token_file
    if token and settings.addresses[admin_field(role)]:
        yield partial(TokenFile, Path(token))
    for service in _SERVICES[role]:
        yield partial(certificate_provider, certificates, settings, service)
    if role == "ext-proc":
        peer = settings.tls.workers if settings.tls.control is not None else None
        yield partial(Dialler.of, settings.control.address, peer, "tls.workers", certificates)
    else:
        from xds_server.tls.secrets import Secrets  # noqa: PLC0415 - workers need nothing of xds_server

        yield partial(Secrets, certificates, settings)
