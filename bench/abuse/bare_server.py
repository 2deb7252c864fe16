"""A gRPC server with the health service and nothing else: what a health answer costs on this host now."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bench.peer import answer_all
from fleet.service.serving import GrpcServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def _verbs() -> dict[str, Callable[..., Awaitable[dict[str, Any]]]]:
    servers: list[GrpcServer] = []

    async def start(address: str) -> dict[str, Any]:
        server = GrpcServer("ext_proc", address)
        await server.start()
        servers.append(server)
        return {}

    async def stop() -> dict[str, Any]:
        for server in servers:
            await server.stop(0.0)
        return {}

    return {"start": start, "stop": stop}


if __name__ == "__main__":
    sys.exit(answer_all(_verbs))
