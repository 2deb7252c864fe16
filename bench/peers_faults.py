"""How each router lives with an engine that freezes, fails or goes away, and how it breaks ties.

Each router has simulated engines of its own, and starts afresh for each case. All run next to one another
under a steady load of small prompts without warm engines, so that the host's noise meets all alike. The
engine that has answered most is struck and heals: some routers give one engine nearly everything while the
load is low. A request is lost without a whole answer within `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from bench.fault_cases import set_fault, turns
from bench.faults import again
from bench.peers_site import Proxy, running_proxy
from warmroute.demo import report
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings
from warmroute.demo.load import LoadRun
from warmroute.simulator.workload import Message, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.stats import Outcome

ENGINES: Final = 4
ENGINE: Final = EngineSettings(speed_up=3.0, blocks=8192, max_num_seqs=64)
"""An answer takes about 0.2 s."""
RATE: Final = 30.0
"""Requests a second to each router."""
PATIENCE_SECONDS: Final = 2.0
FROZEN_SECONDS: Final = 6.0
AWAY_SECONDS: Final = 4.0
REFUSALS: Final = 30
TIES: Final = 200
_WARM_UP_SECONDS: Final = 4.0
WATCH_SECONDS: Final = 10.0
_REFUSING_SECONDS: Final = 12.0
"""An engine that gets too few requests for its refusals heals after this time."""
_SETTLE_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.02
_TIE_SECONDS: Final = 0.03
"""Between requests that an idle engine answers in some 10 ms."""
_MOST_SECONDS: Final = 120.0
"""The load is planned for so long, and stops when the case is over."""


@dataclass(frozen=True)
class Struck:
    """One router's time with a struck engine, in seconds from the start of the load."""

    address: str
    struck_at: float
    healed_at: float
    outcomes: Sequence[Outcome]

    @property
    def lost(self) -> int:
        """Requests lost, from the strike on."""
        return sum(o.failure is not None for o in self.outcomes if o.ended_seconds >= self.struck_at)

    @property
    def drawn(self) -> float | None:
        """The share of requests, between strike and healing, that the engine answered or left unanswered."""
        sent = [o for o in self.outcomes if self.struck_at <= o.at_seconds < self.healed_at]
        return report.ratio(sum(o.failure is not None or o.served == self.address for o in sent), len(sent))

    @property
    def again_seconds(self) -> float | None:
        """From the healing until the engine answers half its share; None: not while it was watched."""
        before = [o.served for o in self.outcomes if o.at_seconds < self.struck_at]
        share = before.count(self.address) / len(before)
        after = [o for o in self.outcomes if o.at_seconds >= self.healed_at]
        return again(after, self.address, self.healed_at, share / 2)


async def measure(
    names: Sequence[str], folder: Path, directory: Path, seed: int
) -> dict[str, dict[str, Any]]:
    """Return the figures of every case by router; environments of peers are in `folder`.

    Raises:
        BenchError: a part did not start, obey or come back.
    """
    figures: dict[str, dict[str, Any]] = {name: {} for name in names}
    clusters = {}
    try:
        for name in names:
            own = Path(tempfile.mkdtemp(prefix=f"{name}-engines-", dir=directory))
            clusters[name] = Cluster(ClusterSettings("envoy", ENGINES, ENGINE), own)
        await asyncio.gather(*(cluster.start_engines() for cluster in clusters.values()))
        for title, case in CASES.items():
            report.progress(f"-- {title}")
            done = await asyncio.gather(
                *(_run(case, name, cluster, folder, directory, seed) for name, cluster in clusters.items())
            )
            for name, row in zip(names, done, strict=True):
                figures[name] |= {f"{title}_{key}": value for key, value in row.items()}
                report.progress(f"{name:14} {row}")
    finally:
        for cluster in clusters.values():
            cluster.kill()
    return figures


async def _run(
    case: Case, name: str, cluster: Cluster, folder: Path, directory: Path, seed: int
) -> dict[str, Any]:
    async with running_proxy(name, cluster.engines, ENGINE.model, folder, directory) as proxy:
        await asyncio.sleep(_SETTLE_SECONDS)
        return await case(proxy, cluster, seed)


async def _ties(proxy: Proxy, cluster: Cluster, seed: int) -> dict[str, Any]:
    """Send small requests to idle engines, one after another."""
    draw = Random(seed)
    texts = [f"{draw.getrandbits(64):016x} is a prompt that no engine has" for _ in range(TIES)]
    ties = [
        Turn(number * _TIE_SECONDS, 0, f"s{number}", (Message("user", text),), 1)
        for number, text in enumerate(texts)
    ]
    outcomes = await LoadRun(proxy.address, ENGINE.model).run(ties)
    served = [sum(o.served == address for o in outcomes) for address in cluster.engines]
    return {"busiest_share": report.ratio(max(served), sum(served))}


async def _frozen(proxy: Proxy, cluster: Cluster, seed: int) -> dict[str, Any]:
    async def freeze(engine: int) -> None:
        child = cluster.children[f"engine-{engine}"]
        child.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(FROZEN_SECONDS)
        finally:
            child.signal(signal.SIGCONT)

    struck = await _under_load(proxy, cluster, seed, freeze)
    return {"lost": struck.lost, "share": struck.drawn}


async def _refusing(proxy: Proxy, cluster: Cluster, seed: int) -> dict[str, Any]:
    async def refused(address: str) -> int:
        counts = await cluster.get_json(address, "/admin/seen")
        return 0 if counts is None else int(counts["refused"])

    async def refuse(engine: int) -> None:
        address = cluster.engines[engine]
        before = await refused(address)
        await set_fault(address, {"kind": "status", "code": 503})
        until = time.monotonic() + _REFUSING_SECONDS
        while time.monotonic() < until and await refused(address) < before + REFUSALS:  # noqa: ASYNC110 (an engine has no event)
            await asyncio.sleep(_POLL_SECONDS)
        await set_fault(address, {"kind": "none"})

    before = sum([await refused(address) for address in cluster.engines])
    struck = await _under_load(proxy, cluster, seed, refuse)
    refusals = sum([await refused(address) for address in cluster.engines]) - before
    return {"lost": struck.lost, "refusals": refusals, "again_seconds": struck.again_seconds}


async def _away(proxy: Proxy, cluster: Cluster, seed: int) -> dict[str, Any]:
    async def leave(engine: int) -> None:
        name, address = f"engine-{engine}", cluster.engines[engine]
        cluster.children[name].kill()
        await asyncio.sleep(AWAY_SECONDS)
        cluster.start(name, ENGINE.argv(address))
        await cluster.wait_answer(name, address, "/v1/models")

    struck = await _under_load(proxy, cluster, seed, leave)
    return {"lost": struck.lost, "again_seconds": struck.again_seconds}


Case = Callable[[Proxy, Cluster, int], Awaitable[dict[str, Any]]]
CASES: Final[dict[str, Case]] = {"ties": _ties, "refusing": _refusing, "away": _away, "frozen": _frozen}


async def _under_load(
    proxy: Proxy, cluster: Cluster, seed: int, strike: Callable[[int], Awaitable[None]]
) -> Struck:
    """Let the load run, strike the busiest engine, and watch after the healing."""
    load = LoadRun(proxy.address, ENGINE.model, timeout_seconds=PATIENCE_SECONDS)
    running = asyncio.create_task(load.run(turns(seed, RATE, _MOST_SECONDS)))
    try:
        await asyncio.sleep(_WARM_UP_SECONDS)
        served = [outcome.served for outcome in load.outcomes]
        busiest = max(cluster.engines, key=served.count)
        struck_at = load.elapsed_seconds
        await strike(cluster.engines.index(busiest))
        healed_at = load.elapsed_seconds
        await asyncio.sleep(WATCH_SECONDS)
        load.stop()
        outcomes = await running
    finally:
        running.cancel()
    return Struck(busiest, struck_at, healed_at, outcomes)
