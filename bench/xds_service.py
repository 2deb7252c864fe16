"""xds_server as the product runs it, in a child process that also reports its clients' ACKs with times."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from bench.peer import answer_all
from fleet.names import TYPE_ENDPOINT
from fleet.settings import parse_settings
from fleet.store import FleetStore
from xds_server.app import XdsServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_WATCH_SECONDS: Final = 0.001


class XdsService:
    """What the parent may ask of it."""

    def __init__(self, settings_path: Path) -> None:
        self._registry = CollectorRegistry()
        self._server = XdsServer(
            parse_settings(settings_path.read_text()),
            FleetStore(),
            self._registry,
            TracerProvider(shutdown_on_exit=False),
            control=False,
        )
        self._clients = self._server.views()["/api/v1/clients"]
        self._acked: list[tuple[float, str]] = []
        self._something = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    def verbs(self) -> Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]:
        """Return the commands by name."""
        return {
            "start": self.start,
            "acked": self.acked,
            "next_ack": self.next_ack,
            "counts": self.counts,
            "stop": self.stop,
        }

    async def start(self) -> dict[str, Any]:
        """Serve, and look every millisecond at what the clients have acknowledged."""
        await self._server.start()
        self._watching = asyncio.create_task(self._watch())
        return {}

    async def acked(self) -> dict[str, Any]:
        """Return each new version of endpoints that a client acknowledged, with the moment (monotonic)."""
        acked, self._acked = self._acked, []
        self._something.clear()
        return {"acked": acked}

    async def next_ack(self, within: float) -> dict[str, Any]:
        """Wait for a new version to be acknowledged; return as `acked` does, empty after `within` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._something.wait()
        return await self.acked()

    async def counts(self) -> dict[str, Any]:
        """Return how many responses were written, of all types, and how many streams are open."""
        pushes = sum(
            sample.value
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name == "warmroute_xds_pushes_total"
        )
        return {"pushes": pushes, "streams": self._registry.get_sample_value("warmroute_xds_streams")}

    async def stop(self) -> dict[str, Any]:
        """End."""
        if self._watching is not None:
            self._watching.cancel()
        await self._server.stop()
        return {}

    async def _watch(self) -> None:
        last = ""
        while True:
            version = await self._version()
            if version != last:
                last = version
                self._acked.append((time.monotonic(), version))
                self._something.set()
            await asyncio.sleep(_WATCH_SECONDS)

    async def _version(self) -> str:
        for client in msgspec.to_builtins(await self._clients())["clients"]:
            for subscription in client["types"]:
                if subscription["type_url"] == TYPE_ENDPOINT:
                    return str(subscription["version_acked"])
        return ""


def main() -> int:
    """Run as a child process."""
    return answer_all(lambda: XdsService(Path(sys.argv[1])).verbs())


if __name__ == "__main__":
    sys.exit(main())
