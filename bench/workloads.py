"""The workloads that picks are measured on: real traces in `bench/data/traces`, and generated ones.

`workload(name, seed)` returns one as a trace, whose arrivals a seed moves a little. A name may end in
`/train` or `/held_out`: the first half of its sessions by time, or the second. Knees are
recorded in `bench/data/knees.json` by `python -m bench.knee`.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from bench.agent_blocks import Line, trace_of
from bench.mix import TENANTS, drawn, generate
from fleet.errors import WarmrouteError
from warmroute.replay.job import Job
from warmroute.replay.trace import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmroute.replay.trace import Trace, TraceRequest

DATA: Final = Path(__file__).parent / "data" / "traces"
KNEES: Final = Path(__file__).parent / "data" / "knees.json"
PARTS: Final = ("train", "held_out")
FAMILY: Final = tuple(f"drawn_{number:02}" for number in range(30))
_AGENT_COPIES: Final = 24
_TENANTS_REQUESTS: Final = 6_000
_DRAWN_REQUESTS: Final = 3_000
JITTER_SECONDS: Final = 3.0
"""Mooncake's times are rounded to about this."""
_SMALL: Final = Job("warmroute", gpu="h100_sxm/tp2", kv_tokens=200_000)
"""Replicas whose caches do not hold all sessions at once."""


class Workload(NamedTuple):
    """A trace and the replicas that it is for."""

    trace: Callable[[], Trace]
    engine: Job = Job("warmroute")
    """Number, GPU and KV cache of the replicas."""
    reuse: bool = True
    """Whether prompts share prefixes."""


def agents() -> Trace:
    """Return the agents' sessions as they were recorded, one copy."""
    with lzma.open(DATA / "agent_sessions.jsonl.xz") as file:
        return trace_of([msgspec.json.decode(line, type=Line) for line in file], "agents")


def _unpacked(name: str) -> Trace:
    with tempfile.TemporaryDirectory(prefix="warmroute-") as folder:
        path = Path(folder, name)
        path.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
        return read_trace(path)


def _drawn(number: int) -> Workload:
    mix = drawn(number)
    engines = Job("warmroute", replicas=mix.replicas)
    return Workload(lambda: generate(mix, _DRAWN_REQUESTS, FAMILY[number]), engines)


WORKLOADS: Final[dict[str, Workload]] = {
    "mooncake": Workload(lambda: _unpacked("mooncake_conversation.jsonl")),
    "mooncake_32": Workload(lambda: _unpacked("mooncake_conversation.jsonl"), Job("warmroute", replicas=32)),
    "azure": Workload(lambda: _unpacked("azure_conversation.csv"), reuse=False),
    "agents": Workload(lambda: agents().copies(_AGENT_COPIES, 1), _SMALL),
    "tenants": Workload(lambda: generate(TENANTS, _TENANTS_REQUESTS, "tenants/1")),
}
"""All but the generated family."""


def entry(name: str) -> Workload:
    """Return what a name, with or without a part, stands for.

    Raises:
        WarmrouteError: there is no such workload.
    """
    whole, _, part = name.partition("/")
    if (whole not in WORKLOADS and whole not in FAMILY) or part not in ("", *PARTS):
        names, parts = ", ".join(WORKLOADS), " or /".join(PARTS)
        allowed = f"{names}, {FAMILY[0]} to {FAMILY[-1]}, each with /{parts} or without"
        raise WarmrouteError(f"no workload {name}; allowed: {allowed}")
    return WORKLOADS.get(whole) or _drawn(FAMILY.index(whole))


def workload(name: str, seed: int = 1, most: int | None = None) -> Trace:
    """Return the trace of a name, or about its first `most` requests, by whole sessions.

    A seed moves each request by up to `JITTER_SECONDS` of the trace's time.

    Raises:
        WarmrouteError: there is no such workload.
    """
    moved = _fixed(name, most).at_rate(1.0, seed, JITTER_SECONDS)
    return moved._replace(name=name, coarse=False)


@lru_cache(3)
def _fixed(name: str, most: int | None) -> Trace:
    trace, part = entry(name).trace(), name.partition("/")[2]
    begins = session_begins(trace.requests)
    if part:
        half = (min(begins) + max(begins)) / 2
        trace = _only(trace, [(begin < half) == (part == "train") for begin in begins])
        begins = session_begins(trace.requests)
    if most is not None and most < len(begins):
        last = sorted(begins)[most - 1]
        trace = _only(trace, [begin <= last for begin in begins])
    return trace


def job(name: str, policy: str, load: float, seed: int = 1) -> Job:
    """Return the replay of a workload at a share of its knee.

    Raises:
        WarmrouteError: there is no such workload, or its knee is not recorded.
    """
    return replace(entry(name).engine, policy=policy, seed=seed, rate=load * recorded_knee(name))


def recorded_knee(name: str) -> float:
    """Return a workload's knee, as a multiple of the trace's own rate; a part has its whole's.

    Raises:
        WarmrouteError: it is not recorded.
    """
    knees, whole = _knees(), name.partition("/")[0]
    if whole not in knees:
        raise WarmrouteError(f"no knee of {whole} in {KNEES}; python -m bench.knee {whole} records it")
    return knees[whole]


@lru_cache(1)
def _knees() -> dict[str, float]:
    knees: dict[str, float] = json.loads(KNEES.read_text())
    return knees


def ideal_hit_ratio(trace: Trace) -> float:
    """Return the share of prompt tokens in blocks that an earlier request of the trace had."""
    before, hits = set[int](), 0
    for request in trace.requests:
        hits += len(before.intersection(request.blocks))
        before.update(request.blocks)
    return hits * trace.block_tokens / sum(request.prompt_tokens for request in trace.requests)


def session_begins(requests: tuple[TraceRequest, ...]) -> list[float]:
    """Return, for each request, when the first one of its session comes."""
    begins = []
    for request in requests:
        # In copies of a trace, an answer's request may stand behind what waits for it.
        while request.after >= 0:
            request = requests[request.after]
        begins.append(request.at)
    return begins


def _only(trace: Trace, chosen: list[bool]) -> Trace:
    """Return the chosen requests, whole sessions, from time 0 on."""
    numbers = [number for number, one in enumerate(chosen) if one]
    place = {number: new for new, number in enumerate(numbers)} | {-1: -1}
    first = trace.requests[numbers[0]].at
    requests = (trace.requests[number] for number in numbers)
    return trace._replace(
        requests=tuple(
            request._replace(at=request.at - first, after=place[request.after]) for request in requests
        )
    )
