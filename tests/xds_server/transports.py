"""Services of xds_server behind a real socket, over either transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from fleet.lane.context import Services
from fleet.service.serving import GrpcServer
from xds_server.doors import XDS_BYTES, lane_server

if TYPE_CHECKING:
    from collections.abc import Callable

TRANSPORTS = ("lane", "grpcio")


def server_of(
    transport: str, address: str, *registers: Callable[[Any], None], receive_bytes: int = XDS_BYTES
) -> Any:
    """Make a server with services, as `Doors` does without TLS; the caller starts it.

    `bare` has no limit of first messages in front of the services.
    """
    if transport == "lane":
        services = Services()
        for register in registers:
            register(services)
        return lane_server("x", address, services, receive_bytes)
    server = GrpcServer("x", address, receive_bytes=receive_bytes)
    adding = server.server if transport == "grpcio" else grpc.aio.server()
    for register in registers:
        register(adding)
    if transport == "grpcio":
        return server
    adding.add_insecure_port(address)
    return adding
