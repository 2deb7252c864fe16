"""What happens to a deployment under traffic; each event is awaited until it has taken effect."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.serialization import Encoding

from warmroute.demo.cluster import POOL
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.chaos_site import Site
    from bench.chaos_traffic import Traffic

NAMES: Final = (
    "ext_proc_killed",
    "xds_killed",
    "engine_drained",
    "certificates_rotated",
    "settings_reloaded",
    "ext_proc_rolled",
    "xds_rolled",
    "engine_killed",
)
_DOWN_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.05
_EFFECT_SECONDS: Final = 60.0
_END_SECONDS: Final = 20.0
_LONGEST_STREAM_SECONDS: Final = 90.0
_SERVICES: Final = ("xds", "ext-proc")
_CERTIFICATES_OF: Final = {"xds": 3, "ext-proc": 2}
"""So many uses of certificates each service takes over: xds_server its own, the control stream's and the
listener's; ext_proc its own and what it shows on the control stream."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. Times are seconds from the start of the traffic."""

    name: str
    began_seconds: float
    ended_seconds: float
    killed: str | None = None
    """The engine that was killed."""
    gone_seconds: float | None = None
    """When the killed engine's process had ended, so that nothing more could reach it."""
    drained: str | None = None
    """The engine that was drained, and came back."""
    open_requests: int = 0
    """Open answers of the engine that left or was killed."""


class Chaos:
    """Makes events happen."""

    def __init__(self, site: Site, traffic: Traffic, note: Callable[[str], None]) -> None:
        self.events: list[Event] = []
        self._site = site
        self._traffic = traffic
        self._note = note
        self._turn = 0

    async def happen(self, name: str) -> None:
        """Let one event happen, and keep its details for the report.

        Raises:
            BenchError: it does not take effect.
        """
        began = self._traffic.elapsed_seconds
        self._note(f"{began:6.1f} s  {name}, {len(self._traffic.open)} requests open")
        detail = await getattr(self, f"_{name}")()
        self.events.append(Event(name, began, self._traffic.elapsed_seconds, **detail))

    async def _ext_proc_killed(self) -> dict[str, Any]:
        return await self._service_again("ext-proc", signal.SIGKILL)

    async def _xds_killed(self) -> dict[str, Any]:
        return await self._service_again("xds", signal.SIGKILL)

    async def _ext_proc_rolled(self) -> dict[str, Any]:
        return await self._service_again("ext-proc", signal.SIGTERM)

    async def _xds_rolled(self) -> dict[str, Any]:
        return await self._service_again("xds", signal.SIGTERM)

    async def _service_again(self, name: str, number: signal.Signals) -> dict[str, Any]:
        child = self._site.cluster.children[name]
        child.signal(number)
        await child.wait_for_end(_END_SECONDS)
        await asyncio.sleep(_DOWN_SECONDS)
        await self._site.start_again(name)
        return {}

    async def _engine_killed(self) -> dict[str, Any]:
        name, address = self._next_engine()
        child = self._site.cluster.children[name]
        open_requests = self._traffic.open_on(address)
        child.signal(signal.SIGKILL)
        await child.wait_for_end(_END_SECONDS)
        gone = self._traffic.elapsed_seconds
        await asyncio.sleep(_DOWN_SECONDS)
        await self._site.start_again(name)
        return {"killed": address, "gone_seconds": gone, "open_requests": open_requests}

    async def _engine_drained(self) -> dict[str, Any]:
        """As an operator does it: out of the file, wait for what it has begun, stop, start, into the file."""
        site = self._site
        name, address = self._next_engine()
        await self._until(lambda: _true(self._traffic.open_on(address) > 1), f"requests on {name}")
        site.list_endpoints([other for other in site.cluster.engines if other != address])
        open_requests = self._traffic.open_on(address)
        await self._until(lambda: self._is_out(address), f"{name} out of Envoy")
        idle = lambda: _true(self._traffic.open_on(address) == 0)  # noqa: E731
        await self._until(idle, f"{name} idle", _LONGEST_STREAM_SECONDS)
        child = site.cluster.children[name]
        child.signal(signal.SIGTERM)
        await child.wait_for_end(_END_SECONDS)
        await site.start_again(name)
        site.list_endpoints(site.cluster.engines)
        await self._until(lambda: self._is_in(address), f"{name} back in Envoy")
        return {"drained": address, "open_requests": open_requests}

    async def _certificates_rotated(self) -> dict[str, Any]:
        before = {service: await self._certificates(service) for service in _SERVICES}
        new = self._site.issue().certificate.public_bytes(Encoding.DER)

        async def taken() -> bool:
            for service, uses in _CERTIFICATES_OF.items():
                if await self._certificates(service) < before[service] + uses:
                    return False
            return await self._site.served_certificate() == new

        await self._until(taken, "new certificates in force")
        return {}

    async def _settings_reloaded(self) -> dict[str, Any]:
        """Three changes, of weights, of a cluster and of a listener, with SIGHUP on top of the new file."""
        cluster, sections = self._site.cluster, self._site.sections
        odd = sum(event.name == "settings_reloaded" for event in self.events) % 2
        changes: tuple[Callable[[], None], ...] = (
            lambda: sections.update(weights={"stabiliser": {"smoothing_seconds": 2.0 + odd / 2}}),
            lambda: cluster.pool_overrides.update(idle_timeout_seconds=3.0 + odd / 2, retries=2 + odd),
            lambda: cluster.listener_overrides.update(stream_idle_timeout_seconds=3000.0 + odd),
        )
        for change in changes:
            before = {service: await self._reloads(service) for service in _SERVICES}
            change()
            cluster.write_settings()
            for service in _SERVICES:
                cluster.children[service].signal(signal.SIGHUP)

            async def taken(before: dict[str, float] = before) -> bool:
                return all([await self._reloads(service) > before[service] for service in _SERVICES])

            await self._until(taken, "new settings in force")
            await asyncio.sleep(_DOWN_SECONDS)
        return {}

    def _next_engine(self) -> tuple[str, str]:
        number = self._turn % len(self._site.cluster.engines)
        self._turn += 1
        return f"engine-{number}", self._site.cluster.engines[number]

    async def _certificates(self, service: str) -> float:
        return await self._site.reloads(service, "warmroute_certificate_reloads_total")

    async def _reloads(self, service: str) -> float:
        return await self._site.reloads(service, "warmroute_settings_reloads_total")

    async def _is_in(self, address: str) -> bool:
        return address in (await self._site.envoy.clusters())[POOL]

    async def _is_out(self, address: str) -> bool:
        return not await self._is_in(address)

    async def _until(
        self, condition: Callable[[], Awaitable[bool]], what: str, seconds: float = _EFFECT_SECONDS
    ) -> None:
        deadline = self._traffic.elapsed_seconds + seconds
        while not await condition():
            if self._traffic.elapsed_seconds > deadline:
                raise BenchError(f"no {what} after {seconds:g} s")
            await asyncio.sleep(_POLL_SECONDS)


async def _true(condition: bool) -> bool:  # noqa: FBT001 - it only makes a value awaitable
    return condition
