"""GPU reports on the wire: what goes in comes out, and what is too much is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from fleet.errors import PeerError
from fleet.gpu.codec import MAX_GPUS, Part, decode_gpu, decode_report, encode_report, gpus_of
from fleet.gpu.faults import FaultEvent
from fleet.gpu.reading import GpuReading, MigSlice, NodeReading, NvLink, PeerLink, RemappedRows
from fleet.wire import gpu_pb2

FULL = GpuReading(
    uuid="GPU-1",
    index=0,
    name="H100",
    memory_used_bytes=1,
    memory_total_bytes=2**37,
    utilisation_ratio=0.0,
    temperature_celsius=61.0,
    power_watts=0.0,
    power_limit_watts=700.0,
    clocks_reasons=frozenset({"hw_slowdown"}),
    ecc_corrected_total=0,
    ecc_uncorrected_total=2,
    remapped_rows=RemappedRows(0, 0, pending=False, failed=False),
    retirement_pending=False,
    mig_enabled=True,
    mig_slices=(MigSlice("MIG-1", 0, "1g.10gb", 0, 10), MigSlice("MIG-2")),
    nvlinks=(NvLink(0, True, "GPU-2"), NvLink(1, False), NvLink(2)),
    pcie_generation=5,
    pcie_width=16,
    peers=(PeerLink("GPU-2", "NVLINK"),),
    recovery_action="none",
    faults=(FaultEvent("xid", "31", 95.0, 3), FaultEvent("cuda", "2", 90.0)),
    lost=False,
)


def decoded(report: gpu_pb2.GpuReport, now: float) -> NodeReading:
    parts: dict[Part, Part] = {}
    return decode_report(report, [decode_gpu(sent, now, parts) for sent in gpus_of(report)], now)


def test_every_field_comes_back_on_the_other_clock() -> None:
    sent = NodeReading(99.0, (FULL, GpuReading("GPU-2", lost=True)), "", "580.65")
    back = decoded(encode_report("n", sent, 100.0), 5000.0)
    assert back.sampled_at == 4999.0
    assert [fault.at for fault in back.gpus[0].faults] == [4995.0, 4990.0]
    assert decoded(encode_report("n", sent, 100.0), 100.0) == sent


def test_unknown_stays_unknown_and_zero_stays_zero() -> None:
    back = decoded(encode_report("n", NodeReading(0.0, (GpuReading("GPU-1"),)), 0.0), 0.0)
    assert back.gpus == (GpuReading("GPU-1"),)
    none = GpuReading("GPU-1", clocks_reasons=frozenset(), nvlinks=(), peers=(), utilisation_ratio=0.0)
    assert decoded(encode_report("n", NodeReading(0.0, (none,)), 0.0), 0.0).gpus == (none,)


def test_a_host_without_gpus_says_why() -> None:
    sent = NodeReading(0.0, (), "NVML Shared Library Not Found")
    assert decoded(encode_report("n", sent, 0.0), 0.0) == sent


def test_not_finite_is_unknown() -> None:
    report = gpu_pb2.GpuReport(node="n")
    report.gpus.add(uuid="GPU-1", power_watts=math.nan, utilisation_ratio=math.inf)
    gpu = decoded(report, 0.0).gpus[0]
    assert (gpu.power_watts, gpu.utilisation_ratio) == (None, None)


def broken(**fields: Any) -> gpu_pb2.GpuReport:
    return gpu_pb2.GpuReport(node="n", **fields)


@pytest.mark.parametrize(
    "report",
    [
        broken(gpus=[gpu_pb2.Gpu(uuid=f"GPU-{i}") for i in range(MAX_GPUS + 1)]),
        broken(gpus=[gpu_pb2.Gpu()]),
        broken(gpus=[gpu_pb2.Gpu(uuid="GPU-1"), gpu_pb2.Gpu(uuid="GPU-1")]),
        broken(gpus=[gpu_pb2.Gpu(uuid="x" * 1000)]),
        broken(gpus=[gpu_pb2.Gpu(uuid="GPU-1", mig_slices=[gpu_pb2.MigSlice()] * 1000)]),
        broken(gpus=[gpu_pb2.Gpu(uuid="GPU-1", faults=[gpu_pb2.GpuFault(kind="prompt")])]),
        broken(gpus=[gpu_pb2.Gpu(uuid="G", faults=[gpu_pb2.GpuFault(kind="xid", age_seconds=math.nan)])]),
        broken(age_seconds=-1.0),
        broken(age_seconds=math.inf),
        broken(unavailable="x" * 1000),
    ],
)
def test_a_report_that_breaks_the_protocol_is_refused(report: gpu_pb2.GpuReport) -> None:
    with pytest.raises(PeerError):
        decoded(report, 0.0)


def test_equal_parts_of_a_host_are_kept_once() -> None:
    """GPUs of a host have the same links, and most of the same peers."""
    links = tuple(NvLink(number, True, "switch") for number in range(18))
    sent = NodeReading(0.0, tuple(replace(FULL, uuid=f"GPU-{n}", nvlinks=links) for n in range(8)))
    back = decoded(encode_report("n", sent, 100.0), 100.0)
    assert back == sent
    for parts in ([gpu.nvlinks for gpu in back.gpus], [gpu.faults for gpu in back.gpus]):
        assert len({id(part) for of_one in parts for part in of_one or ()}) == len(parts[0] or ())
