"""The reader on a stand-in for NVML that behaves like the real module, faults included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from fleet.gpu.faults import FaultEvent, health
from fleet.gpu.reading import MigSlice, NvLink, PeerLink, RemappedRows
from fleet.settings.weights import FaultSettings

if TYPE_CHECKING:
    from fleet.gpu.reading import GpuReading


def score(gpu: GpuReading, now: float) -> float:
    return health(gpu.events(now), now, FaultSettings()).score


def test_every_field_is_read_in_the_units_that_it_is_named_by(bench: Any) -> None:
    reading = bench.sample()
    assert reading.unavailable == ""
    assert reading.driver_version == "580.65.06"
    gpu = reading.gpus[0]
    assert (gpu.uuid, gpu.index, gpu.name) == ("GPU-a", 0, "NVIDIA H100 80GB HBM3")
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (60 * 2**30, 80 * 2**30)
    assert (gpu.utilisation_ratio, gpu.temperature_celsius) == (0.75, 61.0)
    assert (gpu.power_watts, gpu.power_limit_watts) == (350.0, 700.0)
    assert gpu.clocks_reasons == {"sw_power_cap"}
    assert (gpu.ecc_corrected_total, gpu.ecc_uncorrected_total) == (3, 0)
    assert gpu.remapped_rows == RemappedRows(1, 0, pending=False, failed=False)
    assert gpu.retirement_pending is False
    assert gpu.recovery_action == "none"
    assert (gpu.mig_enabled, gpu.mig_slices) == (False, ())
    assert (gpu.pcie_generation, gpu.pcie_width) == (5, 16)
    assert gpu.peers == (PeerLink("GPU-b", "NODE"),)
    assert score(gpu, bench.now) == 1.0


FIELDS = {
    "nvmlDeviceGetMemoryInfo": ("memory", "memory_used_bytes"),
    "nvmlDeviceGetUtilizationRates": ("utilisation", "utilisation_ratio"),
    "nvmlDeviceGetTemperatureV": ("temperature", "temperature_celsius"),
    "nvmlDeviceGetPowerUsage": ("power", "power_watts"),
    "nvmlDeviceGetEnforcedPowerLimit": ("power_limit", "power_limit_watts"),
    "nvmlDeviceGetCurrentClocksEventReasons": ("clocks_event_reasons", "clocks_reasons"),
    "nvmlDeviceGetTotalEccErrors": ("ecc_uncorrected", "ecc_uncorrected_total"),
    "nvmlDeviceGetRemappedRows": ("remapped_rows", "remapped_rows"),
    "nvmlDeviceGetRetiredPagesPendingStatus": ("retirement_pending", "retirement_pending"),
    "nvmlDeviceGetFieldValues": ("recovery_action", "recovery_action"),
    "nvmlDeviceGetMigMode": ("mig_mode", "mig_enabled"),
    "nvmlDeviceGetCurrPcieLinkWidth": ("pcie", "pcie_width"),
    "nvmlDeviceGetName": ("name", "name"),
    "nvmlDeviceGetNvLinkState": ("nvlink", "nvlinks"),
}


@pytest.mark.parametrize("function", FIELDS)
@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN])
def test_an_error_makes_its_own_field_unknown_and_is_counted(bench: Any, function: str, code: int) -> None:
    whole = bench.sample().gpus[0]
    bench.nvml.failing[function] = code
    bench.reader.close()
    gpu = bench.sample(40).gpus[0]
    counted, name = FIELDS[function]
    assert getattr(gpu, name) is None
    names = [f for f in gpu.__slots__ if getattr(whole, f) is not None]
    assert len([f for f in names if getattr(gpu, f) is None]) <= 2  # memory and ECC are two fields a call
    error = type(pynvml.NVMLError(code)).__name__.removeprefix("NVMLError_")
    assert bench.errors(counted, error) > 0


def test_a_field_that_is_not_supported_is_unknown_and_not_zero(bench: Any) -> None:
    for function in FIELDS:
        bench.nvml.failing[function] = pynvml.NVML_ERROR_NOT_SUPPORTED
    gpu = bench.sample().gpus[0]
    assert (gpu.memory_used_bytes, gpu.utilisation_ratio, gpu.ecc_uncorrected_total) == (None, None, None)
    assert gpu.nvlinks == ()  # NVML says that it has none
    assert gpu.peers == (PeerLink("GPU-b", "NODE"),)
    assert not gpu.lost


def test_older_driver_uses_older_functions(bench: Any) -> None:
    for function in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"):
        bench.nvml.failing[function] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    gpu = bench.sample().gpus[0]
    assert (gpu.temperature_celsius, gpu.clocks_reasons) == (61.0, {"sw_power_cap"})


def test_without_the_library_it_says_why_once_and_tries_again(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bench.nvml.init_error = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    for _ in range(50):
        reading = bench.sample()
        assert reading.gpus == ()
        assert "NVML Shared Library Not Found" in reading.unavailable
    assert len([r for r in caplog.records if "no GPU can be read" in r.message]) == 1
    assert bench.nvml.calls < 10  # with growing pauses
    bench.nvml.init_error = None
    assert [gpu.uuid for gpu in bench.sample(30).gpus] == ["GPU-a", "GPU-b"]


def test_without_the_module_it_says_why(bench: Any) -> None:
    def load() -> Any:
        raise ImportError("No module named 'pynvml'")

    bench.reader._load = load
    assert "pynvml" in bench.sample().unavailable


def test_a_driver_without_gpus_is_looked_at_again(bench: Any) -> None:
    gpus, bench.nvml.gpus = bench.nvml.gpus, []
    assert bench.sample().unavailable == "the driver shows no GPU"
    bench.nvml.gpus = gpus
    assert len(bench.sample(30).gpus) == 2


def test_lost_gpu_is_marked_and_others_are_read(bench: Any) -> None:
    bench.sample()
    bench.nvml.gpus[0].lost = True
    for after in (1, 1, 5, 60, 60):
        lost, well = bench.sample(after).gpus
        assert (lost.uuid, lost.lost, lost.memory_used_bytes) == ("GPU-a", True, None)
        assert score(lost, bench.now) == 0.0
        assert (well.lost, well.utilisation_ratio) == (False, 0.75)
    assert 2 <= bench.nvml.starts <= 5  # restarted, with growing pauses


def test_a_lost_gpu_that_is_back_begins_clean(bench: Any) -> None:
    bench.sample()
    bench.nvml.xid(bench.nvml.gpus[0], 79)
    assert score(bench.sample().gpus[0], bench.now) == 0.0
    bench.nvml.gpus[0].lost = True
    bench.sample()
    bench.nvml.gpus[0].lost = False
    gpu = bench.sample(60).gpus[0]
    assert (gpu.lost, gpu.faults) == (False, ())
    assert score(gpu, bench.now) == 1.0


def test_unloaded_driver_loses_gpus_until_it_returns(bench: Any) -> None:
    bench.sample()
    bench.nvml.xid(bench.nvml.gpus[1], 119)
    bench.sample()
    bench.nvml.init_error = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    reading = bench.sample()
    assert [gpu.lost for gpu in reading.gpus] == [True, True]
    assert "Driver Not Loaded" in reading.unavailable
    bench.nvml.init_error = None
    bench.nvml._initialised = False
    reading = bench.sample(30)
    assert reading.unavailable == ""
    assert [(gpu.lost, gpu.faults) for gpu in reading.gpus] == [(False, ()), (False, ())]


def test_session_lost_by_the_driver_is_restarted(bench: Any) -> None:
    """As after a restart of the driver between two samples: unknown, not lost."""
    bench.sample()
    bench.nvml._initialised = False
    reading = bench.sample()
    assert (reading.gpus, reading.unavailable) == ((), "NVML fails: Uninitialized")
    assert len(bench.sample(2).gpus) == 2


def test_replaced_driver_needs_restart_if_it_worked_before(bench: Any) -> None:
    """The old library stays in this process, however often it is started."""
    bench.nvml.init_error = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    for _ in range(6):
        bench.sample(60)
    assert not bench.reader.needs_restart
    bench.nvml.init_error = None
    bench.sample(60)
    bench.nvml.init_error = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert bench.sample(60).gpus == ()
    assert not bench.reader.needs_restart
    for _ in range(6):
        bench.sample(60)
    assert bench.reader.needs_restart


def test_a_gpu_that_says_nothing_at_all_ends_the_session(bench: Any) -> None:
    bench.sample()
    names = [name for name in dir(type(bench.nvml)) if name.startswith("nvmlDevice")]
    bench.nvml.failing = dict.fromkeys(names, pynvml.NVML_ERROR_UNKNOWN)
    assert bench.sample().unavailable == "NVML fails: Unknown Error"
    bench.nvml.failing = {}
    assert len(bench.sample(2).gpus) == 2


def test_xids_are_counted_and_dated(bench: Any) -> None:
    bench.sample()
    first, second = bench.nvml.gpus
    bench.nvml.xid(first, 31)
    bench.sample()
    bench.nvml.xid(first, 31)
    bench.nvml.xid(second, 63)
    one, other = bench.sample().gpus
    assert one.faults == (FaultEvent("xid", "31", bench.now, 2),)
    assert other.faults == (FaultEvent("xid", "63", bench.now, 1),)
    assert (score(one, bench.now), score(other, bench.now)) == (0.9, 1.0)


def test_many_xids_at_once_do_not_hold_a_sample_up(bench: Any) -> None:
    bench.sample()
    for _ in range(1000):
        bench.nvml.xid(bench.nvml.gpus[0], 31)
    before = bench.nvml.calls
    assert bench.sample().gpus[0].faults[0].times == 64
    assert bench.nvml.calls - before < 200


def test_without_xid_events_everything_else_is_read(bench: Any) -> None:
    bench.nvml.failing["nvmlEventSetCreate"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.sample().gpus[0].utilisation_ratio == 0.75
    assert bench.errors("xid", "NotSupported") == 1


def test_only_growth_of_uncorrected_memory_errors_is_a_fault(bench: Any) -> None:
    gpu = bench.nvml.gpus[0]
    gpu.uncorrected = 5
    assert bench.sample().gpus[0].faults == ()
    gpu.corrected += 100
    assert bench.sample().gpus[0].faults == ()
    gpu.uncorrected = 6
    grown = bench.sample().gpus[0]
    assert [(f.kind, f.code) for f in grown.faults] == [("state", "ecc_uncorrected")]
    assert score(grown, bench.now) == 0.4
    later = bench.sample(301).gpus[0]
    assert score(later, bench.now) == 1.0


def test_states_of_the_memory_count_while_they_last(bench: Any) -> None:
    gpu = bench.nvml.gpus[0]
    gpu.remapped = (0, 1, 1, 0)
    assert score(bench.sample().gpus[0], bench.now) == 0.9
    gpu.remapped = (0, 1, 0, 1)
    assert score(bench.sample().gpus[0], bench.now) == 0.0
    gpu.remapped, gpu.retirement_pending = (0, 0, 0, 0), 1
    assert score(bench.sample().gpus[0], bench.now) == 0.9
    gpu.retirement_pending = 0
    assert score(bench.sample().gpus[0], bench.now) == 1.0


def test_a_recovery_action_drains_until_the_driver_takes_it_back(bench: Any) -> None:
    gpu = bench.nvml.gpus[0]
    bench.sample()
    bench.nvml.xid(gpu, 95)
    gpu.recovery = pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    assert bench.sample().gpus[0].recovery_action == "gpu_reset"
    assert score(bench.sample(10_000).gpus[0], bench.now) == 0.0
    gpu.recovery = pynvml.NVML_GPU_RECOVERY_ACTION_NONE
    assert score(bench.sample().gpus[0], bench.now) == 1.0


def test_an_error_that_asks_for_a_reset_is_a_recovery_action(bench: Any) -> None:
    bench.nvml.failing["nvmlDeviceGetUtilizationRates"] = pynvml.NVML_ERROR_RESET_REQUIRED
    assert bench.sample().gpus[0].recovery_action == "gpu_reset"


def test_mig_slices_have_memory_of_their_own(bench: Any, mig_class: Any) -> None:
    bench.nvml.gpus[0].migs = [mig_class("MIG-1", 7, 9, 10), mig_class("MIG-2", 8, 1, 10)]
    gpu = bench.sample().gpus[0]
    assert gpu.mig_enabled is True
    name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert gpu.mig_slices == (MigSlice("MIG-1", 7, name, 9, 10), MigSlice("MIG-2", 8, name, 1, 10))
    assert gpu.utilisation_ratio is None
    assert bench.errors("utilisation", "NotSupported") == 1


def test_mig_gpu_has_no_utilisation(bench: Any, mig_class: Any) -> None:
    bench.nvml.gpus[0].migs = [mig_class("MIG-1", 7, 9, 10)]
    bench.nvml.nvmlDeviceGetUtilizationRates = lambda _handle: pynvml.c_nvmlUtilization_t(gpu=0)
    assert [gpu.utilisation_ratio for gpu in bench.sample().gpus] == [None, 0.0]


def test_text_that_comes_as_bytes_is_text(bench: Any, mig_class: Any) -> None:
    """Some versions of NVML's module return bytes; UUIDs have to match what the settings name."""
    bench.nvml.gpus[0].migs = [mig_class("MIG-1", 7, 9, 10)]
    for name in ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlSystemGetDriverVersion"):
        original = getattr(bench.nvml, name)
        setattr(bench.nvml, name, lambda *given, original=original: original(*given).encode())
    one, other = bench.sample().gpus
    assert (one.uuid, other.uuid, other.name) == ("GPU-a", "GPU-b", "NVIDIA H100 80GB HBM3")
    assert (one.mig_slices[0].uuid, one.mig_slices[0].name) == ("MIG-1", "NVIDIA H100 80GB HBM3 MIG 1g.10gb")


def test_nvlinks_lead_to_gpus_and_switches(bench: Any) -> None:
    bench.nvml.gpus[0].nvlinks = ["00000000:1b:00.0", "switch", ""]
    bench.nvml.p2p_nvlink = True
    gpu = bench.sample().gpus[0]
    assert gpu.nvlinks == (NvLink(0, True, "GPU-b"), NvLink(1, True, "switch"), NvLink(2, False, None))
    assert gpu.peers == (PeerLink("GPU-b", "NVLINK"),)


@pytest.mark.parametrize(
    ("level", "link"), [("internal", "PIX"), ("multiple", "PXB"), ("hostbridge", "PHB"), ("system", "SYS")]
)
def test_peer_link_has_the_name_of_nvidia_smi(bench: Any, level: str, link: str) -> None:
    bench.nvml.level = level
    assert bench.sample().gpus[0].peers == (PeerLink("GPU-b", link),)


def test_reported_cuda_errors_are_faults_of_their_gpu(bench: Any) -> None:
    bench.sample()
    bench.reader.note_cuda_error("GPU-b", 2)
    bench.reader.note_cuda_error("GPU-nobody", 2)
    one, other = bench.sample().gpus
    assert one.faults == ()
    assert score(other, bench.now) == 0.4


def test_every_function_of_the_double_is_pynvmls(bench: Any) -> None:
    names = [name for name in dir(type(bench.nvml)) if name.startswith("nvml")]
    assert len(names) > 30
    assert [name for name in names if not callable(getattr(pynvml, name, None))] == []
