"""One weight update as a trace, from a changed signal to the real Envoy's ACK, read back from a backend.

The product's own `warmroute xds` sends its spans by OTLP to Arize Phoenix, which runs during the bench, and
Phoenix's REST API returns them. An engine's metrics page changes several times. Each change must be in one
complete trace: collect, compute, publish, and an ACK of Envoy, all below one root with the changed signal and
the weights before and after. Smoothing, dead band and minimum interval are off.
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
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import yaml

from bench.signal_to_ack import UNSTABILISED, settings_text
from bench.tiny_engine import TinyEngine
from bench.trace_figures import Change, Measured, acked, result_of
from fleet.names import TYPE_ENDPOINT
from testing.spans import PROJECT, Phoenix, Span, environment, find_phoenix
from warmroute.demo import processes, report
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import BenchError, Child, free_port, warmroute
from xds_server.envoy.bootstrap import bootstrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testing.spans import Backend

INSTALL: Final = (
    "this bench needs Arize Phoenix: python -m venv /tmp/phoenix && /tmp/phoenix/bin/pip install"
    " arize-phoenix==20.26.1, then --phoenix /tmp/phoenix/bin/phoenix"
)
_LOW, _HIGH = 0.2, 0.6
_ENGINES: Final = 3
_LOST_SECONDS: Final = 5.0
_ARRIVE_SECONDS: Final = 15.0


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
                subscription["version_acked"]
                for client in clients
                for subscription in client["types"]
                if subscription["type_url"] == TYPE_ENDPOINT
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
    """Change a signal `changes` times, then read the spans back.

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
    shape = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": backend.endpoint,
        "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={PROJECT}",
    }
    with environment(shape):
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
        if sum(acked(span) for span in spans) >= acks or time.monotonic() > deadline:
            return spans
        await asyncio.sleep(0.2)


async def _with_phoenix(executable: Path, changes: int, tick: float, scrape: float) -> Measured:
    directory = Path(tempfile.mkdtemp(prefix="warmroute-phoenix-"))
    try:
        report.progress("Phoenix starts, which takes half a minute")
        async with Phoenix(executable, directory) as phoenix:
            return await measure(phoenix, changes, tick, scrape)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met, 2 without Phoenix."""
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__)
    parser.add_argument(
        "--phoenix", type=Path, help="the executable `phoenix` (default: the one on the path)"
    )
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--tick", type=float, default=0.05, help="seconds (default 0.05)")
    parser.add_argument("--scrape", type=float, default=0.05, help="scrape interval, seconds (default 0.05)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    executable = find_phoenix(args.phoenix)
    if executable is None:
        report.progress(INSTALL)
        return 2
    measured = processes.run(_with_phoenix(executable, args.changes, args.tick, args.scrape))
    result, targets = result_of(measured, args.tick, args.scrape)
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
