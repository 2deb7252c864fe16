"""Many clients in one process: a child of `bench.xds_scale`, controlled by lines on its input."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from bench.peer import answer_all
from bench.xds_client import XdsClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_AT_ONCE: Final = 50
"""New connections at a time: this bench is about pushes, not about reconnect storms."""


class Group:
    """The clients of one server."""

    def __init__(self) -> None:
        self.clients: list[XdsClient] = []
        self.received: list[tuple[float, int]] = []
        """Moment (monotonic clock, which all processes of a host share) and size of each response."""

    def note(self, size: int) -> None:
        """Note a response at the moment of its arrival."""
        self.received.append((time.monotonic(), size))


class Clients:
    """What the parent may ask for."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def verbs(self) -> Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]:
        """Return the commands by name."""
        return {"connect": self.connect, "receipts": self.receipts, "stop": self.stop}

    async def connect(
        self, group: str, address: str, variant: str, names: dict[str, list[str]], count: int
    ) -> dict[str, Any]:
        """Connect `count` clients and return when each has everything."""
        made = self._groups.setdefault(group, Group())
        for start in range(0, count, _AT_ONCE):
            batch = [
                XdsClient(f"{group}-{number}", address, variant, names, made.note)
                for number in range(start, min(start + _AT_ONCE, count))
            ]
            made.clients += batch
            await asyncio.gather(*(client.synced.wait() for client in batch))
        made.received.clear()
        return {}

    async def receipts(self, group: str, count: int) -> dict[str, Any]:
        """Return moments and sizes of the responses since the last call, when `count` have come."""
        made = self._groups[group]
        while len(made.received) < count:
            for client in made.clients:
                client.check()
            await asyncio.sleep(0.01)
        received = list(made.received)
        made.received.clear()
        return {"received": received}

    async def stop(self) -> dict[str, Any]:
        """End every connection."""
        clients = [client for group in self._groups.values() for client in group.clients]
        await asyncio.gather(*(client.close() for client in clients))
        return {}


def main() -> int:
    """Run as a child process, with as many open files as the system allows."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return answer_all(lambda: Clients().verbs())


if __name__ == "__main__":
    sys.exit(main())
