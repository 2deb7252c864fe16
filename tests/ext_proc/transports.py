"""The ext_proc service behind a real socket, over either transport."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import grpc

from ext_proc.grpcio import GrpcioService
from ext_proc.server import ExtProcService
from fleet.lane.server import LaneServer
from fleet.settings.connections import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ext_proc.processor import ExternalProcessor

TRANSPORTS = ("lane", "grpcio")


@contextlib.asynccontextmanager
async def serving(
    processor: ExternalProcessor, address: str, transport: str = "lane", unread_bytes: int | None = None
) -> AsyncIterator[ExtProcService]:
    """Serve a processor; `unread_bytes` limits the replies that clients do not read."""
    if transport == "lane":
        service = ExtProcService(processor)
        lane = LaneServer("ext_proc", address, ConnectionSettings(), service.methods)
        if unread_bytes is not None:
            lane.budget.unread_bytes = unread_bytes
        await lane.start()
        try:
            yield service
        finally:
            await lane.stop(0)
        return
    carried = GrpcioService(processor)
    if unread_bytes is not None:
        carried.unread.unread_bytes = unread_bytes
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 << 20)])
    carried.register(server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield carried
    finally:
        await server.stop(None)
