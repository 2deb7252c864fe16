"""The DCGM exporter's page: units, blanks, MIG, and faults out of what changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.gpu.faults import FaultEvent, health
from fleet.gpu.reading import GpuReading, MigSlice, RemappedRows
from fleet.settings import LimitSettings, SignalSettings
from fleet.settings.weights import FaultSettings
from testing.signals import load_of
from xds_server.signals.gpu.dcgm import MIB, DcgmPoller, DcgmReader
from xds_server.signals.gpu.reports import GpuBoard

PAGE = (Path(__file__).parent / "data" / "dcgm-metrics.txt").read_bytes()
AT = b'gpu="0",UUID="GPU-aa"'


def first(*lines: bytes, reader: DcgmReader | None = None, now: float = 0.0) -> GpuReading:
    """The one GPU of a page made of `NAME VALUE` lines."""
    page = b"\n".join(
        b"%s{%s} %s" % (*line.rsplit(b" ", 1)[:1], AT, line.rsplit(b" ", 1)[1]) for line in lines
    )
    return (reader or DcgmReader()).read(page, now).gpus[0]


def test_a_page_gives_what_an_agent_gives() -> None:
    reading = DcgmReader().read(PAGE, 5.0)
    gpu, cut = reading.gpus
    assert reading.sampled_at == 5.0
    assert gpu == GpuReading(
        uuid="GPU-aa",
        index=0,
        name="NVIDIA H100 80GB HBM3",
        memory_used_bytes=60_000 * MIB,  # what is reserved is not to be had either
        memory_total_bytes=80_000 * MIB,
        utilisation_ratio=0.75,
        temperature_celsius=61.0,
        power_watts=350.121,
        remapped_rows=RemappedRows(0, 0, pending=False, failed=False),
    )
    assert cut.utilisation_ratio == pytest.approx(0.5)  # GPU_UTIL is missing under MIG
    assert cut.mig_slices == (
        MigSlice("", 7, "1g.10gb", 9000 * MIB, 10_000 * MIB),
        MigSlice("", 2, "3g.40gb", 10_000 * MIB, 40_000 * MIB),
    )
    assert (cut.memory_used_bytes, cut.temperature_celsius, cut.mig_enabled) == (None, 55.0, True)


def test_a_gpu_that_is_cut_tells_nothing_of_its_slices_work() -> None:
    """DCGM may say 0 of the whole GPU while its slices work."""
    whole = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-x"} 0\n'
    cut = b'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-x",GPU_I_PROFILE="1g.10gb",GPU_I_ID="3"} 9000\n'
    active = b'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-x",GPU_I_ID="3"} 0.5\n'
    assert DcgmReader().read(whole, 0.0).gpus[0].utilisation_ratio == 0.0
    assert DcgmReader().read(whole + cut, 0.0).gpus[0].utilisation_ratio is None
    assert DcgmReader().read(whole + cut + active, 0.0).gpus[0].utilisation_ratio == 0.5


@pytest.mark.parametrize(
    "blank",
    [b"9223372036854775794", b"9.223372036854776e+18", b"2147483632", b"140737488355328", b"NaN", b"-1"],
)
def test_a_blank_is_unknown(blank: bytes) -> None:
    gpu = first(b"DCGM_FI_DEV_GPU_TEMP " + blank, b"DCGM_FI_DEV_GPU_UTIL 3")
    assert gpu.temperature_celsius is None
    assert gpu.utilisation_ratio == 0.03


def test_names_of_newer_releases_are_read() -> None:
    gpu = first(
        b"DCGM_FI_DEV_GPU_TEMP_CELSIUS 60",
        b"DCGM_FI_DEV_BOARD_POWER_WATTS 300",
        b"DCGM_FI_DEV_ENFORCED_POWER_LIMIT 700",
        b"DCGM_FI_DEV_GPU_UTIL_RATIO 0.5",
        b"DCGM_FI_DEV_CLOCKS_EVENT_REASONS 72",
    )
    assert (gpu.temperature_celsius, gpu.power_watts, gpu.power_limit_watts) == (60, 300, 700)
    assert gpu.utilisation_ratio == 0.5
    assert gpu.clocks_reasons == {"hw_slowdown", "hw_thermal_slowdown"}


def test_last_xid_is_a_fault_when_it_changes_until_it_is_0() -> None:
    reader = DcgmReader()

    def xid(code: int, now: float) -> tuple[FaultEvent, ...]:
        return first(b"DCGM_FI_DEV_XID_ERRORS %d" % code, reader=reader, now=now).faults

    assert xid(0, 1.0) == ()
    assert xid(31, 2.0) == (FaultEvent("xid", "31", 2.0, 1),)
    assert xid(31, 3.0) == (FaultEvent("xid", "31", 2.0, 1),)
    assert [f.code for f in xid(79, 4.0)] == ["31", "79"]
    assert xid(0, 5.0) == ()


def test_of_what_the_first_page_shows_only_a_drain_is_taken() -> None:
    """Nobody knows how old it is: a restart of xds_server must not isolate half a fleet."""
    assert first(b"DCGM_FI_DEV_XID_ERRORS 94").faults == ()
    assert [f.code for f in first(b"DCGM_FI_DEV_XID_ERRORS 79").faults] == ["79"]


def test_growth_of_uncorrected_errors_is_a_fault() -> None:
    reader = DcgmReader()
    scores = []
    for count in (4, 4, 5):
        gpu = first(b"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL %d" % count, reader=reader, now=1.0)
        scores.append(health(gpu.events(1.0), 1.0, FaultSettings()).score)
    assert scores == [1.0, 1.0, 0.4]


def test_a_failed_remap_drains() -> None:
    gpu = first(b"DCGM_FI_DEV_ROW_REMAP_FAILURE 1")
    assert health(gpu.events(0.0), 0.0, FaultSettings()).score == 0.0


@given(st.binary(max_size=300), st.integers(0, len(PAGE)))
def test_no_page_raises(noise: bytes, place: int) -> None:
    DcgmReader().read(PAGE[:place] + noise + PAGE[place:], 0.0)


async def test_each_page_is_read_once_however_many_endpoints_name_it() -> None:
    hits: dict[str, int] = {"/a": 0, "/b": 0}

    async def serve(request: web.Request) -> web.Response:
        hits[request.path] += 1
        return web.Response(body=PAGE, status=200 if request.path == "/a" else 500)

    application = web.Application()
    application.router.add_get("/{name}", serve)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    registry = CollectorRegistry()
    signals = SignalSettings(scrape_interval_seconds=4.0, scrape_timeout_seconds=60.0)
    board = GpuBoard(signals, FaultSettings(), registry)
    poller = DcgmPoller(board, signals, LimitSettings(), registry, lambda: 7.0)
    names = ["a"] * 5 + ["b"]
    endpoints = tuple(
        Endpoint(f"10.0.0.{i}:80", "p", gpu_metrics_url=f"http://127.0.0.1:{port}/{name}")
        for i, name in enumerate(names)
    )
    membership = Membership((Pool("p", endpoints),))
    poller.update(membership)
    poller.update(membership)
    failed = "warmroute_gpu_page_failures_total"
    for _ in range(1000):
        table = board.signals(membership, 7.0)
        if table.endpoint_values(0) and registry.get_sample_value(failed, {"kind": "http_status"}):
            break
        await asyncio.sleep(0.01)
    assert hits == {"/a": 1, "/b": 1}
    assert [bool(table.endpoint_values(column)) for column in range(6)] == [True] * 5 + [False]
    load = load_of(table, endpoints[0].address)
    assert load.gpu_memory_used_ratio.value == 0.9  # the fullest slice
    assert load.gpu_memory_used_ratio.source == "dcgm"
    poller.update(Membership())
    assert not any(map(board.signals(membership, 7.0).endpoint_values, range(6)))
    await poller.close()
    await runner.cleanup()
