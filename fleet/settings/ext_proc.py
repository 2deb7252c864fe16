"""The external processor."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from fleet.settings.address import (
    MAX_SOCKET_PATH_BYTES,
    ServerAddress,
    Transport,
    split_host_port,
    transport_in_force,
)
from fleet.settings.idempotency import IdempotencySettings
from fleet.settings.picks import PickSettings
from fleet.settings.shared import SharedSettings
from fleet.settings.strict import Strict

MOST_WORKERS: Final = 64
_MAX_PORT: Final = 65_535


class ExtProcSettings(Strict):
    """Where the external processor listens, where Envoy finds it, and how it picks."""

    address: ServerAddress = "unix:/run/warmroute/ext_proc.sock"
    transport: Transport | None = None
    """The gRPC server of the address; None: by the address."""
    message_timeout_seconds: Annotated[float, Field(gt=0, le=10)] = 0.25
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = 1
    """Processes of `warmroute ext-proc` on one host; Envoys spread requests over all of them."""
    shared: SharedSettings = SharedSettings()
    idempotency: IdempotencySettings = IdempotencySettings()
    name_always: bool = False
    """Name an endpoint by weights where nothing is picked, for gateways that have no balancing of their
    own."""
    clear_route_cache: bool = False
    """Let Envoy choose the route again, with the headers that are set: for routes that match on one of
    them."""
    pick: PickSettings = PickSettings()

    @property
    def transport_in_force(self) -> Transport:
        """The lane for peers on this host, grpcio for others."""
        return transport_in_force(self.transport, self.address)

    @property
    def worker_addresses(self) -> tuple[str, ...]:
        """Where all workers listen, and where Envoys find them."""
        return tuple(worker_address(self.address, number) for number in range(self.workers))


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
