"""The gRPC health service, bounded: every peer that may connect may call it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1._async import HealthServicer

if TYPE_CHECKING:
    from grpc_health.v1 import health_pb2

MAX_NAME: Final = 256
MAX_WATCHES: Final = 1024
"""`Watch` streams of one server; each takes some 25 KB."""


class Health(HealthServicer):  # type: ignore[misc]
    """`Check` and `Watch`."""

    def __init__(self) -> None:
        super().__init__()
        self._watches = 0

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802 - gRPC's name
        """Send a service's state now and whenever it changes."""
        if len(request.service) > MAX_NAME:
            why = f"a name of {len(request.service)} characters; allowed: {MAX_NAME}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {MAX_WATCHES} watches")
        self._watches += 1
        try:
            await super().Watch(request, context)
        finally:
            self._watches -= 1
