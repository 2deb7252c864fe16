"""Tables of metric names that the settings map: `pools.metric_names`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from xds_server.signals.scrape.history import Metric, histogram
from xds_server.signals.scrape.page import read_line
from xds_server.signals.scrape.rules import Rule, Table, either, highest, moving, quantile, rate, ratio, total

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Names = tuple[tuple[str, str], ...]
"""What is measured, as in `fleet.settings.pages.MetricNames`, and the sample's name."""

KIND: Final = "metric_names"
"""The kind of a page that only the settings know."""
_GAUGES: Final[Mapping[str, Callable[[Metric], Rule]]] = {
    "queue_depth": total,
    "running": total,
    "memory_used_ratio": highest,
    "kv_capacity_tokens": total,
    "batch_limit": total,
}


def tables_with(tables: Mapping[str, Table], names: Names) -> dict[str, Table]:
    """Return the tables with the mapped names first, and one of these names alone."""
    own = _table(names)
    merged = {kind: _with(table, own.fields) for kind, table in tables.items()}
    return merged | {KIND: own}


def _table(names: Names) -> Table:
    metrics = {what: _metric(name) for what, name in names if what != "first_token_seconds"}
    fields: dict[str, Rule] = {
        what: _GAUGES[what](metric) for what, metric in metrics.items() if what in _GAUGES
    }
    counters = {what: metric for what, metric in metrics.items() if what not in _GAUGES}
    requests = counters.get("requests_total")
    for part in ("prompt", "generation"):
        if (tokens := counters.get(f"{part}_tokens_total")) is not None:
            fields[f"{part}_tokens_per_second"] = rate(tokens)
            if requests is not None:
                fields[f"{part}_tokens_mean"] = ratio(tokens, requests)
    moves = list(counters.values())
    if first_token := dict(names).get("first_token_seconds"):
        buckets, sums, count = histogram(first_token)
        fields["latency_p50_seconds"], fields["latency_p99_seconds"] = (
            quantile(buckets, q) for q in (0.5, 0.99)
        )
        fields["first_tokens_total"], fields["first_token_seconds_total"] = total(count), total(sums)
        moves.append(count)
    if moves:
        fields["progress_total"] = moving(*moves)
    marks = tuple(
        name for rule in fields.values() for way in rule.ways for each in way for name in each.names
    )
    return Table(marks=marks, fields=fields)


def _metric(name: str) -> Metric:
    sample = read_line(f"{name} 0".encode())
    assert sample is not None, "the settings' pattern permits only names that can be read"
    return Metric((sample[0].name,), tuple(sample[0].labels.items()))


def _with(table: Table, own: Mapping[str, Rule]) -> Table:
    kinds = table.fields
    both = {name: either(rule, kinds[name]) if name in kinds else rule for name, rule in own.items()}
    return replace(table, fields={**kinds, **both})
