"""The cost of scraping an engine: CPU of this process for a scrape of vLLM's page (51 KB), HTTP included.

Engines that consist of their pages run in another process. The scraper scrapes all of them as the product
does, with three readers in turn, several rounds each: the product's, one with prometheus_client's parser (the
reference), and one that ignores the page (the cost of HTTP and timers).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from math import inf
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from bench.scrape_server import PAGE
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import LimitSettings, SignalSettings
from warmroute.demo import processes, report
from warmroute.demo.processes import BenchError
from warmroute.demo.tether import tethered
from xds_server.signals.scrape.engines import reader_of
from xds_server.signals.scrape.ranks import ONE
from xds_server.signals.scrape.scraper import Scraper
from xds_server.signals.scrape.vllm import VLLM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from warmroute.demo.report import Target
    from xds_server.signals.scrape.engines import EngineReader

    MakeReader = Callable[[str, str, SignalSettings], EngineReader]

_METRICS: Final = VLLM.names
_TIMEOUT_SECONDS: Final = 5.0


class ReferenceReader:
    """Reads the product's lines by prometheus_client's parser, and makes less of them than the product."""

    malformed_lines = 0
    second_page = ""
    ranks = ONE

    def read(self, page: bytes, now: float, second: bytes | None = None) -> dict[str, float]:  # noqa: ARG002
        """Gather the needed samples; the queue depth proves that they were read."""
        values: dict[str, list[float]] = {}
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                if sample.name in _METRICS:
                    values.setdefault(sample.name, []).append(sample.value)
        return {"queue_depth": sum(values["vllm:num_requests_waiting"])}


class NoReader:
    """Leaves the page alone."""

    malformed_lines = 0
    second_page = ""
    ranks = ONE

    def read(self, page: bytes, now: float, second: bytes | None = None) -> dict[str, float]:  # noqa: ARG002
        """Tell that a page came."""
        return {"queue_depth": 0.0}


ARMS: Final[dict[str, MakeReader]] = {
    "warmroute": reader_of,
    "reference": lambda *_: ReferenceReader(),
    "no_reader": lambda *_: NoReader(),
}


@contextlib.asynccontextmanager
async def engines(count: int) -> AsyncIterator[list[Endpoint]]:
    """Run the engines' process.

    Raises:
        BenchError: it did not start.
    """
    process = await asyncio.create_subprocess_exec(
        *tethered([sys.executable, "-m", "bench.scrape_server", str(count)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        if not line:
            raise BenchError("the engines' process ended at its start")
        yield [
            Endpoint(f"127.0.0.1:{port}", "engines", metrics_url=f"http://127.0.0.1:{port}/metrics")
            for port in json.loads(line)
        ]
    finally:
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def one_round(
    make_reader: MakeReader, endpoints: list[Endpoint], seconds: float, interval: float
) -> dict[str, float]:
    """Scrape for `seconds` after a warm-up: scrapes, failures, CPU in ms a scrape, endpoints not read."""
    settings = SignalSettings(
        scrape_interval_seconds=interval, scrape_timeout_seconds=_TIMEOUT_SECONDS, stale_after_seconds=60.0
    )
    registry = CollectorRegistry()
    scraper = Scraper(settings, LimitSettings(), registry, make_reader=make_reader)
    scraper.update(Membership((Pool("engines", tuple(endpoints)),)))
    try:
        if not await scraper.first_sync(30):
            raise BenchError("the engines' pages do not come")
        await asyncio.sleep(interval)  # windows have their first pages, connections are open
        before, cpu = _count(registry, "warmroute_scrapes"), time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - cpu
        scrapes = _count(registry, "warmroute_scrapes") - before
        return {
            "scrapes": scrapes,
            "failures": sum(
                sample.value
                for family in registry.collect()
                for sample in family.samples
                if sample.name == "warmroute_scrape_failures_total"
            ),
            "cpu_ms": used / scrapes * 1000 if scrapes else inf,
            "unread": float(np.isnan(scraper.signals()["queue_depth"]).sum()),
        }
    finally:
        await scraper.close()


def _count(registry: CollectorRegistry, name: str) -> float:
    return registry.get_sample_value(f"{name}_total") or 0.0


async def scrape(targets: int, seconds: float, rounds: int, interval: float) -> dict[str, Any]:
    """Run all arms in turn and return the figures: medians over the rounds."""
    by_arm: dict[str, list[dict[str, float]]] = {name: [] for name in ARMS}
    async with engines(targets) as endpoints:
        for number in range(rounds):
            for name, make_reader in ARMS.items():
                by_arm[name].append(await one_round(make_reader, endpoints, seconds, interval))
                report.progress(f"round {number + 1} {name}: {by_arm[name][-1]['cpu_ms']:.3f} ms a scrape")
    result: dict[str, Any] = {"targets": targets, "page_bytes": PAGE.stat().st_size}
    for name, entries in by_arm.items():
        result[name] = {
            "cpu_ms_per_scrape": statistics.median(entry["cpu_ms"] for entry in entries),
            "cpu_ms_per_scrape_by_round": [entry["cpu_ms"] for entry in entries],
            "scrapes": sum(entry["scrapes"] for entry in entries),
        }
    ours, reference = (result[name]["cpu_ms_per_scrape"] for name in ("warmroute", "reference"))
    result["share_of_reference"] = report.ratio(ours, reference)
    everyone = [entry for entries in by_arm.values() for entry in entries]
    result["failures"] = sum(entry["failures"] for entry in everyone)
    result["unread"] = sum(entry["unread"] for entry in everyone)
    return result


def targets_of(result: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [
        report.at_most("cpu_ms_per_scrape", result["warmroute"]["cpu_ms_per_scrape"], 1.0),
        report.at_most("share_of_reference", result["share_of_reference"], 1 / 3),
        report.exactly("failures", result["failures"], 0),
        report.exactly("unread", result["unread"], 0),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=__doc__)
    parser.add_argument("--targets", type=int, default=100, help="engines (default 100)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round (default 4)")
    parser.add_argument("--rounds", type=int, default=3, help="of each reader (default 3)")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between scrapes (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    result = processes.run(scrape(args.targets, args.seconds, args.rounds, args.interval))
    return report.finish(result, targets_of(result), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
