"""One weight change to many Envoys: CPU, bytes and time of a push, next to a bare grpc.aio server's.

The discovery service runs on the lane (`ours`) and on grpcio. All servers run in processes of their own, with
an equal number of clients on Unix sockets, each on its own connection. They push in turn, so that all meet
the same noise. A push lasts from the snapshot to the last ACK; the cost of building the snapshot, once for
all clients, is separate. The bare server has its bytes ready, keeps no protocol, and reads one message for
each that it writes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import resource
import shutil
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.peer import Peer
from bench.xds_client import METHODS
from bench.xds_fleet import resident_bytes
from warmroute.demo import processes, report
from warmroute.demo.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.report import Target

KINDS: Final = ("ours", "grpcio", "bare")
_PUSHES_A_TURN: Final = 4
_WARM_UP_PUSHES: Final = 4
_CPU_RATIO: Final = 1.3


@dataclass
class Measured:
    """Figures of one kind of server."""

    cpu_seconds: list[float] = field(default_factory=list)
    """Of each push to all clients, snapshot to last ACK: user and system time of the server, all threads."""
    build_cpu_seconds: list[float] = field(default_factory=list)
    """Before it, from weights to the snapshot."""
    receipt_seconds: list[float] = field(default_factory=list)
    """From the snapshot to each client's receipt of it."""
    last_receipt_seconds: list[float] = field(default_factory=list)
    """From the snapshot to the last client's receipt, one a push."""
    response_bytes: set[int] = field(default_factory=set)
    memory_bytes_per_client: float = 0.0

    def take(self, pushes: Sequence[dict[str, float]], received: Sequence[Sequence[float]]) -> None:
        """Take over one turn: receipts are in the order of arrival, the same number for each push."""
        each = len(received) // len(pushes)
        for number, push in enumerate(pushes):
            self.cpu_seconds.append(push["cpu_seconds"])
            self.build_cpu_seconds.append(push["build_cpu_seconds"])
            after = [at - push["set_at"] for at, _ in received[number * each : (number + 1) * each]]
            self.receipt_seconds += after
            self.last_receipt_seconds.append(max(after))
        self.response_bytes.update(int(size) for _, size in received)

    def as_json(self, clients: int) -> dict[str, Any]:
        """Return the figures."""
        cpu = statistics.median(self.cpu_seconds)
        return {
            "cpu_seconds_per_push": cpu,
            "cpu_seconds_per_push_mean": statistics.fmean(self.cpu_seconds),
            "cpu_microseconds_per_client": cpu / clients * 1e6,
            "build_cpu_seconds_per_push": statistics.median(self.build_cpu_seconds),
            "response_bytes": max(self.response_bytes),
            "bytes_per_push": max(self.response_bytes) * clients,
            "receipt_p50_seconds": percentile(self.receipt_seconds, 0.5),
            "receipt_p99_seconds": percentile(self.receipt_seconds, 0.99),
            "last_receipt_p50_seconds": percentile(self.last_receipt_seconds, 0.5),
            "last_receipt_p99_seconds": percentile(self.last_receipt_seconds, 0.99),
            "memory_bytes_per_client": self.memory_bytes_per_client,
        }


async def xds_scale(endpoints: int, clients: int, turns: int, variant: str) -> dict[str, Measured]:
    """Push `turns` times a few changes from each server in turn.

    Raises:
        BenchError: a process ended or did not answer.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    measured = {kind: Measured() for kind in KINDS}
    try:
        async with AsyncExitStack() as stack:
            servers = {}
            crowd = await stack.enter_async_context(Peer("clients", "bench.xds_scale_clients", (), directory))
            for kind in KINDS:
                arguments = (kind, variant, f"unix:{directory}/{kind}.sock", str(endpoints))
                peer = Peer(kind, "bench.xds_scale_server", arguments, directory)
                servers[kind] = await stack.enter_async_context(peer)
                measured[kind].memory_bytes_per_client = await _connect(
                    servers[kind], crowd, arguments, clients
                )
            numbers = itertools.count(1)
            for kind in KINDS:
                await _turn(servers[kind], crowd, clients, [next(numbers) for _ in range(_WARM_UP_PUSHES)])
            for turn in range(turns):
                # The first of a pair meets other caches than the second.
                for kind in KINDS if turn % 2 else reversed(KINDS):
                    pushes = [next(numbers) for _ in range(_PUSHES_A_TURN)]
                    measured[kind].take(*await _turn(servers[kind], crowd, clients, pushes))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return measured


async def _connect(server: Peer, crowd: Peer, arguments: Sequence[str], clients: int) -> float:
    """Start a server and connect its clients; return the memory that each of them takes there, in bytes."""
    kind, variant, address, _ = arguments
    names = (await server.ask(do="start"))["names"]
    if kind == "bare":
        names = {
            type_url: endpoint_names for type_url, endpoint_names in names.items() if "endpoint" in type_url
        }
    before = resident_bytes(server.pid)
    report.progress(f"{kind}: {clients} clients connect")
    await crowd.ask(
        180, do="connect", group=kind, address=address, variant=variant, names=names, count=clients
    )
    await asyncio.sleep(0.5)
    return (resident_bytes(server.pid) - before) / clients


async def _turn(
    server: Peer, crowd: Peer, clients: int, numbers: list[int]
) -> tuple[list[dict[str, float]], list[list[float]]]:
    pushed = await server.ask(180, do="push", numbers=numbers, clients=clients)
    received = await crowd.ask(60, do="receipts", group=server.name, count=clients * len(numbers))
    return pushed["pushes"], received["received"]


def paired(ours: Sequence[float], bare: Sequence[float]) -> list[float]:
    """The ratio of each turn to its neighbour: other load on the host affects both."""
    starts = range(0, len(ours), _PUSHES_A_TURN)
    return [sum(ours[at : at + _PUSHES_A_TURN]) / sum(bare[at : at + _PUSHES_A_TURN]) for at in starts]


def result_of(measured: dict[str, Measured], clients: int) -> tuple[dict[str, Any], list[Target]]:
    """Return the object that `--json` prints, and its targets."""
    result = {kind: figures.as_json(clients) for kind, figures in measured.items()}
    ours, grpcio, bare = (measured[kind] for kind in KINDS)
    over = statistics.median(paired(ours.cpu_seconds, bare.cpu_seconds))
    over_grpcio = statistics.median(paired(ours.cpu_seconds, grpcio.cpu_seconds))
    whole = [cpu + built for cpu, built in zip(ours.cpu_seconds, ours.build_cpu_seconds, strict=True)]
    with_build = statistics.median(paired(whole, bare.cpu_seconds))
    ratios = {"cpu_ratio": over, "cpu_ratio_with_build": with_build, "cpu_ratio_to_grpcio": over_grpcio}
    return {**result, **ratios}, [
        report.at_most("cpu_per_push_over_bare", over, _CPU_RATIO),
        report.at_most("cpu_per_push_over_grpcio", over_grpcio, 1.0),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.xds_scale", description=__doc__)
    parser.add_argument("--endpoints", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--turns", type=int, default=16, help=f"of {_PUSHES_A_TURN} pushes each (default 16)")
    parser.add_argument("--variant", choices=tuple(METHODS), default="sotw")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the servers inherit it
    measured = processes.run(xds_scale(args.endpoints, args.clients, args.turns, args.variant))
    result, targets = result_of(measured, args.clients)
    for kind in KINDS:
        figures = result[kind]
        report.progress(
            f"{kind}: {figures['cpu_seconds_per_push'] * 1e3:.2f} ms CPU a push"
            f" ({figures['cpu_microseconds_per_client']:.0f} us a client), {figures['response_bytes']} bytes,"
            f" last receipt p50 {figures['last_receipt_p50_seconds'] * 1e3:.1f} ms"
            f" p99 {figures['last_receipt_p99_seconds'] * 1e3:.1f} ms,"
            f" {figures['memory_bytes_per_client'] / 1024:.0f} KiB a client"
        )
    shape = {"endpoints": args.endpoints, "clients": args.clients, "variant": args.variant}
    return report.finish({**shape, **result}, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
