"""Reads `/stats?format=json`."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from warmroute.doctor.envoy.facts import Stats
from warmroute.doctor.envoy.plain import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

_P99: Final = 99.0


def stats_of(document: object) -> Stats:
    """Read counters, gauges, and P99 over Envoy's whole life of the histograms that have one."""
    values: dict[str, float] = {}
    p99s: dict[str, float] = {}
    for entry in Node(document if isinstance(document, Mapping) else {}).items("stats"):
        if (value := _number(entry.raw("value"))) is not None:
            values[entry.text("name")] = value
        p99s |= dict(_p99s(entry.child("histograms")))
    return Stats(values, p99s)


def _p99s(histograms: Node) -> Iterator[tuple[str, float]]:
    quantiles = histograms.each("supported_quantiles")
    if _P99 not in quantiles:
        return
    position = quantiles.index(_P99)
    for histogram in histograms.items("computed_quantiles"):
        values = histogram.each("values")
        quantile = values[position] if position < len(values) else None
        value = _number(quantile.get("cumulative")) if isinstance(quantile, Mapping) else None
        if value is not None:
            yield histogram.text("name"), value


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return float(value)
    return None
