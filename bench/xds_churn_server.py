"""The discovery service under connect, subscribe, cancel: a child of `bench.xds_churn`, which takes stock."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from bench.peer import answer_all
from bench.xds_fleet import Fleet, names_by_type, resident_bytes
from fleet.lane.context import Services
from fleet.lane.metrics import LaneMetrics
from xds_server.discovery.server import DiscoveryService
from xds_server.doors import lane_server
from xds_server.snapshot.snapshot import Snapshot, SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_MAX_STREAMS: Final = 10_000
_PUSH_SECONDS: Final = 0.1
"""Pushes go on during the churn, so that some meet a stream that is being cancelled."""


class CountingStore(SnapshotStore):
    """Knows how many watch it."""

    def __init__(self) -> None:
        super().__init__()
        self.watches = 0

    def subscribe(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Count the listener until it ends its watch."""
        end = super().subscribe(listener)
        self.watches += 1
        ended = False

        def end_once() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self.watches -= 1
            end()

        return end_once


class ChurnServer:
    """What the parent may ask of it."""

    def __init__(self, address: str, endpoints: int) -> None:
        self._fleet = Fleet(endpoints)
        self._store = CountingStore()
        self._store.set(self._fleet.snapshot(0))
        self._registry = CollectorRegistry()
        self._service = DiscoveryService(self._store, self._registry, _MAX_STREAMS)
        services = Services()
        self._service.register(services)
        metrics = LaneMetrics.on(self._registry, "churn")
        self._grpc = lane_server("churn", address, services, metrics=metrics)
        self._pushing: asyncio.Task[None] | None = None

    def verbs(self) -> Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]:
        """Return the commands by name."""
        return {"start": self.start, "stock": self.stock, "push": self.push, "rest": self.rest}

    async def start(self) -> dict[str, Any]:
        """Serve; return the resource names of a client's subscriptions."""
        await self._grpc.start()
        return {"names": names_by_type(self._fleet.snapshot(0))}

    async def push(self) -> dict[str, Any]:
        """Change a weight every now and then, from now on."""
        self._pushing = asyncio.create_task(self._push_for_ever())
        return {}

    async def rest(self) -> dict[str, Any]:
        """Change nothing any more."""
        if self._pushing is not None:
            self._pushing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pushing
            self._pushing = None
        return {}

    async def stock(self) -> dict[str, Any]:
        """Return the memory in use, garbage not counted."""
        gc.collect()
        return {
            "tasks": len(asyncio.all_tasks()),
            "watches": self._store.watches,
            "clients": len(self._service.clients()),
            "connections": self._connections(),
            "resident_bytes": resident_bytes(os.getpid()),
        }

    def _connections(self) -> float | None:
        return self._registry.get_sample_value("warmroute_grpc_connections", {"service": "churn"})

    async def _push_for_ever(self) -> None:
        number = 0
        while True:
            number += 1
            self._store.set(self._fleet.snapshot(number))
            await asyncio.sleep(_PUSH_SECONDS)


def main() -> int:
    """Run as a child process."""
    parser = argparse.ArgumentParser(prog="python -m bench.xds_churn_server", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("endpoints", type=int)
    args = parser.parse_args()
    return answer_all(lambda: ChurnServer(args.address, args.endpoints).verbs())


if __name__ == "__main__":
    sys.exit(main())
