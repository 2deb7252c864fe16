"""From reports of hosts to endpoints' signals: which GPUs count, whose report, and for how long."""

from __future__ import annotations

from dataclasses import astuple, replace

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.errors import PeerError
from fleet.gpu.faults import FaultEvent
from fleet.gpu.reading import GpuReading, MigSlice, NodeReading
from fleet.settings import SignalSettings
from fleet.settings.weights import FaultSettings
from fleet.signals import SIGNALS
from fleet.wire import gpu_pb2
from testing.signals import load_of
from xds_server.signals.gpu import report_service as gpu_reports
from xds_server.signals.gpu import reports as gpu_module
from xds_server.signals.gpu.columns import signals_of
from xds_server.signals.gpu.report_service import peer_addresses
from xds_server.signals.gpu.reports import GpuBoard
from xds_server.signals.gpu.view import gpu_view

GIB = 2**30
A = GpuReading(
    "GPU-a",
    0,
    memory_used_bytes=72 * GIB,
    memory_total_bytes=80 * GIB,
    utilisation_ratio=0.5,
    temperature_celsius=60.0,
    power_watts=350.0,
    power_limit_watts=700.0,
    clocks_reasons=frozenset({"sw_power_cap"}),
)
B = GpuReading(
    "GPU-b",
    1,
    memory_used_bytes=20 * GIB,
    memory_total_bytes=40 * GIB,
    utilisation_ratio=1.0,
    temperature_celsius=80.0,
    power_watts=380.0,
    power_limit_watts=400.0,
    clocks_reasons=frozenset({"hw_thermal_slowdown"}),
)
CUT = GpuReading(
    "GPU-c",
    2,
    mig_enabled=True,
    mig_slices=(
        MigSlice("MIG-1", 7, memory_used_bytes=1, memory_total_bytes=10),
        MigSlice("MIG-2", 8, memory_used_bytes=9, memory_total_bytes=10),
    ),
)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def board(registry: CollectorRegistry) -> GpuBoard:
    return GpuBoard(SignalSettings(stale_after_seconds=10), FaultSettings(isolated_seconds=300), registry)


def fleet(*endpoints: Endpoint) -> Membership:
    return Membership((Pool("p", endpoints),))


def engine(port: int = 1, node: str = "n", gpus: tuple[str, ...] = (), url: str = "") -> Endpoint:
    return Endpoint(f"10.0.0.1:{port}", "p", node=node, gpus=gpus, gpu_metrics_url=url)


def values(board: GpuBoard, endpoint: Endpoint, now: float = 0.0) -> dict[str, float]:
    return board.signals(fleet(endpoint), now).endpoint_values(0)


def test_several_gpus_become_one_load(board: GpuBoard) -> None:
    board.take("n", (), 1, NodeReading(0.0, (A, B)))
    assert values(board, engine()) == {
        "gpu_memory_used_ratio": 0.9,
        "gpu_memory_total_bytes": 120.0 * GIB,
        "gpu_utilisation_ratio": 0.75,
        "gpu_temperature_celsius": 80.0,
        "gpu_power_ratio": 0.95,
        "gpu_throttled_ratio": 0.5,
        "gpu_health_score": 1.0,
    }
    assert set(values(board, engine())) <= set(SIGNALS)


@pytest.mark.parametrize("gpus", [("1",), ("GPU-b",)])
def test_only_the_gpus_that_an_engine_uses_count(board: GpuBoard, gpus: tuple[str, ...]) -> None:
    board.take("n", (), 1, NodeReading(0.0, (A, B)))
    numbers = values(board, engine(gpus=gpus))
    assert (numbers["gpu_memory_used_ratio"], numbers["gpu_memory_total_bytes"]) == (0.5, 40.0 * GIB)


@pytest.mark.parametrize(
    ("gpus", "fullest"), [(("MIG-1",), 0.1), (("GPU-c/8",), 0.9), ((), 0.9), (("MIG-1", "GPU-a"), 0.9)]
)
def test_slices_of_a_gpu_count_by_their_own_memory(
    board: GpuBoard, gpus: tuple[str, ...], fullest: float
) -> None:
    reading = NodeReading(0.0, (A, CUT)) if "GPU-a" in gpus else NodeReading(0.0, (CUT,))
    board.take("n", (), 1, reading)
    assert values(board, engine(gpus=gpus))["gpu_memory_used_ratio"] == fullest


def test_a_fault_of_a_gpu_is_one_of_its_slices(board: GpuBoard) -> None:
    faulty = replace(CUT, faults=(FaultEvent("xid", "79", 0.0),))
    board.take("n", (), 1, NodeReading(0.0, (faulty,)))
    assert values(board, engine(gpus=("MIG-1",)))["gpu_health_score"] == 0.0


def test_unknown_fields_are_left_out_and_never_0(board: GpuBoard) -> None:
    board.take("n", (), 1, NodeReading(0.0, (GpuReading("GPU-x", 0),)))
    assert values(board, engine()) == {"gpu_health_score": 1.0}


def test_missing_gpu_leaves_the_sum_unknown(board: GpuBoard, registry: CollectorRegistry) -> None:
    board.take("n", (), 1, NodeReading(0.0, (A,)))
    numbers = values(board, engine(gpus=("0", "7")))
    assert "gpu_memory_total_bytes" not in numbers
    assert numbers["gpu_memory_used_ratio"] == 0.9
    assert registry.get_sample_value("warmroute_gpu_unmatched_endpoints") == 1
    assert values(board, engine(gpus=("7",))) == {}
    assert values(board, engine(gpus=("GPU-a",)))
    assert registry.get_sample_value("warmroute_gpu_unmatched_endpoints") == 0


def test_a_lost_gpu_drains_its_endpoint_and_no_other(board: GpuBoard, registry: CollectorRegistry) -> None:
    board.take("n", (), 1, NodeReading(0.0, (A, GpuReading("GPU-b", 1, lost=True))))
    signals = board.signals(fleet(engine(1, gpus=("0",)), engine(2, gpus=("1",))), 0.0)
    assert signals["gpu_health_score"].tolist() == [1.0, 0.0]
    counted = {
        name: registry.get_sample_value("warmroute_gpu_endpoints", {"fault": name})
        for name in ("fine", "transient", "isolated", "drained")
    }
    assert counted == {"fine": 1, "transient": 0, "isolated": 0, "drained": 1}


def test_an_isolation_ends_by_itself_without_a_new_report(board: GpuBoard) -> None:
    faulty = replace(A, faults=(FaultEvent("xid", "94", 100.0),))
    here = engine()
    board.take("n", (), 1, NodeReading(100.0, (faulty,)))
    scores = [values(board, here, now)["gpu_health_score"] for now in (100.0, 399.0, 400.0)]
    assert scores == [0.4, 0.4, 1.0]


def test_signals_are_as_old_as_their_sample(board: GpuBoard) -> None:
    board.take("n", (), 1, NodeReading(95.0, (A,)))
    load = load_of(board.signals(fleet(engine()), 100.0), "10.0.0.1:1")
    assert {signal[1:] for signal in astuple(load) if signal} == {(95.0, "nvml")}


def test_same_table_while_nothing_changes(board: GpuBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = signals_of
    monkeypatch.setattr(gpu_module, "signals_of", lambda *a: made.append(a) or real(*a))
    membership = fleet(*(engine(port) for port in range(1, 11)))
    board.take("n", (), 1, NodeReading(0.0, (A, B)))
    for now in range(10):
        assert not np.isnan(board.signals(membership, float(now))["gpu_health_score"]).any()
    assert len(made) == 10
    board.take("n", (), 1, NodeReading(1.0, (A, B)))
    board.signals(membership, 1.0)
    assert len(made) == 20


def test_host_without_agent_and_fresh_report_is_forgotten(
    board: GpuBoard, registry: CollectorRegistry
) -> None:
    board.take("n", (), 1, NodeReading(0.0, (A,)))
    board.leave("n", 1, 5.0)
    assert values(board, engine(), 14.0)
    assert values(board, engine(), 16.0) == {}
    assert registry.get_sample_value("warmroute_gpu_nodes") == 0


def test_the_end_of_an_older_stream_forgets_nothing(board: GpuBoard) -> None:
    """A restarted agent reports before its broken stream has ended here."""
    board.take("n", (), 1, NodeReading(0.0, (A,)))
    board.take("n", (), 2, NodeReading(1.0, (A,)))
    board.leave("n", 1, 2.0)
    assert values(board, engine(), 1000.0)


def test_endpoint_without_node_matches_its_agents_address(board: GpuBoard) -> None:
    board.take("host-1", ("10.0.0.1",), 1, NodeReading(0.0, (A,)))
    assert values(board, engine(node="10.0.0.1"))
    assert values(board, engine(node="host-1"))
    assert values(board, engine(node="10.0.0.2")) == {}
    board.take("host-1", ("10.0.0.9",), 2, NodeReading(0.0, (A,)))
    assert values(board, engine(node="10.0.0.1")) == {}


@pytest.mark.parametrize(
    ("peer", "hosts"),
    [
        ("ipv4:10.0.0.3:5000", ("10.0.0.3",)),
        ("ipv6:%5B2001:db8::1%5D:5000", ("2001:db8::1",)),
        ("ipv6:[2001:db8::1]:5000", ("2001:db8::1",)),
        ("ipv4:127.0.0.1:5000", ("127.0.0.1", "::1")),
        ("unix:/run/x.sock", ("127.0.0.1", "::1")),
        ("unix:", ("127.0.0.1", "::1")),
        ("vsock:3:4", ()),
        ("ipv4:", ()),
        ("", ()),
    ],
)
def test_where_an_agent_reports_from(peer: str, hosts: tuple[str, ...]) -> None:
    assert peer_addresses(peer) == hosts


def test_fresh_agent_with_gpus_goes_before_a_page(board: GpuBoard) -> None:
    here = engine(url="http://x/metrics")
    page = replace(A, memory_used_bytes=8 * GIB)
    board.take_page("http://x/metrics", NodeReading(20.0, (page,)))
    assert values(board, here, 20.0)["gpu_memory_used_ratio"] == 0.1
    board.take("n", (), 1, NodeReading(15.0, (A,)))
    assert values(board, here, 20.0)["gpu_memory_used_ratio"] == 0.9
    assert values(board, here, 26.0)["gpu_memory_used_ratio"] == 0.1
    board.take("n", (), 1, NodeReading(26.0, (), "no library"))
    assert values(board, here, 26.0)["gpu_memory_used_ratio"] == 0.1


def test_hosts_are_bounded(board: GpuBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_module, "MAX_NODES", 2)
    for node in ("a", "b", "a"):
        board.take(node, (), 1, NodeReading(0.0, (A,)))
    with pytest.raises(PeerError):
        board.take("c", (), 1, NodeReading(0.0, (A,)))


def test_a_host_that_has_left_makes_room_for_another(
    board: GpuBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_module, "MAX_NODES", 2)
    board.take("a", (), 1, NodeReading(0.0, (A,)))
    board.take("b", (), 2, NodeReading(0.0, (A,)))
    board.leave("b", 2, 1.0)
    board.take("c", (), 3, NodeReading(0.0, (A,)))
    assert set(board.readings()) == {"a", "c"}


def test_hosts_that_have_left_make_room_for_bytes(board: GpuBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """As few as needed, in the order in which they left."""
    monkeypatch.setattr(gpu_module, "MAX_KEPT_BYTES", 100)
    for stream, (node, size) in enumerate((("a", 40), ("b", 30), ("c", 30))):
        board.take(node, (), stream, NodeReading(0.0, (A,)), size)
    board.leave("b", 1, 2.0)
    board.leave("a", 0, 1.0)
    board.take("d", (), 3, NodeReading(0.0, (A,)), 40)
    assert (set(board.readings()), board.reading_bytes) == ({"b", "c", "d"}, 100)
    with pytest.raises(PeerError):
        board.take("e", (), 4, NodeReading(0.0, (A,)), 31)
    assert set(board.readings()) == {"b", "c", "d"}
    board.take("c", (), 2, NodeReading(0.0, (A,)), 60)
    assert (set(board.readings()), board.reading_bytes) == ({"c", "d"}, 100)


def test_only_other_faults_wake_the_tick(board: GpuBoard) -> None:
    calls: list[None] = []
    board.take("n", (), 1, NodeReading(0.0, (A,)))
    board.on_change = lambda: calls.append(None)
    board.take("n", (), 1, NodeReading(1.0, (replace(A, utilisation_ratio=0.1),)))
    assert calls == []
    board.take("n", (), 1, NodeReading(2.0, (replace(A, faults=(FaultEvent("xid", "79", 2.0),)),)))
    assert len(calls) == 1


def test_changed_settings_rate_again(board: GpuBoard) -> None:
    here, faulty = engine(), replace(A, faults=(FaultEvent("xid", "94", 0.0),))
    board.take("n", (), 1, NodeReading(0.0, (faulty,)))
    assert values(board, here, 100.0)["gpu_health_score"] == 0.4
    board.reconfigure(SignalSettings(), FaultSettings(isolated_seconds=50))
    assert values(board, here, 100.0)["gpu_health_score"] == 1.0


def test_the_view_is_plain_data_with_a_cause_and_no_secret(board: GpuBoard) -> None:
    faulty = replace(A, faults=(FaultEvent("xid", "79", 3.0),))
    board.take("n", (), 1, NodeReading(4.0, (faulty, CUT), "", "580"))
    board.take_page("http://user:secret@x:9400/metrics?token=secret", NodeReading(4.0, (B,)))
    text = msgspec.json.encode(gpu_view(board.readings(), 5.0, FaultSettings()))
    assert b"secret" not in text
    node, page = msgspec.json.decode(text)
    assert (node["node"], node["source"], node["age_seconds"]) == ("n", "nvml", 1.0)
    assert node["gpus"][0]["health_score"] == 0.0
    assert node["gpus"][0]["health_cause"] == "XID 79: the GPU is not reachable over PCIe"
    assert node["gpus"][0]["faults"][0]["age_seconds"] == 2.0
    assert node["gpus"][1]["mig_slices"][1]["uuid"] == "MIG-2"
    assert page["node"] == "x:9400/metrics"


def test_more_memory_in_use_than_there_is_is_unknown(board: GpuBoard) -> None:
    senseless = replace(A, memory_used_bytes=2**63, memory_total_bytes=10, utilisation_ratio=50.0)
    board.take("n", (), 1, NodeReading(0.0, (senseless,)))
    signals = values(board, engine())
    assert "gpu_memory_used_ratio" not in signals
    assert "gpu_utilisation_ratio" not in signals
    assert signals["gpu_power_ratio"] == 0.5


@pytest.mark.parametrize("node", ["", "n" * 257, "host-7\nA FORGED LINE", "host\x1b[31m", "host\u2028"])
def test_a_node_that_does_not_belong_into_a_log_is_refused(node: str) -> None:
    with pytest.raises(PeerError):
        gpu_reports._node(gpu_pb2.GpuReport(node=node))
    assert gpu_reports._node(gpu_pb2.GpuReport(node="host-7.rack 2")) == "host-7.rack 2"
