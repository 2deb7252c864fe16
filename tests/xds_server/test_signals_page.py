"""The page reader: wanted lines only, whatever the rest of the page is."""

from __future__ import annotations

from math import inf, isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds_server.signals.page import Sample, read_samples

PAGE = (Path(__file__).parent / "data" / "vllm-metrics.txt").read_bytes()


def test_a_family_takes_its_samples_and_no_other_metric() -> None:
    page = b"\n".join(
        [
            b"# HELP x words",
            b"# TYPE x counter",
            b'x_total{a="1"} 5',
            b"x_created 1.7e9",
            b"xy 1",
            b"x_by_reason 9",
            b"x 2",
            b'x_bucket{le="+Inf"} 3',
            b"x_sum 4.5",
            b"x_count 3",
            b"# EOF",
        ]
    )
    assert read_samples(page, frozenset({"x"})).samples == [
        Sample("x_total", {"a": "1"}, 5.0),
        Sample("x", {}, 2.0),
        Sample("x_bucket", {"le": "+Inf"}, 3.0),
        Sample("x_sum", {}, 4.5),
        Sample("x_count", {}, 3.0),
    ]


def test_a_full_sample_name_takes_that_sample_only() -> None:
    page = b"x_sum 4.5\nx_count 3\nx_total 1\n"
    assert read_samples(page, frozenset({"x_sum"})).samples == [Sample("x_sum", {}, 4.5)]


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        (b'm{a="1",b="2"} 3', {"a": "1", "b": "2"}, 3.0),
        (b'm{a="1",} 3 1700000000000', {"a": "1"}, 3.0),
        (b'm{a="1"} 3 1700000000.123', {"a": "1"}, 3.0),
        (b"m\t 3e-2  -1", {}, 0.03),
        (b"m{} 3\r", {}, 3.0),
        (b'm{a="say \\"hi\\"",b="c:\\\\d\\n"} 1', {"a": 'say "hi"', "b": "c:\\d\n"}, 1.0),
        (b'm{a="} 7",b="x,y=\\"z\\""} 1', {"a": "} 7", "b": 'x,y="z"'}, 1.0),
        (b'm_bucket{le="0.5"} 8 # {trace_id="abc"} 0.4 1.7e9', {"le": "0.5"}, 8.0),
        (b'm{a = "1" , b="2"} 3', {"a": "1", "b": "2"}, 3.0),
        (b'm{a="\xff"} 3', {"a": "\N{REPLACEMENT CHARACTER}"}, 3.0),
        (b"m +Inf", {}, inf),
        (b"m -Inf", {}, -inf),
    ],
)
def test_legal_lines_are_read(line: bytes, labels: dict[str, str], value: float) -> None:
    page = read_samples(b"other 1\n" + line + b"\n# EOF\n", frozenset({"m"}))
    assert [(sample.labels, sample.value) for sample in page.samples] == [(labels, value)]
    assert page.malformed_lines == 0


def test_nan_is_kept_as_nan() -> None:
    (sample,) = read_samples(b"m NaN", frozenset({"m"})).samples
    assert isnan(sample.value)


@pytest.mark.parametrize(
    "line",
    [
        b"m",
        b"m ",
        b"m one",
        b'm{a="1" 3',
        b'm{a="1} 3',
        b"m{a=1} 3",
        b"m 1_0",
        b"m 1 2 3",
        b'm{a="1"b="2"} 3',
    ],
)
def test_illegal_lines_are_skipped_and_counted(line: bytes) -> None:
    page = read_samples(b"m 1\n" + line + b"\nm 2\n", frozenset({"m"}))
    assert [sample.value for sample in page.samples] == [1.0, 2.0]
    assert page.malformed_lines == 1


@given(st.binary(max_size=300))
def test_no_bytes_raise(garbage: bytes) -> None:
    read_samples(garbage, frozenset({"m"}))
    read_samples(b"m" + garbage, frozenset({"m"}))
    read_samples(b"m{" + garbage, frozenset({"m"}))
    read_samples(b'm{a="' + garbage + b'"} 1', frozenset({"m"}))


def test_an_engines_page_gives_each_wanted_line() -> None:
    page = read_samples(PAGE, frozenset({"vllm:time_to_first_token_seconds", "vllm:num_requests_waiting"}))
    names = [sample.name for sample in page.samples]
    assert names.count("vllm:time_to_first_token_seconds_bucket") == 23
    assert names.count("vllm:num_requests_waiting") == 1  # and not the one by reason
    assert len(names) == 26
    assert page.malformed_lines == 0
