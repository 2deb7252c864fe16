"""One engine of a running deployment goes wrong and heals; what its peers, Envoy and clients saw of it."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from warmroute.demo.cluster import POOL
from warmroute.demo.http_client import HttpClient
from warmroute.demo.processes import BenchError
from warmroute.simulator.workload import Message, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warmroute.demo.cluster import Cluster
    from warmroute.demo.load import LoadRun

STRUCK: Final = 0
"""The number of the engine that goes wrong."""
SHARE_FROM_SECONDS: Final = 3.0
"""After the strike: by then traffic should have moved away."""
_POLL_SECONDS: Final = 0.25
_WORDS: Final = ("able", "about", "after", "again", "agree", "allow", "answer", "apply", "argue", "aside")


@dataclass(frozen=True, slots=True)
class Case:
    """One way to go wrong."""

    name: str
    fault: Mapping[str, Any] | None
    """The body of the engine's /admin/fault; None: its process is killed, and started again at the end."""
    seconds: float | None = None
    """How long it lasts; None: as the bench says."""
    steady_seconds: float = 10.0
    """The fault-free time before it, for comparison."""


CASES: Final = (
    Case("frozen", {"kind": "frozen"}),
    Case("slow_x10", {"kind": "slow", "factor": 10}),
    Case("status_503", {"kind": "status", "code": 503}),
    # The case must not shift load, so chance has to be small: over these requests it is 1.6 %.
    Case("status_429", {"kind": "status", "code": 429}, seconds=20.0, steady_seconds=20.0),
    Case("killed", None, seconds=4.0),
    Case("memory_097", {"kind": "memory", "ratio": 0.97}),
)


@dataclass(frozen=True, slots=True)
class Sent:
    """Requests that have gone to each engine, retries included, up to one moment."""

    total: tuple[int, ...]
    """As Envoy counts them, those that could not connect included."""
    picked: tuple[int, ...] | None
    """Those that arrived with a pick, as the engines count; None where an engine does not answer."""
    unpicked: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Strike:
    """What happened, in seconds from the start of the load."""

    case: Case
    address: str
    began_at: float
    """The load had come to rest: the fault-free time begins."""
    struck_at: float
    healed_at: float
    ended_at: float
    moved: Sent
    """At `SHARE_FROM_SECONDS` after the strike."""
    healed: Sent
    """When the fault ended."""
    least_trust: float | None
    """The lowest `trust_ratio` that xds_server reported for the engine in that time; None: none."""
    marked: bool
    """Whether xds_server ever pushed the engine as unhealthy."""


def turns(seed: int, rate: float, seconds: float) -> list[Turn]:
    """Requests that arrive as a Poisson process, small, and no two alike from their first word on.

    Nobody is warm for any of them, so an engine's fair share of them is well defined.
    """
    random, at = Random(seed), 0.0
    made: list[Turn] = []
    while (at := at + random.expovariate(rate)) < seconds:
        words = " ".join(random.choices(_WORDS, k=random.randint(20, 160)))
        text = f"{random.getrandbits(64):016x} {words}"
        made.append(Turn(at, 0, f"s{len(made)}", (Message("user", text),), random.randint(16, 48)))
    return made


async def strike(cluster: Cluster, load: LoadRun, case: Case, fault_seconds: float, watch: float) -> Strike:
    """Let the load run fault-free, let the fault last, heal it and watch.

    Raises:
        BenchError: the engine does not obey or does not come back.
    """
    began_at = load.elapsed_seconds
    await asyncio.sleep(case.steady_seconds)
    address, sentry = cluster.engines[STRUCK], Sentry()
    struck_at = load.elapsed_seconds
    await _break(cluster, case)
    lasts = case.seconds or fault_seconds
    watching = asyncio.create_task(sentry.watch(cluster, address))
    try:
        await _until(load, struck_at + min(SHARE_FROM_SECONDS, lasts))
        moved = await sent(cluster)
        await _until(load, struck_at + lasts)
        healed = await sent(cluster)
        await _heal(cluster, case)
        healed_at = load.elapsed_seconds
        await asyncio.sleep(watch)
    finally:
        watching.cancel()
    times = (began_at, struck_at, healed_at, load.elapsed_seconds)
    return Strike(case, address, *times, moved, healed, sentry.least_trust, sentry.marked)


class Sentry:
    """Watches the engine's trust in Warmroute, and its health as pushed to Envoy."""

    def __init__(self) -> None:
        self.least_trust: float | None = None
        self.marked = False

    async def watch(self, cluster: Cluster, address: str) -> None:
        """Watch until cancelled."""
        while True:
            document = await cluster.get_json(cluster.admin_address, "/api/v1/endpoints")
            for entry in (document or {}).get("endpoints", ()):
                trust = (entry.get("load") or {}).get("trust_ratio") if entry["address"] == address else None
                if trust is not None:
                    self.least_trust = min(trust, self.least_trust or 1.0)
            assert cluster.envoy is not None
            host = (await cluster.envoy.clusters())[POOL].get(address)
            health = {} if host is None else host.get("health_status", {})
            self.marked = self.marked or health.get("eds_health_status", "HEALTHY") != "HEALTHY"
            await asyncio.sleep(_POLL_SECONDS)


async def sent(cluster: Cluster) -> Sent:
    """Count what has gone to each engine up to now."""
    assert cluster.envoy is not None
    hosts = (await cluster.envoy.clusters())[POOL]
    pages = [await cluster.get_json(address, "/admin/seen") for address in cluster.engines]
    total = tuple(_attempts(hosts.get(address, {})) for address in cluster.engines)
    if None in pages:
        return Sent(total, None, None)
    return Sent(
        total,
        tuple(page["routed"] for page in pages),
        tuple(page["requests"] - page["routed"] for page in pages),
    )


def _attempts(host: Mapping[str, Any]) -> int:
    counted = {entry["name"]: int(entry.get("value", 0)) for entry in host.get("stats", ())}
    return counted.get("rq_total", 0) + counted.get("cx_connect_fail", 0)


async def _until(load: LoadRun, at_seconds: float) -> None:
    await asyncio.sleep(max(0.0, at_seconds - load.elapsed_seconds))


async def _break(cluster: Cluster, case: Case) -> None:
    if case.fault is None:
        cluster.children[f"engine-{STRUCK}"].signal(signal.SIGKILL)
    else:
        await set_fault(cluster.engines[STRUCK], case.fault)


async def _heal(cluster: Cluster, case: Case) -> None:
    address = cluster.engines[STRUCK]
    if case.fault is not None:
        await set_fault(address, {"kind": "none"})
        return
    name = f"engine-{STRUCK}"
    cluster.children[name].kill()
    cluster.start(name, cluster.settings.engine.argv(address))
    await cluster.wait_answer(name, address, "/v1/models")


async def set_fault(address: str, fault: Mapping[str, Any]) -> None:
    """Bring a fault to a simulated engine, or heal it.

    Raises:
        BenchError: the engine refuses.
    """
    client = HttpClient(address, asyncio.get_running_loop().time)
    response = await client.request("POST", "/admin/fault", msgspec.json.encode(fault))
    client.close()
    if response.status != 200:
        raise BenchError(f"{address} refuses the fault {fault}: {response.body.decode(errors='replace')}")
