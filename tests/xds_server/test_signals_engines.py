"""Every kind's page to numbers, and the kind from the page. Pages are in `data/`; its README says whence."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.settings import SignalSettings
from fleet.settings.pools import EngineKind
from fleet.signals import SIGNALS
from xds_server.signals.scrape.engines import ENGINES, reader_of
from xds_server.signals.scrape.llama_cpp import read_slots
from xds_server.signals.scrape.reader import AutoReader, kind_of

DATA = Path(__file__).parent / "data"
PAGES = {
    "vllm": "../../../bench/data/vllm-metrics.txt",
    "sglang": "sglang-metrics.txt",
    "tensorrt-llm": "tensorrt-llm-metrics.txt",
    "triton": "triton-metrics.txt",
    "tgi": "tgi-metrics.txt",
    "tei": "tei-metrics.txt",
    "nim": "nim-metrics.txt",
    "llama.cpp": "llama.cpp-metrics.txt",
}
ADDRESS = "127.0.0.1:8000"
SLOTS = (DATA / "llama.cpp-slots.json").read_bytes()


def page_of(kind: str) -> bytes:
    return (DATA / PAGES[kind]).read_bytes()


def doubled(page: bytes) -> bytes:
    """The page after as much work again: counters and buckets twice as high, gauges as they were."""
    endings = rb"_total|_bucket|_sum|_count|_success|_failure"
    counter = re.compile(rb"(?m)^(\S+(?:" + endings + rb")(?:\{[^}]*\})?|\S*iteration_counter\S*) (\S+)$")
    gauges = (b"nv_inference_pending_request_count",)

    def twice(line: re.Match[bytes]) -> bytes:
        if line[1].startswith(gauges):
            return line[0]
        return line[1] + b" " + str(float(line[2]) * 2).encode()

    return counter.sub(twice, page)


def after_work(kind: str, page: bytes | None = None, second: bytes | None = None) -> dict[str, float]:
    """What a reader tells from a page and, two seconds later, the page after as much work again."""
    page = page_of(kind) if page is None else page
    reader = reader_of(kind, ADDRESS, SignalSettings())
    reader.read(page, 10.0, second)
    return dict(reader.read(doubled(page), 12.0, second))


def test_every_kind_of_the_settings_can_be_read() -> None:
    assert set(get_args(EngineKind)) == {"auto", *ENGINES}


@pytest.mark.parametrize("kind", ENGINES)
def test_a_table_reads_signals(kind: str) -> None:
    table = ENGINES[kind]
    assert set(table.fields) <= set(SIGNALS)
    assert table.optional <= set(table.fields)
    assert "queue_depth" in table.fields
    assert "progress_total" in table.fields


def test_sglang() -> None:
    """Tensor ranks repeat one another, data-parallel ones add up, and priorities are parts of their sum."""
    numbers = after_work("sglang")
    progress = numbers.pop("progress_total")
    assert progress > 0
    assert numbers == pytest.approx(
        {
            "memory_used_ratio": 0.75,
            "queue_depth": 12,
            "running": 7,
            "latency_p50_seconds": 0.1,
            "latency_p99_seconds": 0.1 + 0.9 * 0.98,
            "prefix_hit_ratio": 900 / 2500,
            "kv_capacity_tokens": 200_000,
            "prefill_tokens_per_second": 100,
            "prefilling_mean": 5,
            "first_tokens_total": 20,
            "first_token_seconds_total": 10,
            "prompt_tokens_per_second": 1250,
            "generation_tokens_per_second": 200,
            "prompt_tokens_mean": 250,
            "generation_tokens_mean": 30,
        }
    )


def test_sglang_without_realtime_counters_and_other_prefix() -> None:
    lines = [line for line in page_of("sglang").splitlines() if b"realtime" not in line]
    page = b"\n".join(lines).replace(b"sglang:", b"sglang_")
    numbers = after_work("sglang", page)
    assert numbers["generation_tokens_per_second"] == 150
    assert numbers["queue_depth"] == 12
    assert "prefill_tokens_per_second" not in numbers


def test_sglang_hit_rate_without_cached_tokens() -> None:
    lines = [line for line in page_of("sglang").splitlines() if b"cached_tokens" not in line]
    assert after_work("sglang", b"\n".join(lines))["prefix_hit_ratio"] == 0.5


def test_sglangs_progress_moves_while_a_request_decodes() -> None:
    """Tokens of requests are counted at their end: only what is in use shows that an answer grows."""
    reader = reader_of("sglang", ADDRESS, SignalSettings())
    before = reader.read(page_of("sglang"), 1.0)["progress_total"]
    later = page_of("sglang").replace(b"} 75000.0", b"} 75040.0")
    assert reader.read(later, 2.0)["progress_total"] == before + 40


def test_tensorrt_llm() -> None:
    numbers = after_work("tensorrt-llm")
    assert numbers.pop("progress_total") > 0
    assert numbers == pytest.approx(
        {
            "memory_used_ratio": 0.5,
            "queue_depth": 7,
            "running": 3,
            "latency_p50_seconds": 0.1,
            "latency_p99_seconds": 0.1 + 0.9 * 0.98,
            "prefix_hit_ratio": 0.25,
            "kv_capacity_tokens": 32_000,
            "batch_limit": 64,
        }
    )


def test_tensorrt_llm_without_the_prefix() -> None:
    numbers = after_work("tensorrt-llm", (DATA / "tensorrt-llm-1.1-metrics.txt").read_bytes())
    assert numbers == pytest.approx(
        {
            "latency_p50_seconds": 0.1,
            "latency_p99_seconds": 0.1 + 0.9 * 0.98,
            "progress_total": 2 * (10 + 90 + 10),
        }
    )


def test_triton() -> None:
    """GPUs are paired by their UUID, milliseconds become seconds."""
    numbers = after_work("triton")
    assert numbers.pop("progress_total") > 0
    assert numbers == pytest.approx(
        {
            "memory_used_ratio": 0.4875,
            "queue_depth": 7,
            "running": 3,
            "latency_p50_seconds": 0.1,
            "latency_p99_seconds": 0.1 + 0.9 * 0.98,
            "kv_capacity_tokens": 6239 * 64,
            "batch_limit": 512,
            "gpu_memory_used_ratio": 0.75,
            "gpu_memory_total_bytes": 120e9,
            "gpu_utilisation_ratio": 0.75,
            "gpu_power_ratio": 0.75,
        }
    )


def test_triton_with_another_backend_tells_its_own_queue(caplog: pytest.LogCaptureFixture) -> None:
    lines = [line for line in page_of("triton").splitlines() if line.startswith(b"nv_inference_")]
    numbers = after_work("triton", b"\n".join(lines))
    assert numbers["queue_depth"] == 3
    assert set(numbers) == {"queue_depth", "latency_p50_seconds", "latency_p99_seconds", "progress_total"}
    assert not caplog.records


def test_a_gpu_without_a_partner_makes_the_share_unknown() -> None:
    page = page_of("triton").replace(b'nv_gpu_memory_used_bytes{gpu_uuid="GPU-b"}', b"x")
    assert "gpu_memory_used_ratio" not in after_work("triton", page)


def test_tgi() -> None:
    numbers = after_work("tgi")
    assert numbers.pop("progress_total") > 0
    assert numbers == pytest.approx(
        {
            "queue_depth": 7,
            "running": 3,
            "prompt_tokens_per_second": 1500,
            "generation_tokens_per_second": 250,
            "prompt_tokens_mean": 300,
            "prompt_tokens_variance": 250**2,
            "generation_tokens_mean": 50,
        }
    )


def test_tei() -> None:
    numbers = after_work("tei")
    assert numbers.pop("progress_total") > 0
    assert numbers == pytest.approx(
        {
            "queue_depth": 7,
            "prompt_tokens_per_second": 1500,
            "prompt_tokens_mean": 300,
            "prompt_tokens_variance": 250**2,
        }
    )


def test_nim_has_vllms_names_without_a_prefix() -> None:
    numbers = after_work("nim")
    assert numbers.pop("progress_total") == 2 * (1000 + 100 + 10)
    assert numbers == pytest.approx(
        {
            "memory_used_ratio": 0.97,
            "queue_depth": 60,
            "running": 7,
            "latency_p50_seconds": 0.1,
            "latency_p99_seconds": 0.1 + 0.9 * 0.98,
            "prompt_tokens_per_second": 500,
            "generation_tokens_per_second": 50,
            "prompt_tokens_mean": 100,
            "prompt_tokens_variance": 250**2,
            "generation_tokens_mean": 10,
            "batch_limit": 256,
            "first_tokens_total": 20,
            "first_token_seconds_total": 6,
        }
    )


@pytest.mark.parametrize("prefix", [b"ray_vllm_", b"ray_vllm:"])
def test_ray_serves_page_reads_as_vllms(prefix: bytes) -> None:
    page = re.sub(rb"(?m)^vllm:", prefix, page_of("vllm"))
    assert kind_of(ENGINES, page) == "vllm"
    assert after_work("vllm", page) == after_work("vllm")


def test_llama_cpp_with_its_slots() -> None:
    """Tokens of idle slots take no place: what they hold is free to be taken."""
    numbers = after_work("llama.cpp", second=SLOTS)
    assert numbers.pop("progress_total") > 0
    assert numbers == pytest.approx(
        {
            "memory_used_ratio": (1000 + 24 + 2048) / (4 * 4096),
            "kv_capacity_tokens": 4 * 4096,
            "batch_limit": 4,
            "queue_depth": 7,
            "running": 3,
            "prefix_hit_ratio": 0.25,
            "prefill_tokens_per_second": 3000 / 10.5,
            "prefilling_mean": 10.5 / 2,
            "prompt_tokens_per_second": 2000,
            "generation_tokens_per_second": 250,
        },
        rel=1e-3,
    )


@pytest.mark.parametrize("slots", [None, b"", b"{}", b'{"error":{"code":501}}', b"[1]", b"\xff"])
def test_llama_cpp_without_readable_slots_is_read_by_its_page(
    slots: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = after_work("llama.cpp", second=slots)
    assert numbers["queue_depth"] == 7
    assert not {"memory_used_ratio", "batch_limit", "kv_capacity_tokens"} & set(numbers)
    assert len([record for record in caplog.records if "slots" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        (b"[]", (None, None, None)),
        (b'[{"n_ctx":100,"is_processing":false}]', (0.0, 100, 1)),
        (b'[{"n_ctx":100,"is_processing":true}]', (None, 100, 1)),  # an old build tells no tokens
        (b'[{"is_processing":true,"n_prompt_tokens":5}]', (None, None, 1)),
        (
            b'[{"n_ctx":100,"is_processing":true,"n_prompt_tokens":20,"next_token":{"n_decoded":5}}]',
            (0.25, 100, 1),
        ),
        (b'[{"n_ctx":10,"is_processing":true,"n_prompt_tokens":20}]', (1.0, 10, 1)),
    ],
)
def test_slots_of_other_builds(slots: bytes, expected: tuple[float | None, ...]) -> None:
    numbers = read_slots(slots)
    assert (numbers["memory_used_ratio"], numbers["kv_capacity_tokens"], numbers["batch_limit"]) == expected


@pytest.mark.parametrize("kind", ENGINES)
def test_marks_recognise_a_page_that_reads_without_warning(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    slots = SLOTS if kind == "llama.cpp" else None
    auto = AutoReader(ENGINES, ADDRESS, SignalSettings())
    assert auto.second_page == ""
    auto.read(page_of(kind), 10.0)  # nobody knew yet that there are slots to ask for
    assert auto.kind == kind
    assert auto.second_page == ENGINES[kind].second_page
    assert auto.read(doubled(page_of(kind)), 12.0, slots) == after_work(kind, second=slots)
    assert not caplog.records


@pytest.mark.parametrize(
    "page",
    [
        (DATA / "tensorrt-llm-1.1-metrics.txt").read_bytes(),
        b"sglang_router_requests_total 1\n",
        b"vllm:prompt_tokens_total 1\n",
    ],
)
def test_page_without_queue_and_memory_is_of_no_kind(page: bytes) -> None:
    """Its names are of several kinds, or of a router's."""
    assert kind_of(ENGINES, page) == ""


def test_another_engine_at_an_address_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    auto = AutoReader(ENGINES, ADDRESS, SignalSettings())
    auto.read(page_of("sglang"), 0.0)
    auto.read(doubled(page_of("sglang")), 1.0)
    load = auto.read(page_of("tgi"), 2.0)
    assert auto.kind == "tgi"
    assert load["queue_depth"] == 7
    assert "prompt_tokens_per_second" not in load
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert [text.rpartition(" ")[2] for text in messages] == ["sglang", "tgi"]


def test_the_kind_stays_while_its_marks_are_there() -> None:
    """A page that two kinds match (Triton with vLLM inside) does not flip between them."""
    auto = AutoReader(ENGINES, ADDRESS, SignalSettings())
    auto.read(page_of("triton"), 0.0)
    auto.read(page_of("vllm") + page_of("triton"), 1.0)
    assert auto.kind == "triton"


@pytest.mark.parametrize(
    "page", [b"", b"<html></html>", b"# HELP vllm:x y\nprocess_cpu_seconds_total 1\n", b"[{}]"]
)
def test_a_page_of_no_kind_is_unknown_with_one_warning(page: bytes, caplog: pytest.LogCaptureFixture) -> None:
    auto = AutoReader(ENGINES, ADDRESS, SignalSettings())
    for second in range(5):
        assert auto.read(page, float(second)) == {}
    assert len(caplog.records) == 1
    assert ADDRESS in caplog.records[0].getMessage()
    assert auto.read(page_of("vllm"), 6.0)["queue_depth"] == 0


def as_openmetrics(page: bytes) -> bytes:
    """The page with a timestamp on each line, `_created` series and the end mark of OpenMetrics."""
    lines = []
    for line in page.splitlines():
        if not line or line.startswith(b"#"):
            lines.append(line)
            continue
        lines.append(line + b" 1700000000.123")
        name = line.split(b"{")[0].split(b" ")[0]
        if name.endswith(b"_total"):
            lines.append(name.removesuffix(b"_total") + b"_created 1.7e9 1700000000.123")
    return b"\n".join([*lines, b"# EOF", b""])


@pytest.mark.parametrize("kind", ENGINES)
def test_openmetrics_tells_the_same(kind: str) -> None:
    reader = reader_of(kind, ADDRESS, SignalSettings())
    reader.read(as_openmetrics(page_of(kind)), 10.0, SLOTS)
    numbers = reader.read(as_openmetrics(doubled(page_of(kind))), 12.0, SLOTS)
    assert numbers == after_work(kind, second=SLOTS)
    assert reader.malformed_lines == 0


@pytest.mark.parametrize("senseless", [b"NaN", b"+Inf", b"-Inf", b"-1", b"many"])
@pytest.mark.parametrize("kind", ENGINES)
def test_senseless_numbers_are_unknown(kind: str, senseless: bytes) -> None:
    page = re.sub(rb"(?m)^([^#\n]\S*) \S+$", rb"\1 " + senseless, page_of(kind))
    reader = reader_of(kind, ADDRESS, SignalSettings())
    for second in range(3):
        load = reader.read(page, float(second))
        # A capacity may stand in labels; of numbers that stand still, a rate is rightly 0.
        assert {name for name, value in load.items() if value} <= {"kv_capacity_tokens", "prefix_caching"}
        assert "queue_depth" not in load
        assert "progress_total" not in load


@pytest.mark.parametrize(
    ("ratio", "memory"), [(b"0.97", 0.97), (b"1.0000001", 1.0), (b"1.5", None), (b"70", None)]
)
def test_more_than_a_whole_is_unknown(ratio: bytes, memory: float | None) -> None:
    """An engine that tells a percentage must not make its peers' mean of memory a senseless number."""
    reader = reader_of("vllm", ADDRESS, SignalSettings())
    assert reader.read(b"vllm:kv_cache_usage_perc " + ratio, 0.0).get("memory_used_ratio") == memory


@pytest.mark.parametrize("kind", ENGINES)
@given(cuts=st.lists(st.tuples(st.integers(0, 6000), st.binary(max_size=8)), max_size=6))
def test_no_page_raises_and_every_value_is_finite(kind: str, cuts: list[tuple[int, bytes]]) -> None:
    reader = reader_of(kind, ADDRESS, SignalSettings())
    for second, page in enumerate((page_of(kind), doubled(page_of(kind)))):
        for place, noise in cuts:
            page = page[:place] + noise + page[place + len(noise) + 1 :]
        numbers = reader.read(page, float(second), SLOTS)
        assert all(0 <= value < float("inf") for value in numbers.values())


def test_higher_counters_after_a_restart_are_no_work() -> None:
    """Counters that fall start every window again, whatever the engine."""
    for kind in ENGINES:
        reader = reader_of(kind, ADDRESS, SignalSettings())
        reader.read(doubled(page_of(kind)), 0.0)
        numbers = reader.read(page_of(kind), 1.0)
        windowed = {name for name, rule in ENGINES[kind].fields.items() if rule.late}
        assert set(numbers) & windowed <= {"preemptions_per_second"}


def test_the_document_tells_which_engine_tells_what() -> None:
    text = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    kinds = [cell.strip("`") for cell in next(row for row in rows if row[0] == "signal")[1:]]
    documented = {row[0].strip("`"): row[1:] for row in rows if row[0].strip("`") in SIGNALS}
    slots = set(read_slots(SLOTS))
    assert set(kinds) == set(ENGINES)
    for field in SIGNALS:
        cells = dict(zip(kinds, documented.get(field, [""] * len(kinds)), strict=True))
        for kind, table in ENGINES.items():
            cell = "" if field not in table.fields else "some" if field in table.optional else "yes"
            assert cells[kind] == ("slots" if table.second_page and field in slots else cell), (kind, field)
