"""Addresses of several ext_proc workers on one host."""

from __future__ import annotations

from typing import Final

from fleet.settings.address import MAX_SOCKET_PATH_BYTES, split_host_port

MOST_WORKERS: Final = 64
_MAX_PORT: Final = 65_535


def worker_address(address: str, number: int) -> str:
    """Return where worker `number` listens: worker 0 at the address itself, the others at derived ones.

    A Unix socket's path gets the number as its suffix; a port is increased by it.

    Raises:
        ValueError: there is no such port, or the path is too long.
    """
    if number == 0:
        return address
    if not address.startswith("unix:"):
        return _next_port(address, number)
    if len(address.removeprefix("unix:").encode()) + len(f".{number}") >= MAX_SOCKET_PATH_BYTES:
        raise ValueError("allowed: a shorter path, for the workers' sockets have a number behind it")
    return f"{address}.{number}"


def worker_admin_address(address: str, number: int) -> str:
    """Return the admin address of worker `number`: a port after the parent's. Empty stays empty.

    Raises:
        ValueError: there is no such port.
    """
    return _next_port(address, number + 1) if address else ""


def _next_port(address: str, step: int) -> str:
    _, port = split_host_port(address)
    if port + step > _MAX_PORT:
        raise ValueError(f"allowed: a port of at most {_MAX_PORT - step}, for the workers' ports follow it")
    return f"{address.rpartition(':')[0]}:{port + step}"
