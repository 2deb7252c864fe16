"""The page reader: wanted lines only, whatever the rest of the page is."""

from __future__ import annotations

from math import inf, isnan
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.abuse.pages import KINDS
from xds_server.signals.scrape import page as page_module
from xds_server.signals.scrape.page import MAX_READ_LINES, PageError, PageReader

PAGE = (Path(__file__).parent / "data" / "vllm-metrics.txt").read_bytes()


SUFFIXES = ("", "_total", "_bucket", "_sum", "_count")


class Sample(NamedTuple):
    """One line: the full sample name, its labels, its value."""

    name: str
    labels: dict[str, str]
    value: float


class Page(NamedTuple):
    """The lines of one page."""

    samples: list[Sample]
    malformed_lines: int


def read_samples(page: bytes, families: frozenset[str]) -> Page:
    """One page by itself: of `x` also `x_total`, `x_bucket`, `x_sum` and `x_count`, never `x_created`."""
    lines = PageReader(frozenset(name + suffix for name in families for suffix in SUFFIXES)).read(page)
    pairs = zip(lines.series, lines.values, strict=True)
    return Page([Sample(each.name, each.labels, value) for each, value in pairs], lines.malformed_lines)


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


def test_every_line_of_a_name_is_read() -> None:
    page = read_samples(PAGE, frozenset({"vllm:time_to_first_token_seconds", "vllm:num_requests_waiting"}))
    names = [sample.name for sample in page.samples]
    assert names.count("vllm:time_to_first_token_seconds_bucket") == 23
    assert names.count("vllm:num_requests_waiting") == 1  # and not the one by reason
    assert len(names) == 26
    assert page.malformed_lines == 0


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_page_reads_the_same_in_any_slices(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = frozenset({"vllm:time_to_first_token_seconds_bucket", "vllm:num_requests_waiting", "m"})
    pages = [PAGE, PAGE.replace(b"\n", b"\r\n"), b"m 1", b"\n\nm 1\n\n", b"#\nm{ 1\nm 2\nm 3"]
    reader = PageReader(names)
    whole = [reader.read(page) for page in pages]
    monkeypatch.setattr(page_module, "_SLICE_BYTES", size)
    for page, lines in zip(pages, whole, strict=True):
        reader = PageReader(names)
        assert reader.read(page) == lines
        assert reader.read(page) == lines, "the short way"


def test_page_with_too_many_lines_is_not_read() -> None:
    reader = PageReader(frozenset({"m"}))
    assert len(reader.read(b"m 1\n" * MAX_READ_LINES).values) == MAX_READ_LINES
    with pytest.raises(PageError):
        reader.read(b"m 1\n" * (MAX_READ_LINES + 1))
    assert reader.read(b"m 2\n").values == [2.0]


def test_no_expression_gets_a_large_page_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold Python's lock, and with it the loop, whatever thread it runs on."""
    parts: list[int] = []
    slices = page_module._slices

    def noting(page: bytes) -> object:
        parts.extend(end - begin for begin, end in slices(page))
        return slices(page)

    monkeypatch.setattr(page_module, "_slices", noting)
    (page,) = KINDS["many_lines"]()
    with pytest.raises(PageError):
        read_samples(page, frozenset({"vllm:num_requests_running"}))
    assert sum(parts) == len(page) + 1
    assert max(parts) < len(page) / 10


def test_line_without_end_is_malformed() -> None:
    (page,) = KINDS["long_labels"]()
    read = read_samples(page + b"vllm:num_requests_running 1\n", frozenset({"vllm:num_requests_running"}))
    assert [sample.value for sample in read.samples] == [1.0]
    assert read.malformed_lines == 1
