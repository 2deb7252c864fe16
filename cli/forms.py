"""What a form of the service needs beyond good settings: files of this host, and one process for `serve`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from fleet.admin_access import TokenFile
from fleet.credentials import Dialler, hold_server
from fleet.errors import SettingsError
from fleet.tls import Certificates

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
    """Tell what would end the role at its start on this host, but for addresses that are taken."""
    if role == "serve" and (told := several_workers(settings)):
        yield told
    for needed in _needs(settings, role):
        try:
            needed()
        except SettingsError as error:
            yield from error.problems


def several_workers(settings: Settings) -> str:
    """Return why `serve` does not take these settings; empty where it does."""
    count = settings.ext_proc.workers
    if count == 1:
        return ""
    return f"ext_proc.workers: {count}; allowed: 1, as `serve` is one process: use `xds` and `ext-proc`"


def _needs(settings: Settings, role: Role) -> Iterator[Callable[[], object]]:
    """What each part reads when it is made."""
    certificates, admin = Certificates(), settings.admin
    if admin.token_file and (admin.ext_proc_address if role == "ext-proc" else admin.address):
        yield partial(TokenFile, Path(admin.token_file))
    for service in _SERVICES[role]:
        yield partial(hold_server, certificates, settings, service)
    if role == "ext-proc":
        shown = settings.tls.workers if settings.tls.control is not None else None
        yield partial(Dialler.of, settings.control.address, shown, "tls.workers", certificates)
    else:
        from xds_server.snapshot.secrets import Secrets  # noqa: PLC0415 - workers need nothing of xds_server

        yield partial(Secrets, certificates, settings)
