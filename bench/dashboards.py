"""Runs every query of dashboards and rules on a real Prometheus that scrapes a real, loaded deployment.

It takes the programs `prometheus` and `promtool`, which are no wheels: on PATH, or in the folder that
`--prometheus` names. Engines, Envoy and Warmroute's services run apart on loopback under load; a GPU agent
stands in with a made-up reading, and Prometheus has the configuration of `deploy/prometheus` with other
targets. Wanted: no query with an error, and none without a series.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import time
import urllib.parse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from bench.agent_page import agent_page
from bench.dashboard_queries import Query, queries
from warmroute.demo import processes, report
from warmroute.demo.cluster import POOL, ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.http_client import HttpClient
from warmroute.demo.load import LoadRun
from warmroute.demo.processes import BenchError, free_port
from warmroute.simulator.workload import Span, WorkloadSettings, workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.cluster import Cluster
    from warmroute.demo.report import Target

_DEPLOY: Final = Path(__file__).parents[1] / "deploy"
_SCRAPE_SECONDS: Final = 1
_ENGINE: Final = EngineSettings(speed_up=3.0, blocks=8192)
_OVERRIDES: Final = {
    "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.4},
    "telemetry": {"pick_sample_ratio": 1.0, "traces": "otlp"},
    "limits": {"drain_seconds": 0.5},
}
_WINDOW: Final = {"$__rate_interval": "30s", "$pool": ".*"}


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of one query."""

    query: Query
    series: int
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self.query), "series": self.series, "error": self.error}


async def dashboards(programs: Path | None, seconds: float, rate: float) -> list[Ran]:
    """Start everything, drive load for `seconds`, and run every query.

    Raises:
        BenchError: a program is missing, a check of promtool's fails, or a part does not start.
    """
    prometheus, promtool = program("prometheus", programs), program("promtool", programs)
    check_with(promtool)
    turns = workload(
        WorkloadSettings(
            duration_seconds=seconds,
            rate_per_second=rate,
            tenants=8,
            system_prompt_tokens=Span(200, 400),
            max_tokens=Span(20, 40),
        )
    )
    async with (
        running_cluster(ClusterSettings("apart", 3, _ENGINE, _OVERRIDES)) as cluster,
        agent_page(f"unix:{cluster.directory}/xds.sock") as agent,
    ):
        address = f"127.0.0.1:{free_port()}"
        child = cluster.start("prometheus", prometheus_argv(prometheus, cluster, agent, address))
        await cluster.wait_answer("prometheus", address, "/-/ready")
        report.progress(f"{rate:g} requests a second for {seconds:g} s, scraped every {_SCRAPE_SECONDS} s")
        load = LoadRun(cluster.address, _ENGINE.model)
        # Queries run during the load, so queries about the present find data.
        sending = asyncio.create_task(load.run(turns))
        try:
            await asyncio.sleep(seconds * 0.9)
            assert child.running
            return await run_all(address, queries(_DEPLOY))
        finally:
            load.stop()
            await sending


async def run_all(address: str, queries: Sequence[Query]) -> list[Ran]:
    """Run queries as of now, one after the other."""
    client = HttpClient(address, time.monotonic)
    try:
        return [await run(client, query) for query in queries]
    finally:
        client.close()


async def run(client: HttpClient, query: Query) -> Ran:
    """Run one query."""
    expression = query.expression
    for variable, value in _WINDOW.items():
        expression = expression.replace(variable, value)
    path = f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    answer = msgspec.json.decode((await client.request("GET", path)).body)
    if answer["status"] != "success":
        return Ran(query, 0, str(answer["error"]))
    return Ran(query, len(answer["data"]["result"]))


def program(name: str, folder: Path | None) -> Path:
    """Find a program in the folder, else on PATH.

    Raises:
        BenchError: it is in neither.
    """
    path = shutil.which(name, path=None if folder is None else str(folder))
    if path is None:
        raise BenchError(
            f"there is no `{name}` {f'in {folder}' if folder else 'on PATH'}: see docs/dashboards.md"
        )
    return Path(path)


def check_with(promtool: Path) -> None:
    """Check rules and configuration as promtool does.

    Raises:
        BenchError: it finds something.
    """
    folder = _DEPLOY / "prometheus"
    for command in (
        ["check", "rules", str(folder / "rules.yml")],
        ["test", "rules", str(folder / "rules_test.yml")],
        ["check", "config", "--syntax-only", str(folder / "prometheus.yml")],
    ):
        done = subprocess.run([str(promtool), *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"promtool {' '.join(command)}:\n{done.stdout}{done.stderr}")


def prometheus_argv(prometheus: Path, cluster: Cluster, agent: str, address: str) -> list[str]:
    """Write the configuration with this run's targets; return the command line."""
    folder = _DEPLOY / "prometheus"
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), f"{_SCRAPE_SECONDS}s")
    config["rule_files"] = [str(folder / name) for name in config["rule_files"]]
    targets = {
        "warmroute-xds": cluster.admin_address,
        "warmroute-ext-proc": cluster.ext_proc_admin_address,
        "prometheus": address,
    }
    jobs = [job for job in config["scrape_configs"] if job["job_name"] in targets]
    for job in jobs:
        job.pop("authorization", None)  # Loopback needs no token.
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
    jobs.append({"job_name": "warmroute-gpu-agent", "static_configs": [{"targets": [agent]}]})
    config["scrape_configs"] = jobs
    file = cluster.directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    return [
        *(str(prometheus), f"--config.file={file}", f"--storage.tsdb.path={cluster.directory / 'tsdb'}"),
        *(f"--web.listen-address={address}", "--log.level=warn"),
    ]


def result_of(ran: Sequence[Ran]) -> tuple[dict[str, Any], list[Target]]:
    """Return the object that `--json` prints, and its targets."""
    failed = [entry for entry in ran if entry.error]
    empty = [entry for entry in ran if not entry.error and not entry.series]
    result = {
        "pool": POOL,
        "queries": len(ran),
        "failed": [entry.as_json() for entry in failed],
        "empty": [entry.as_json() for entry in empty if not entry.query.rare],
        "empty_as_documented": [entry.as_json() for entry in empty if entry.query.rare],
    }
    return result, [
        report.at_least("queries", len(ran), 100),
        report.exactly("queries_with_errors", len(failed), 0),
        report.exactly("queries_without_series", len(result["empty"]), 0),  # type: ignore[arg-type]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.dashboards", description=__doc__)
    parser.add_argument("--prometheus", type=Path, metavar="FOLDER", help="where prometheus and promtool are")
    parser.add_argument("--seconds", type=float, default=30.0, help="of load (default 30)")
    parser.add_argument("--rate", type=float, default=15.0, help="requests a second (default 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    began = time.monotonic()
    ran = processes.run(dashboards(args.prometheus, args.seconds, args.rate))
    result, targets = result_of(ran)
    for kind in ("failed", "empty", "empty_as_documented"):
        for entry in result[kind]:
            report.progress(
                f"{kind.replace('_', ' ')}: {entry['where']}: {entry['expression']} {entry['error']}"
            )
    report.progress(f"{len(ran)} queries, {time.monotonic() - began:.0f} s in all")
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
