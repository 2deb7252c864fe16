"""Sampler, page, reports and the process, around a stand-in for NVML."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.service.reconnect import FAILURES_BEFORE_LOG
from fleet.service.serving import GrpcServer
from fleet.settings import SignalSettings
from fleet.settings.weights import FaultSettings
from testing.signals import load_of
from warmroute.gpu_agent.page import AgentServer, GpuCollector
from warmroute.gpu_agent.reporter import Reporter
from warmroute.gpu_agent.sampler import Sampler
from xds_server.signals.gpu.report_service import GpuReportService
from xds_server.signals.gpu.reports import GpuBoard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FAST = 0.01


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(condition: Any, what: str) -> None:
    """Wait for something that must come true; the limit is only there to end a failing test."""
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"never: {what}")


@asynccontextmanager
async def sampling(bench: Any, deadline: float = 30.0) -> AsyncIterator[Sampler]:
    sampler = Sampler(bench.reader, FAST, deadline, bench.metrics)
    task = asyncio.create_task(sampler.run())
    try:
        yield sampler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        bench.nvml.hanging.set()
        await sampler.close()


async def test_readings_follow_each_other(bench: Any) -> None:
    async with sampling(bench) as sampler:
        first = await sampler.newer(None)
        second = await sampler.newer(first)
        assert second is not first
        assert sampler.newest is not None
        assert len(second.gpus) == 2


async def test_a_hanging_nvml_is_called_once_and_recovers(bench: Any) -> None:
    """The last reading stays and ages, the overrun counts, and the loop goes on."""
    async with sampling(bench, deadline=0.02) as sampler:
        await sampler.newer(None)
        bench.nvml.hanging.clear()
        await until(lambda: sampler.hanging, "the sampler notices")
        newest = sampler.newest
        calls = bench.nvml.calls
        overruns = bench.registry.get_sample_value("warmroute_gpu_agent_overruns_total")
        more = "warmroute_gpu_agent_overruns_total"
        await until(lambda: bench.registry.get_sample_value(more) >= overruns + 3, "it goes on counting")
        assert bench.nvml.calls == calls
        assert sampler.newest is newest
        bench.nvml.hanging.set()
        assert await sampler.newer(newest) is not newest
        assert not sampler.hanging
        assert bench.nvml.most_inside == 1


async def test_a_fault_of_ours_ends_one_sample_and_not_the_thread(bench: Any) -> None:
    async with sampling(bench) as sampler:
        await sampler.newer(None)
        broken, bench.reader._gpus = bench.reader._gpus, None
        fault = "warmroute_gpu_agent_faults_total"
        await until(lambda: bench.registry.get_sample_value(fault) >= 1, "the fault counts")
        newest, bench.reader._gpus = sampler.newest, broken
        assert await sampler.newer(newest) is not newest


async def test_closing_ends_nvml_unless_it_hangs(bench: Any) -> None:
    async with sampling(bench) as sampler:
        await sampler.newer(None)
    assert bench.nvml.shutdowns == 1
    async with sampling(bench, deadline=0.02) as sampler:
        await sampler.newer(None)
        bench.nvml.hanging.clear()
        await until(lambda: sampler.hanging, "the sampler notices")
        await sampler.close()  # returns
    assert bench.nvml.shutdowns == 1


def page(bench: Any, reading: Any) -> str:
    registry = CollectorRegistry()
    registry.register(GpuCollector(lambda: reading, lambda: bench.now))
    return generate_latest(registry).decode()


def test_page_has_every_field_except_unknown(bench: Any, mig_class: Any) -> None:
    bench.nvml.gpus[0].migs = [mig_class("MIG-1", 7, 9, 10)]
    bench.nvml.gpus[0].nvlinks = ["switch", ""]
    bench.sample()
    bench.nvml.xid(bench.nvml.gpus[0], 31)
    text = page(bench, bench.sample())
    at = 'index="0",uuid="GPU-a"'
    for line in (
        "warmroute_gpus 2.0",
        f"warmroute_gpu_memory_total_bytes{{{at}}} 8.589934592e+10",
        f"warmroute_gpu_power_watts{{{at}}} 350.0",
        f"warmroute_gpu_ecc_corrected_total{{{at}}} 3.0",
        f"warmroute_gpu_lost{{{at}}} 0.0",
        f"warmroute_gpu_nvlinks_active{{{at}}} 1.0",
        'warmroute_gpu_clocks_event_reason{index="0",reason="sw_power_cap",uuid="GPU-a"} 1.0',
        'warmroute_gpu_clocks_event_reason{index="0",reason="hw_slowdown",uuid="GPU-a"} 0.0',
        'warmroute_gpu_remapped_rows{cause="correctable",index="0",uuid="GPU-a"} 1.0',
        'warmroute_gpu_mig_memory_used_bytes{index="0",instance="7",slice="MIG-1",uuid="GPU-a"} 9.0',
        'warmroute_gpu_faults_total{code="31",index="0",kind="xid",uuid="GPU-a"} 1.0',
        'warmroute_gpu_peer_link{index="0",link="NODE",peer="GPU-b",uuid="GPU-a"} 1.0',
    ):
        assert line in text.splitlines()
    assert f"warmroute_gpu_utilisation_ratio{{{at}}}" not in text
    assert 'warmroute_gpu_utilisation_ratio{index="1",uuid="GPU-b"} 0.75' in text


def test_a_page_without_gpus_says_so(bench: Any) -> None:
    assert "warmroute_gpus 0.0" in page(bench, None)


@asynccontextmanager
async def served(bench: Any, reading: Any, host: str = "127.0.0.1") -> AsyncIterator[str]:
    port = free_port()
    server = AgentServer(
        f"{host}:{port}",
        bench.registry,
        lambda: reading,
        lambda: reading is not None,
        bench.reader.note_cuda_error,
    )
    await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop()


async def test_cuda_errors_are_accepted_on_loopback(bench: Any) -> None:
    reading = bench.sample()
    async with served(bench, reading) as url, aiohttp.ClientSession() as session:

        async def post(body: Any) -> int:
            async with session.post(f"{url}/faults", data=body) as answer:
                return answer.status

        assert await post(json.dumps({"gpu": "1", "cuda_error": "cudaErrorMemoryAllocation"})) == 204
        assert await post(json.dumps({"gpu": "GPU-b", "cuda_error": 2})) == 204
        assert await post(json.dumps({"gpu": "7", "cuda_error": 2})) == 404
        for wrong in ("", "[]", "{", json.dumps({"gpu": "0", "cuda_error": "out of memory"})):
            assert await post(wrong) == 400
        assert await post("x" * 100_000) == 413
    assert [(f.code, f.times) for f in bench.sample().gpus[1].faults] == [("2", 2)]


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"host": "rebound.example:19100"}],
)
async def test_no_page_in_a_browser_tells_of_faults(bench: Any, headers: dict[str, str]) -> None:
    """A page of another site can post to loopback without being asked, and a fault drains a GPU."""
    body = json.dumps({"gpu": "1", "cuda_error": 2})
    async with (
        served(bench, bench.sample()) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/faults", data=body, headers=headers) as answer,
    ):
        assert answer.status == 403
    assert bench.sample().gpus[1].faults == ()


async def test_nested_without_end_is_no_fault(bench: Any) -> None:
    async with (
        served(bench, bench.sample()) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/faults", data="[" * 4000) as answer,
    ):
        assert answer.status == 400


async def test_page_beyond_loopback_takes_no_faults(bench: Any) -> None:
    async with (
        served(bench, bench.sample(), "0.0.0.0") as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/faults", data="{}") as answer,
    ):
        assert answer.status == 404


def board() -> GpuBoard:
    return GpuBoard(SignalSettings(), FaultSettings(), CollectorRegistry())


@asynccontextmanager
async def xds_server(path: Path, gpu_board: GpuBoard) -> AsyncIterator[str]:
    server = GrpcServer("control", f"unix:{path}/control.sock")
    GpuReportService(gpu_board).register(server.server)
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop(0)


async def test_reports_reach_the_board_after_a_broken_stream(bench: Any, tmp_path: Path) -> None:
    """A reported fault is in the endpoint's signals; a server that returns gets a report again."""
    here = Endpoint("127.0.0.1:8000", "p", node="host-1", gpus=("1",))
    membership = Membership((Pool("p", (here,)),))
    connected = "warmroute_gpu_agent_connected"

    def score(gpu_board: GpuBoard) -> float:
        return float(gpu_board.signals(membership, 0.0)["gpu_health_score"][0])

    async with sampling(bench) as sampler:
        reporter = Reporter(
            f"unix:{tmp_path}/control.sock", "host-1", sampler, bench.metrics, lambda: bench.now
        )
        task = asyncio.create_task(reporter.run())
        try:
            for _ in range(2):
                gpu_board = board()
                async with xds_server(tmp_path, gpu_board):
                    await until(
                        lambda h=gpu_board: h.signals(membership, 0.0).endpoint_values(0), "the board is told"
                    )
                    await until(
                        lambda: bench.registry.get_sample_value(connected) == 1, "and the agent hears so"
                    )
                    load = load_of(gpu_board.signals(membership, 0.0), here.address)
                    assert load.gpu_memory_used_ratio.value == 0.75
                    assert load.gpu_memory_used_ratio.source == "nvml"
                    assert load.gpu_health_score.value == 1.0
                    bench.nvml.xid(bench.nvml.gpus[1], 79)
                    await until(lambda h=gpu_board: score(h) == 0.0, "the fault is told")
                await until(lambda: bench.registry.get_sample_value(connected) == 0, "the break is noticed")
                bench.reader._gpus["GPU-b"].log.clear()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_server_that_does_not_answer_is_left(bench: Any, tmp_path: Path) -> None:
    class Silent(GpuReportService):
        async def report(self, messages: Any, context: Any) -> AsyncIterator[Any]:
            async for _ in messages:
                await asyncio.Event().wait()
            yield

    server = GrpcServer("control", f"unix:{tmp_path}/control.sock")
    Silent(board()).register(server.server)
    await server.start()
    async with sampling(bench) as sampler:
        reporter = Reporter(server.address, "n", sampler, bench.metrics, lambda: bench.now, 0.05)
        task = asyncio.create_task(reporter.run())
        breaks = "warmroute_gpu_agent_report_breaks_total"
        await until(lambda: bench.registry.get_sample_value(breaks) >= 2, "it is tried again")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert bench.registry.get_sample_value("warmroute_gpu_agent_reports_total") == 0
    await server.stop(0)


async def test_missing_xds_server_is_logged_once(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("warmroute.gpu_agent.reporter.MAX_BACKOFF_SECONDS", 0.1)
    async with sampling(bench) as sampler:
        address = f"unix:{tmp_path}/nowhere.sock"
        task = asyncio.create_task(Reporter(address, "n", sampler, bench.metrics, lambda: bench.now).run())
        breaks = "warmroute_gpu_agent_report_breaks_total"
        await until(
            lambda: bench.registry.get_sample_value(breaks) > FAILURES_BEFORE_LOG, "it is tried again"
        )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    (message,) = [record.message for record in caplog.records if record.name == "fleet.service.reconnect"]
    assert message.startswith(f"no xds_server answers at --control {address} (UNAVAILABLE: ")


async def test_invalid_report_ends_the_stream_and_counts(tmp_path: Path) -> None:
    from fleet.wire import gpu_pb2, gpu_pb2_grpc  # noqa: PLC0415

    registry = CollectorRegistry()
    gpu_board = GpuBoard(SignalSettings(), FaultSettings(), registry)
    async with xds_server(tmp_path, gpu_board) as address, grpc.aio.insecure_channel(address) as channel:
        stub = gpu_pb2_grpc.GpuReportsStub(channel)
        for reports in (
            [gpu_pb2.GpuReport()],
            [gpu_pb2.GpuReport(node="a"), gpu_pb2.GpuReport(node="b")],
            [gpu_pb2.GpuReport(node="a", age_seconds=-1)],
        ):
            call = stub.Report(iter(reports))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                while await call.read() is not grpc.aio.EOF:
                    pass
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert registry.get_sample_value("warmroute_gpu_report_errors_total") == 3


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""


async def test_verb_runs_without_gpus_until_sigterm(tmp_path: Path) -> None:
    """No library, no GPU, no xds_server: it serves a page with 0 GPUs all the same."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "warmroute.cli.main", "gpu-agent", "--listen", f"127.0.0.1:{port}"),
        *("--control", f"unix:{tmp_path}/nobody.sock", "--interval", "0.1"),
        stderr=asyncio.subprocess.PIPE,
        # Hides a driver, in case the tests run on a machine with one.
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if (await asyncio.to_thread(fetch, f"{url}/readyz"))[0] == 200 or process.returncode is not None:
                break
            await asyncio.sleep(0.05)
        status, text = await asyncio.to_thread(fetch, f"{url}/metrics")
        assert status == 200
        assert "warmroute_gpus 0.0" in text.splitlines()
        assert (await asyncio.to_thread(fetch, f"{url}/healthz"))[0] == 200
    finally:
        process.send_signal(signal.SIGTERM)
        _, raw = await process.communicate()
    assert process.returncode == 0
    log = raw.decode()
    assert log.count("no GPU can be read") == 1
    assert "Traceback" not in log


def test_the_document_tells_every_metric_of_the_page(bench: Any, mig_class: Any) -> None:
    text = (Path(__file__).parents[2] / "docs" / "gpu-agent.md").read_text()
    documented = set(re.findall(r"^\| `(warmroute_\w+)(?:\{[\w,]+\})?` \|", text, flags=re.MULTILINE))
    reading = bench.sample()
    bench.registry.register(GpuCollector(lambda: reading, lambda: bench.now))
    exposed = {f"{m.name}_total" if m.type == "counter" else m.name for m in bench.registry.collect()}
    assert documented == exposed
