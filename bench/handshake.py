"""Full compared with resumed TLS handshakes at the real Envoy: their rate, and their CPU cost.

`warmroute xds` gives Envoy two listeners over SDS, one with an RSA and one with an ECDSA certificate, with
shared session tickets. One client connects repeatedly, in short turns of full and resumed handshakes of each
kind, so that the host's noise meets all alike. Each connection ends with a `close_notify` on both sides,
which shows that Envoy has completed the handshake. A connection without any handshake is the third kind: its
cost is not TLS, and the ratios exclude it. Envoy's own counters must confirm the resumed handshakes. CPU is
that of Envoy's threads, by the kernel's scheduler. Ratios are the targets: seconds depend on the host.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import ssl
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from testing.certificates import Authority
from testing.tls_client import Client
from warmroute.demo import processes, report
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import BenchError, Child, free_port, warmroute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warmroute.demo.report import Target

VERSIONS: Final = {"tls1_2": ssl.TLSVersion.TLSv1_2, "tls1_3": ssl.TLSVersion.TLSv1_3}
KEYS: Final = {"rsa_2048": 2048, "ecdsa_p256": 0}
KINDS: Final = ("full", "resumed")
BARE: Final = "connection"
CHEAPER: Final = {
    "rsa_2048.tls1_2": 4.0,
    "rsa_2048.tls1_3": 2.5,
    "ecdsa_p256.tls1_2": 1.5,
    "ecdsa_p256.tls1_3": 1.05,
}
"""Least ratio of CPU, full over resumed. Resuming saves the signature, which costs much with RSA; in TLS 1.3
keys are exchanged all the same."""
HOST: Final = "front.test"
_TURNS: Final = 10


@dataclass
class Cost:
    """What connections of one kind took; `cpu_seconds` is Envoy's."""

    connections: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def a_second(self) -> float | None:
        """Connections that one client made in a second, one after the other."""
        return report.ratio(self.connections, self.seconds)

    @property
    def cpu_microseconds(self) -> float | None:
        """Of one connection."""
        each = report.ratio(self.cpu_seconds, self.connections)
        return None if each is None else 1e6 * each


@dataclass
class Site:
    """Ports of the listeners by key, and Envoy."""

    directory: Path
    ports: dict[str, int] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """The settings file's content."""
        at = self.directory
        return {
            "pools": [
                {"name": "engines", "endpoints": [{"address": "127.0.0.1:9"}], "joining": {"probe": "none"}}
            ],
            "listeners": [
                {
                    "name": key,
                    "address": f"127.0.0.1:{port}",
                    "pool": "engines",
                    "tls": {
                        "certificate_file": f"{at}/{key}.crt",
                        "key_file": f"{at}/{key}.key",
                        "shared_tickets": True,
                    },
                }
                for key, port in self.ports.items()
            ],
            "xds": {"address": f"unix:{at}/xds.sock"},
            "ext_proc": {"address": f"unix:{at}/ext_proc.sock"},
            "control": {"address": f"unix:{at}/control.sock"},
            "admin": {"address": f"127.0.0.1:{free_port()}"},
        }


async def measure(handshakes: int) -> dict[str, Cost]:
    """Run all kinds, each with at least `handshakes` connections. Keys are `KEY.VERSION.KIND`.

    Raises:
        BenchError: a part did not start, or a handshake was not of the kind it was to be.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-handshake-"))
    children: list[Child] = []
    try:
        authority = Authority(directory)
        site = Site(directory)
        for key, bits in KEYS.items():
            authority.issue(key, HOST, rsa_bits=bits)
            site.ports[key] = free_port()
        file = directory / "warmroute.yaml"
        file.write_text(yaml.safe_dump(site.settings()))
        child = Child("xds", warmroute("xds", str(file)), directory)
        children.append(child)
        await child.wait_for((directory / "xds.sock").exists)
        boot = await _bootstrap(file)
        async with EnvoyProcess(boot, directory=directory) as envoy:
            await envoy.wait_ready(listeners=len(KEYS))
            before = await _counters(envoy)
            costs = await asyncio.to_thread(_turns, site, authority.file, envoy.pid, handshakes)
            _check(costs, before, await _counters(envoy))
            return costs
    finally:
        for child in children:
            child.kill()
        shutil.rmtree(directory, ignore_errors=True)


async def _bootstrap(file: Path) -> Any:
    process = await asyncio.create_subprocess_exec(
        *warmroute("bootstrap", str(file)), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise BenchError(f"warmroute bootstrap ended with status {process.returncode}")
    return yaml.safe_load(output)


def _turns(site: Site, authorities: Path, pid: int, handshakes: int) -> dict[str, Cost]:
    costs: dict[str, Cost] = {}
    turn = max(1, handshakes // _TURNS)
    clients = {
        f"{key}.{name}": Client(port, HOST, version, authorities)
        for key, port in site.ports.items()
        for name, version in VERSIONS.items()
    }
    for client in clients.values():
        client.prime()
    while any(cost.connections < handshakes for cost in costs.values()) or not costs:
        for name, make in _kinds(clients):
            cost = costs.setdefault(name, Cost())
            began, cpu = time.perf_counter(), cpu_seconds(pid)
            for _ in range(turn):
                make()
            cost.seconds += time.perf_counter() - began
            cost.cpu_seconds += cpu_seconds(pid) - cpu
            cost.connections += turn
    return costs


def _kinds(clients: dict[str, Client]) -> Iterator[tuple[str, Any]]:
    for name, client in clients.items():
        yield f"{name}.full", client.full
        yield f"{name}.resumed", client.resumed
    yield BARE, next(iter(clients.values())).bare


def cpu_seconds(pid: int) -> float:
    """CPU time that all threads of a process have used (Linux: nanoseconds by the scheduler).

    Raises:
        OSError: the kernel does not report it.
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def _counters(envoy: EnvoyProcess) -> dict[str, int]:
    stats = await envoy.stats("listener.127")
    sums = {"ssl.handshake": 0, "ssl.session_reused": 0, "ssl.connection_error": 0}
    for name, value in stats.items():
        for end in sums:
            # Each worker counts once more by itself.
            if name.endswith(end) and ".worker_" not in name:
                sums[end] += value
    return sums


def _check(costs: dict[str, Cost], before: dict[str, int], after: dict[str, int]) -> None:
    opened = {name: after[name] - before[name] for name in after}
    made = {kind: sum(c.connections for name, c in costs.items() if name.endswith(kind)) for kind in KINDS}
    first = len(KEYS) * len(VERSIONS)
    if opened["ssl.session_reused"] != made["resumed"]:
        raise BenchError(f"Envoy resumed {opened['ssl.session_reused']} sessions of {made['resumed']}")
    if opened["ssl.handshake"] != sum(made.values()) + first:
        raise BenchError(f"Envoy counts {opened['ssl.handshake']} handshakes of {sum(made.values()) + first}")


def cheaper(costs: dict[str, Cost], name: str) -> float | None:
    """How many times the CPU of a resumed handshake a full one takes, without what a connection takes."""
    bare = costs[BARE].cpu_microseconds
    full, resumed = (costs[f"{name}.{kind}"].cpu_microseconds for kind in KINDS)
    if bare is None or full is None or resumed is None:
        return None
    return report.ratio(full - bare, max(0.0, resumed - bare))


def targets_of(costs: dict[str, Cost]) -> list[Target]:
    """Compare with the targets."""
    return [
        report.at_least(f"{name.replace('.', '_')}_cpu_full_over_resumed", cheaper(costs, name), least)
        for name, least in CHEAPER.items()
    ]


def result_of(costs: dict[str, Cost]) -> dict[str, Any]:
    """Return the figures that `--json` prints next to the targets."""
    return {
        "kinds": {
            name: {
                "connections": cost.connections,
                "a_second": cost.a_second,
                "envoy_cpu_microseconds": cost.cpu_microseconds,
            }
            for name, cost in costs.items()
        },
        "a_second_resumed_over_full": {
            name: report.ratio(costs[f"{name}.resumed"].a_second, costs[f"{name}.full"].a_second)
            for name in CHEAPER
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.handshake", description=__doc__)
    parser.add_argument("--handshakes", type=int, default=1000, help="of each kind; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(arguments)
    costs = processes.run(measure(max(1, args.handshakes)))
    for name, cost in costs.items():
        report.progress(f"{name:26} {cost.a_second:8.0f}/s {cost.cpu_microseconds:8.1f} us of CPU each")
    return report.finish(result_of(costs), targets_of(costs), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
