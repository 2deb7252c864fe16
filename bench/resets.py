"""What ext_proc keeps of streams that end as Envoy ends them: each is reset once it has its reply.

`warmroute serve` is measured, this process plays Envoy. Memory is the server's resident memory after a
warm-up, in which allocators, caches and the newest decisions take what they keep anyway.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import yaml

from bench.handshake import cpu_seconds
from fleet.envoy_api.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from warmroute.demo import processes, report
from warmroute.demo.processes import Child, free_port, warmroute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.report import Target

_AT_ONCE: Final = 10
_STAGES: Final = 10
_WARM_UP_SHARE: Final = 0.2
_LEAST_WARM_UP: Final = 20_000
_BYTES_OF_NOISE: Final = 1_500_000
"""Between two looks at one process; a leaked read is some 110 bytes a request."""


def request() -> pb.ProcessingRequest:
    """Return the one message of a request whose body Envoy has buffered."""
    message = pb.ProcessingRequest()
    message.protocol_config.request_body_mode = ProcessingMode.BUFFERED
    message.request_body.body = b'{"model": "m", "prompt": "' + b"word " * 400 + b'"}'
    message.request_body.end_of_stream = True
    return message


async def streams(stub: Any, count: int, *, reset: bool = True) -> None:
    """Open streams, some at once; each gets its reply and is then reset or half-closed."""
    message = request()

    async def one() -> None:
        call = stub.Process()
        await call.write(message)
        await call.read()
        if reset:
            call.cancel()
            return
        await call.done_writing()
        await call.read()

    async def some(number: int) -> None:
        for _ in range(number):
            await one()

    await asyncio.gather(*(some((count + at) // _AT_ONCE) for at in range(_AT_ONCE)))


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def resets(requests: int, *, reset: bool = True) -> dict[str, Any]:
    """Send `requests` after the warm-up; return the server's memory on the way.

    Raises:
        BenchError: the server did not start.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    children: list[Child] = []
    try:
        engine = Child("engine", warmroute("engine", "--address", "127.0.0.1:0"), directory)
        children.append(engine)
        await engine.wait_for(lambda: engine.line_after("listening on ") is not None)
        file = directory / "warmroute.yaml"
        file.write_text(yaml.safe_dump(_settings(directory, str(engine.line_after("listening on ")))))
        server = Child("serve", warmroute("serve", str(file)), directory)
        children.append(server)
        await server.wait_for(lambda: "admin listens" in server.log.read_text())
        async with grpc.aio.insecure_channel(f"unix:{directory}/ext_proc") as channel:
            stub = pb_grpc.ExternalProcessorStub(channel)  # type: ignore[no-untyped-call]
            await streams(stub, max(_LEAST_WARM_UP, int(requests * _WARM_UP_SHARE)), reset=reset)
            resident, cpu = [resident_bytes(server.pid)], cpu_seconds(server.pid)
            for stage in range(_STAGES):
                await streams(stub, requests // _STAGES, reset=reset)
                resident.append(resident_bytes(server.pid))
                report.progress(f"{(stage + 1) * (requests // _STAGES)} requests: {resident[-1]} bytes")
            cpu = cpu_seconds(server.pid) - cpu
    finally:
        for child in reversed(children):
            await child.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "requests": requests,
        "end": "reset" if reset else "half-close",
        "resident_bytes": resident,
        "cpu_microseconds_per_request": round(1e6 * cpu / requests, 1),
        "bytes_per_100000_requests": round((resident[-1] - resident[0]) * 100_000 / requests),
    }


def _settings(directory: Path, engine: str) -> dict[str, Any]:
    return {
        "pools": [{"name": "pool", "endpoints": [{"address": engine}]}],
        "listeners": [{"name": "front", "address": f"127.0.0.1:{free_port()}", "pool": "pool"}],
        "xds": {"address": f"unix:{directory}/xds", "state_path": ""},
        "ext_proc": {"address": f"unix:{directory}/ext_proc"},
        "control": {"address": f"unix:{directory}/control"},
        "admin": {"address": f"127.0.0.1:{free_port()}"},
    }


def targets_of(result: dict[str, Any]) -> list[Target]:
    """Hold the end against what was there after the warm-up."""
    resident = result["resident_bytes"]
    return [report.at_most("bytes_grown", resident[-1] - resident[0], _BYTES_OF_NOISE)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether the target is met."""
    parser = argparse.ArgumentParser(prog="python -m bench.resets", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="beyond the warm-up (default 100000)")
    parser.add_argument("--half-close", action="store_true", help="end streams so, to compare")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    result = processes.run(resets(args.requests, reset=not args.half_close))
    return report.finish(result, targets_of(result), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
