"""One weight update as a trace, from a changed signal to the real Envoy's ACK, read back from a backend.

The product's own `warmroute xds` sends its spans by OTLP to Arize Phoenix, which runs for the time of the
bench, and Phoenix's REST API gives them back. An engine's metrics page is changed so many times; each change
must be in one complete trace: collect, compute, publish, and an ACK of Envoy, all below one root that tells
the changed signal and the weights before and after. Smoothing, dead band and minimum interval are off.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import yaml

from bench import processes, report
from bench.envoy import EnvoyProcess
from bench.processes import BenchError, Child, free_port, warmroute
from bench.signal_to_ack import UNSTABILISED, settings_text
from bench.spans import PROJECT, Phoenix, Span, environment, find_phoenix
from bench.stats import percentile
from bench.tiny_engine import TinyEngine
from fleet.names import TYPE_ENDPOINT
from xds_server.snapshot.bootstrap import bootstrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.report import Wanted
    from bench.spans import Backend

INSTALL: Final = (
    "this bench needs Arize Phoenix: python -m venv /tmp/phoenix && /tmp/phoenix/bin/pip install"
    " arize-phoenix==20.26.1, then --phoenix /tmp/phoenix/bin/phoenix"
)
_LOW, _HIGH = 0.2, 0.6
_ENGINES: Final = 3
_LOST_SECONDS: Final = 5.0
_ARRIVE_SECONDS: Final = 15.0
_STEPS: Final = ("collect", "compute", "publish")
_MARGIN_SECONDS: Final = 0.25
_SAME: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Change:
    """One signal that was changed."""

    at: float
    """Unix seconds."""
    address: str
    memory_used_ratio: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What was done, and what the backend then held."""

    changes: tuple[Change, ...]
    spans: tuple[Span, ...]
    expected_acks: int
    """ACK spans that xds_server said it had ended by an ACK, before the spans were read."""
    dropped: float
    """Spans that xds_server says it has lost."""


class _Deployment:
    """`warmroute xds`, engines and Envoy, with what the admin server says."""

    def __init__(self, admin: str, engines: list[TinyEngine], session: aiohttp.ClientSession) -> None:
        self.engines = engines
        self._admin = f"http://{admin}"
        self._session = session

    async def acked(self) -> str:
        """The version of endpoints that Envoy has acknowledged; empty for none."""
        async with self._session.get(f"{self._admin}/api/v1/clients") as response:
            clients = (await response.json())["clients"]
        return next(
            (
                held["version_acked"]
                for client in clients
                for held in client["types"]
                if held["type_url"] == TYPE_ENDPOINT
            ),
            "",
        )

    async def metric(self, name: str) -> float:
        """The sum over a metric's samples whose name, labels included, begins with `name`."""
        async with self._session.get(f"{self._admin}/metrics") as response:
            page = await response.text()
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name))

    async def change(self, engine: TinyEngine, draw: random.Random) -> Change:
        """Change a signal by a lot and wait for an ACK of what follows."""
        before = await self.acked()
        high = engine.memory_used_ratio < (_LOW + _HIGH) / 2
        # As many digits as the page has.
        ratio = round((_HIGH if high else _LOW) + draw.uniform(-0.05, 0.05), 6)
        engine.memory_used_ratio, changed_at = ratio, time.time()
        try:
            async with asyncio.timeout(_LOST_SECONDS):
                while await self.acked() == before:  # noqa: ASYNC110 (another process has no event)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise BenchError(f"a changed signal was not acknowledged within {_LOST_SECONDS:g} s") from None
        return Change(changed_at, engine.address, ratio)


async def measure(backend: Backend, changes: int, tick: float, scrape: float, seed: int = 7) -> Measured:
    """Change a signal so many times, then read the spans back.

    Raises:
        BenchError: a part did not start, or a change was not acknowledged.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    draw = random.Random(seed)
    try:
        async with AsyncExitStack() as stack:
            deployment = await _deploy(stack, backend, directory, tick, scrape)
            await asyncio.sleep(2.0)  # Weights come to rest.
            done = []
            for number in range(changes):
                await asyncio.sleep(0.05 + draw.random() * (tick + scrape))
                done.append(await deployment.change(deployment.engines[number % _ENGINES], draw))
            await asyncio.sleep(2 * (tick + scrape))
            acks = int(await deployment.metric('warmroute_ack_spans_total{outcome="ack"}'))
            spans = await _arrived(backend, acks)
            dropped = await deployment.metric("warmroute_spans_dropped_total")
            return Measured(tuple(done), tuple(spans), acks, dropped)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _deploy(
    stack: AsyncExitStack, backend: Backend, directory: Path, tick: float, scrape: float
) -> _Deployment:
    engines = [await stack.enter_async_context(TinyEngine(_LOW, 0.0)) for _ in range(_ENGINES)]
    addresses = [engine.address for engine in engines]
    socket, admin = f"{directory}/xds.sock", f"127.0.0.1:{free_port()}"
    text = settings_text(socket, addresses, tick=tick, scrape=scrape, stabiliser=UNSTABILISED)
    settings = yaml.safe_load(text)
    settings["admin"]["address"] = admin
    settings["control"] = {"address": f"unix:{directory}/control.sock"}
    settings["telemetry"] = {"traces": "otlp"}
    file = directory / "warmroute.yaml"
    file.write_text(yaml.safe_dump(settings))
    told = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": backend.endpoint,
        "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={PROJECT}",
    }
    with environment(told):
        child = Child("xds", warmroute("xds", str(file)), directory)
    stack.push_async_callback(child.stop)
    session = await stack.enter_async_context(aiohttp.ClientSession())
    deployment = _Deployment(admin, engines, session)
    await child.wait_for(lambda: "admin listens on" in child.tail())
    made = bootstrap(ads_address=f"unix:{socket}", node_id="bench", node_cluster="bench")
    envoy = await stack.enter_async_context(EnvoyProcess(made, directory=directory))
    await envoy.wait_ready()
    return deployment


async def _arrived(backend: Backend, acks: int) -> list[Span]:
    """Read the spans, waiting for the last of them on their way."""
    deadline = time.monotonic() + _ARRIVE_SECONDS
    while True:
        spans = await backend.spans()
        if sum(_acked(span) for span in spans) >= acks or time.monotonic() > deadline:
            return spans
        await asyncio.sleep(0.2)


def _acked(span: Span) -> bool:
    return span.name == "warmroute.ack" and span.attributes.get("warmroute.outcome") == "ack"


def result_of(measured: Measured, tick: float, scrape: float) -> tuple[dict[str, Any], list[Wanted]]:
    """Return the object that `--json` prints, and its targets."""
    traces: dict[str, list[Span]] = {}
    for span in measured.spans:
        traces.setdefault(span.trace_id, []).append(span)
    updates = [trace for trace in traces.values() if any(s.name == "warmroute.weight_update" for s in trace)]
    acks = [span for span in measured.spans if _acked(span)]
    complete = [trace for trace in updates if _complete(trace)]
    found = [_trace_of(change, complete) for change in measured.changes]
    signal_to_ack = [
        next(span.end for span in trace if _acked(span)) - change.at
        for trace, change in zip(found, measured.changes, strict=True)
        if trace is not None
    ]
    durations = [ack.end - ack.start for ack in acks]
    changes = len(measured.changes)
    result = {
        "changes": changes,
        "tick_seconds": tick,
        "scrape_interval_seconds": scrape,
        "spans_read_back": len(measured.spans),
        "traces_of_updates": len(updates),
        "acks_read_back": len(acks),
        "acks_told_by_xds_server": measured.expected_acks,
        "spans_dropped": measured.dropped,
        "spans_with_a_wrong_parent": sum(_misplaced(trace) for trace in traces.values()),
        "changes_with_a_complete_trace": len(signal_to_ack),
        "updates_with_old_and_new_weight": sum(_tells_weights(trace) for trace in updates),
        "signal_to_ack_p50_seconds": percentile(signal_to_ack, 0.5) if signal_to_ack else None,
        "signal_to_ack_max_seconds": max(signal_to_ack, default=None),
        "ack_span_p50_seconds": percentile(durations, 0.5) if durations else None,
        "ack_span_max_seconds": max(durations, default=None),
    }
    wanted = [
        report.exactly("changes_with_a_complete_trace", result["changes_with_a_complete_trace"], changes),
        report.at_least("acks_read_back", len(acks), measured.expected_acks),
        report.exactly("spans_with_a_wrong_parent", result["spans_with_a_wrong_parent"], 0),
        report.exactly(
            "updates_with_old_and_new_weight", result["updates_with_old_and_new_weight"], len(updates)
        ),
        report.exactly("spans_dropped", measured.dropped, 0),
        report.at_most(
            "signal_to_ack_max_seconds", result["signal_to_ack_max_seconds"], tick + scrape + _MARGIN_SECONDS
        ),
    ]
    return result, wanted


def _trace_of(change: Change, traces: Sequence[Sequence[Span]]) -> Sequence[Span] | None:
    """Return the first trace whose root tells the changed signal; None if there is none."""
    telling = [
        trace
        for trace in traces
        if any(
            told.get("warmroute.endpoint") == change.address
            and abs(told.get("warmroute.memory_used_ratio", -1.0) - change.memory_used_ratio) < _SAME
            and told.get("warmroute.weight") != told.get("warmroute.weight_before")
            for _, told in _root(trace).events
        )
        and _root(trace).end >= change.at
    ]
    return min(telling, key=lambda trace: _root(trace).start, default=None)


def _root(trace: Sequence[Span]) -> Span:
    return next(span for span in trace if span.name == "warmroute.weight_update")


def _complete(trace: Sequence[Span]) -> bool:
    names = [span.name for span in trace]
    steps = all(names.count(f"warmroute.{step}") == 1 for step in _STEPS)
    return steps and names.count("warmroute.weight_update") == 1 and any(_acked(span) for span in trace)


def _misplaced(trace: Sequence[Span]) -> int:
    """Spans of updates that are neither a root nor below the root of their trace."""
    roots = {span.span_id for span in trace if not span.parent_id and span.name == "warmroute.weight_update"}
    if not roots:
        return sum(span.name != "warmroute.nack" for span in trace)
    return sum(span.span_id not in roots and span.parent_id not in roots for span in trace)


def _tells_weights(trace: Sequence[Span]) -> bool:
    """Whether the root tells each changed endpoint's new weight and reason; newcomers have no old one."""
    events = [told for name, told in _root(trace).events if name == "weight_change"]
    needed = {"warmroute.endpoint", "warmroute.weight", "warmroute.reason"}
    return bool(events) and all(needed <= told.keys() for told in events)


async def _with_phoenix(executable: Path, changes: int, tick: float, scrape: float) -> Measured:
    directory = Path(tempfile.mkdtemp(prefix="warmroute-phoenix-"))
    try:
        report.progress("Phoenix starts, which takes half a minute")
        async with Phoenix(executable, directory) as phoenix:
            return await measure(phoenix, changes, tick, scrape)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(given: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status tells whether all targets are met, 2 without Phoenix."""
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__)
    parser.add_argument(
        "--phoenix", type=Path, help="the executable `phoenix` (default: the one on the path)"
    )
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--tick", type=float, default=0.05, help="seconds (default 0.05)")
    parser.add_argument("--scrape", type=float, default=0.05, help="scrape interval, seconds (default 0.05)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(given)
    executable = find_phoenix(args.phoenix)
    if executable is None:
        report.progress(INSTALL)
        return 2
    measured = processes.run(_with_phoenix(executable, args.changes, args.tick, args.scrape))
    result, wanted = result_of(measured, args.tick, args.scrape)
    return report.finish(result, wanted, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
