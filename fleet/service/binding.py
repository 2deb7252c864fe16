"""Addresses to listen on. The error for an unusable one names its setting, the cause and the next step."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fleet.cause import cause_of
from fleet.errors import SettingsError
from fleet.service.files import make_directories
from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKET_MODE: Final = 0o660
"""Of a Unix socket, under any umask and in any directory: owner and group may connect."""
_UNIX: Final = "unix:"
_TAKEN: Final = "another process listens there"
_NO_NAME: Final = "no such host name is known here"


def socket_path(address: str) -> Path | None:
    """Return the path of a Unix socket's address; None: it is a host with a port."""
    return Path(address.removeprefix(_UNIX)) if address.startswith(_UNIX) else None


def cannot_listen(field: str, address: str, why: str) -> SettingsError:
    """Return the error for an address of the settings, or of an option, that cannot be bound."""
    allowed = "a free address"
    if socket_path(address) is not None:
        allowed = "a socket in a directory that this user may write to"
    step = f"set another {field}: {allowed}"
    if why == _TAKEN:
        step = f"stop it, or set another {field}"
    elif why == _NO_NAME:
        step = "mend the name, or set an address of this host"
    return SettingsError([f"{field}: {address!r}: {why}; {step}"])


def why_not_bound(error: OSError) -> str:
    """Return why the system refuses to bind a TCP address."""
    if error.errno == errno.EADDRINUSE:
        return _TAKEN
    if error.errno == errno.EADDRNOTAVAIL:
        return "this host has no such address"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "this user may not use this port (permission denied)"
    return cause_of(error)


def prepare(field: str, address: str) -> None:
    """Make the directory of a Unix socket, and check that an address can be bound.

    gRPC reports no cause if it cannot. It would also remove another process' Unix socket when it binds, and
    again when it ends.

    Raises:
        SettingsError: it cannot.
    """
    with _naming(field, address):
        if (path := socket_path(address)) is not None:
            make_directories(path.parent)
        _look(address)


def check(field: str, address: str) -> None:
    """Check that an address can be bound here, without changing anything.

    An address in use passes: the service itself may be running.

    Raises:
        SettingsError: it cannot.
    """
    with _naming(field, address), contextlib.suppress(_TakenError):
        _look(address)


@contextlib.contextmanager
def sockets_for_the_group() -> Iterator[None]:
    """Set the umask so that Unix sockets are created with `SOCKET_MODE`."""
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        yield
    finally:
        os.umask(before)


class _UnusableError(Exception):
    """The text has the cause."""


class _TakenError(_UnusableError):
    """Another process listens there."""


@contextlib.contextmanager
def _naming(field: str, address: str) -> Iterator[None]:
    """Turn the cause of an unusable address into an error that names its setting."""
    try:
        yield
    except _TakenError:
        raise cannot_listen(field, address, _TAKEN) from None
    except _UnusableError as error:
        raise cannot_listen(field, address, str(error)) from None
    except OSError as error:
        raise cannot_listen(field, address, cause_of(error)) from error


def _look(address: str) -> None:
    if (path := socket_path(address)) is not None:
        _try_to_connect(path)
    else:
        _try_to_bind(*split_host_port(address))


def _try_to_bind(host: str, port: int) -> None:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise _UnusableError(_NO_NAME) from error
    family, kind, protocol, _, address = addresses[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            kind_of_error = _TakenError if error.errno == errno.EADDRINUSE else _UnusableError
            raise kind_of_error(why_not_bound(error)) from error


def _try_to_connect(path: Path) -> None:
    """Check that a socket can be made, in directories that exist or can be made, and that none listens."""
    directory = path.parent
    there = next(parent for parent in path.parents if parent.exists())
    if not there.is_dir():
        raise _UnusableError(f"{there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise _UnusableError(f"{directory}: permission denied")
    if not path.exists():
        return
    if not path.is_socket():
        raise _UnusableError(f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            pass  # A process listens and is slow to accept.
        except PermissionError:
            raise _UnusableError("another user's socket is there (permission denied)") from None
        except (ConnectionRefusedError, FileNotFoundError):
            return
    raise _TakenError(_TAKEN)
