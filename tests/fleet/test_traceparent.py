"""Trace context as text."""

from __future__ import annotations

import pytest

from fleet.service import traceparent

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("flags", ["00", "01"])
def test_it_is_read_and_written(flags: str) -> None:
    text = GOOD[:-2] + flags
    context = traceparent.parse(text)
    assert context is not None
    assert context.is_remote
    assert context.trace_flags.sampled is (flags == "01")
    assert traceparent.text_of(context) == text


def test_later_version_is_read_by_version_00_fields() -> None:
    context = traceparent.parse("cc" + GOOD[2:] + "-what-the-future-will-bring")
    assert context is not None
    assert traceparent.text_of(context) == GOOD


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        GOOD[:-1],
        GOOD + "0",
        GOOD + "-more",
        "ff" + GOOD[2:],
        GOOD.upper(),
        "00-" + "0" * 32 + GOOD[35:],
        GOOD[:36] + "0" * 16 + "-01",
        GOOD + "\n",
        GOOD.replace("0", "\u0660"),
        "cc" + GOOD[2:] + "-" + "x" * 1000,
    ],
)
def test_invalid_traceparent_is_none(text: str) -> None:
    assert traceparent.parse(text) is None
