"""From a changed signal to the real Envoy's ACK: a metrics page changes, a weight follows, Envoy accepts it.

A time runs from the change of an engine's page to the ACK's arrival at xds_server (to a millisecond). It
spans the wait for the next scrape, the scrape, the next tick, the weights, the snapshot, the push, and
Envoy's update. Smoothing, dead band and minimum interval are off.
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
from typing import TYPE_CHECKING, Any, Final

import yaml

from bench.peer import Peer
from bench.tiny_engine import TinyEngine
from warmroute.demo import processes, report
from warmroute.demo.cpu import CpuMeter
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import BenchError, free_port
from warmroute.demo.stats import percentile
from xds_server.envoy.bootstrap import bootstrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.report import Target

_ENGINES: Final = 3
_LOW, _HIGH = 0.2, 0.6
_MARGIN_SECONDS: Final = 0.05
_LOST_SECONDS: Final = 5.0
UNSTABILISED: Final = {
    "smoothing_seconds": 0.0,
    "dead_band_ratio": 0.0,
    "minimum_interval_seconds": 0.0,
    "rise_ratio_per_second": 1e12,
}


def settings_text(
    socket: str, addresses: Sequence[str], *, tick: float, scrape: float, stabiliser: dict[str, float]
) -> str:
    """Return a settings file for these engines."""
    return yaml.safe_dump(
        {
            "pools": [{"name": "engines", "endpoints": [{"address": address} for address in addresses]}],
            "listeners": [{"name": "front", "address": f"127.0.0.1:{free_port()}", "pool": "engines"}],
            "xds": {"address": f"unix:{socket}", "tick_seconds": tick},
            "signals": {"scrape_interval_seconds": scrape, "scrape_timeout_seconds": min(0.8, 10 * scrape)},
            "weights": {"stabiliser": stabiliser},
            "admin": {"address": "", "ext_proc_address": ""},
        }
    )


async def signal_to_ack(changes: int, tick: float, scrape: float, seed: int) -> list[float]:
    """Change a signal `changes` times, at moments independent of scrapes and ticks; return the times.

    Raises:
        BenchError: a change was not acknowledged, or an unchanged resource was.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    draw = random.Random(seed)
    try:
        async with AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(TinyEngine(_LOW, 0.0)) for _ in range(_ENGINES)]
            file = directory / "warmroute.yaml"
            addresses = [engine.address for engine in engines]
            socket = f"{directory}/xds.sock"
            file.write_text(
                settings_text(socket, addresses, tick=tick, scrape=scrape, stabiliser=UNSTABILISED)
            )
            server = await stack.enter_async_context(
                Peer("xds", "bench.xds_service", (str(file),), directory)
            )
            await server.ask(do="start")
            made = bootstrap(ads_address=f"unix:{socket}", node_id="bench", node_cluster="bench")
            envoy = await stack.enter_async_context(EnvoyProcess(made, directory=directory))
            await envoy.wait_ready()
            # The first pages' window of latencies fills, and weights come to rest.
            await asyncio.sleep(2.0)
            times = []
            for number in range(changes):
                await asyncio.sleep(0.05 + draw.random() * (tick + scrape))
                if (await server.ask(do="acked"))["acked"] and number:
                    raise BenchError("a version was acknowledged that no change of a signal explains")
                times.append(await _one_change(server, engines[number % _ENGINES], draw))
            return times
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _one_change(server: Peer, engine: TinyEngine, draw: random.Random) -> float:
    """Change one engine's memory in use by a lot; return the seconds until the ACK of what follows."""
    middle = (_LOW + _HIGH) / 2
    high = engine.memory_used_ratio < middle
    engine.memory_used_ratio = (_HIGH if high else _LOW) + draw.uniform(-0.05, 0.05)
    changed_at = time.monotonic()
    acked = (await server.ask(do="next_ack", within=_LOST_SECONDS))["acked"]
    if not acked:
        raise BenchError(f"a changed signal was not acknowledged within {_LOST_SECONDS:g} s")
    return float(acked[0][0]) - changed_at


def result_of(times: Sequence[float], tick: float, scrape: float) -> tuple[dict[str, Any], list[Target]]:
    """Return the object that `--json` prints, and its targets."""
    p99 = percentile(times, 0.99)
    result = {
        "changes": len(times),
        "tick_seconds": tick,
        "scrape_interval_seconds": scrape,
        # Waiting for the next scrape alone, were scrape, push and Envoy to take no time. A tick follows a
        # changed load at once, unless one has just been.
        "reference_wait_p50_seconds": scrape * 0.5,
        "reference_wait_p99_seconds": scrape * 0.99,
        "p50_seconds": percentile(times, 0.5),
        "p99_seconds": p99,
        "max_seconds": max(times),
        "min_seconds": min(times),
        "mean_seconds": sum(times) / len(times),
    }
    return result, [report.at_most("p99_seconds", p99, tick + _MARGIN_SECONDS)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.signal_to_ack", description=__doc__)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--tick", type=float, default=0.05, help="seconds (default 0.05)")
    parser.add_argument("--scrape", type=float, default=0.05, help="scrape interval, seconds (default 0.05)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    meter = CpuMeter()
    times = processes.run(signal_to_ack(args.changes, args.tick, args.scrape, args.seed))
    result, targets = result_of(times, args.tick, args.scrape)
    result["cpu_used_ratio"] = meter.used_ratio()
    report.progress(
        f"signal to ACK: p50 {result['p50_seconds'] * 1e3:.1f} ms, p99 {result['p99_seconds'] * 1e3:.1f} ms,"
        f" max {result['max_seconds'] * 1e3:.1f} ms; waiting for the scrape alone would take"
        f" {result['reference_wait_p50_seconds'] * 1e3:.0f} and"
        f" {result['reference_wait_p99_seconds'] * 1e3:.0f} ms"
    )
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
