"""Faults of a running deployment, and what the requests around each of them felt."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from warmroute.demo.processes import BenchError, warmroute
from warmroute.demo.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warmroute.demo.cluster import Cluster
    from warmroute.demo.load import LoadRun
    from warmroute.demo.stats import Outcome

Target = Literal["ext-proc", "xds", "engine-0"]
Kind = Literal["kill", "freeze"]
FAULTS: Final[tuple[tuple[Target, Kind], ...]] = (
    ("ext-proc", "kill"),
    ("ext-proc", "freeze"),
    ("xds", "kill"),
    ("xds", "freeze"),
    ("engine-0", "kill"),
)
_PUSH_POLL_SECONDS: Final = 0.05
_PUSH_WAIT_SECONDS: Final = 20.0
"""Longer than any target, so that a late push has a figure."""
_STEADY_PICKS: Final = 20
"""Picks have resumed where this many requests in a row have one."""


@dataclass(frozen=True, slots=True)
class Fault:
    """When it struck and when it was over, in seconds from the start of the load."""

    target: Target
    kind: Kind
    struck_at: float
    returned_at: float
    """The process runs again and calls itself ready."""
    ended_at: float
    """The watch over its aftermath ended."""
    push_resumed_seconds: float | None
    """From the return to Envoy's acknowledgement of a change made then; None: it never came."""
    address: str = ""
    """The engine's, where an engine was struck."""

    @property
    def name(self) -> str:
        """For people and for JSON."""
        return f"{self.target.replace('-0', '').replace('-', '_')}_{self.kind}"


@dataclass(frozen=True, slots=True)
class Felt:
    """What requests felt of a fault."""

    name: str
    requests: int
    failures: int
    failures_of_later_requests: int
    """Of those that started after the strike."""
    failures_elsewhere: int
    """Of those that another engine than the one struck had begun to answer."""
    slowest_seconds: float | None
    """End to end, of those that started more than a second after the strike."""
    e2e_p99_seconds: float | None
    """Of the same."""
    unpicked: int
    """Answers without a pick, weights decided: while ext_proc is away, all."""
    picks_resumed_seconds: float | None
    """From the return to the first of many picks in a row; None: they never came."""
    push_resumed_seconds: float | None

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


async def strike(
    cluster: Cluster, load: LoadRun, target: Target, kind: Kind, seconds: float, note: Callable[[str], None]
) -> Fault:
    """Let one fault last for `seconds`, undo it, and watch for as long again.

    Raises:
        BenchError: the process does not come back.
    """
    child = cluster.children[target]
    note(f"{target} {kind}: {load.started} sent, {load.in_flight} in flight")
    struck_at = load.elapsed_seconds
    child.signal(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
    await asyncio.sleep(seconds)
    address = cluster.engines[0] if target == "engine-0" else ""
    if kind == "freeze":
        child.signal(signal.SIGCONT)
    else:
        child.kill()
        await _start_again(cluster, target)
    returned_at = load.elapsed_seconds
    note(f"{target} is back: {load.started} sent, {load.in_flight} in flight")
    pushed = await _push(cluster, load, returned_at)
    await asyncio.sleep(max(0.0, returned_at + seconds - load.elapsed_seconds))
    return Fault(target, kind, struck_at, returned_at, load.elapsed_seconds, pushed, address)


async def _start_again(cluster: Cluster, target: Target) -> None:
    if target == "engine-0":
        address = cluster.engines[0]
        cluster.start(target, cluster.settings.engine.argv(address))
        await cluster.wait_answer(target, address, "/v1/models")
    elif target == "xds":
        cluster.start(target, warmroute("xds", str(cluster.settings_path)))
        await cluster.wait_answer(target, cluster.admin_address, "/readyz")
    else:
        cluster.start(target, warmroute("ext-proc", str(cluster.settings_path)))
        await cluster.wait_answer(target, cluster.ext_proc_admin_address, "/readyz")


async def _push(cluster: Cluster, load: LoadRun, since: float) -> float | None:
    """Change a route's retries and wait for one more ACK than before; return how long since `since`."""
    before = await _acks(cluster)
    cluster.pool_overrides["retries"] = 5 - cluster.pool_overrides.get("retries", 2)
    cluster.write_settings()
    while load.elapsed_seconds < since + _PUSH_WAIT_SECONDS:
        acks = await _acks(cluster)
        if acks is not None and acks > (before or 0):
            return load.elapsed_seconds - since
        await asyncio.sleep(_PUSH_POLL_SECONDS)
    return None


async def _acks(cluster: Cluster) -> int | None:
    acks: int | None = (await cluster.status()).get("acks")
    return acks


def felt(fault: Fault, outcomes: Sequence[Outcome]) -> Felt:
    """Work out what requests felt from the strike to the end of the watch, when the next fault strikes.

    A request that is still in flight then may fail by the next fault: its failure is not counted here, and
    its time up to that moment only.
    """
    began, ended = fault.struck_at, fault.ended_at
    around = [o for o in outcomes if o.ended_seconds >= began and o.at_seconds < ended]
    around.sort(key=lambda outcome: outcome.at_seconds)
    failed = [o for o in around if o.failure is not None and o.ended_seconds < ended]
    later = [o for o in around if o.at_seconds > began + 1.0]
    times = [min(o.ended_seconds, ended) - o.at_seconds for o in later]
    return Felt(
        name=fault.name,
        requests=len(around),
        failures=len(failed),
        failures_of_later_requests=sum(o.at_seconds >= began for o in failed),
        failures_elsewhere=sum(o.served is not None and o.served != fault.address for o in failed),
        slowest_seconds=max(times, default=None),
        e2e_p99_seconds=percentile(times, 0.99),
        unpicked=sum(o.picked is None for o in around if o.failure is None),
        picks_resumed_seconds=picks_resumed(fault.returned_at, around),
        push_resumed_seconds=fault.push_resumed_seconds,
    )


def picks_resumed(returned_at: float, outcomes: Sequence[Outcome]) -> float | None:
    """Seconds from the return to the first request of `_STEADY_PICKS` in a row that all have a pick."""
    after = [o for o in outcomes if o.at_seconds >= returned_at]
    run: list[Outcome] = []
    for outcome in after:
        run = [*run, outcome] if outcome.picked is not None else []
        if len(run) == _STEADY_PICKS:
            return run[0].at_seconds - returned_at
    return None


def baseline(outcomes: Sequence[Outcome], until: float) -> list[float]:
    """End-to-end times of the requests that ended before the first strike.

    Raises:
        BenchError: there were none.
    """
    times = [o.e2e_seconds for o in outcomes if o.failure is None and o.ended_seconds < until]
    if not times:
        raise BenchError("no request ended before the first fault")
    return times
