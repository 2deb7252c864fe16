"""Every PromQL expression of `deploy/`: of dashboards' panels and variables, and of rules.

An alert's expression has no series while all is well. So each of its selectors is also a query of its own: it
must have a series, otherwise the alert could never fire.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SELECTOR: Final = re.compile(r"\b((?:warmroute[_:][a-zA-Z0-9_:]+|up)(?:\{[^}]*\})?)")
_METRIC: Final = re.compile(r"\b(warmroute[_:][a-zA-Z0-9_:]+|up)\b")
_GROUPING: Final = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_LABEL_VALUES: Final = re.compile(r"label_values\((.+),\s*(\w+)\)")

RARE: Final = {
    "warmroute_gpu_agent_field_errors_total": "made by the first error of a field",
    "warmroute_ext_proc_faults_total": "made by the first fault of a kind",
    "warmroute_certificate_": "made where the settings name certificates",
    "warmroute_ocsp_": "made where a listener has `ocsp_fetch`",
}
"""Metrics, or beginnings of their names, that are absent where nothing of the kind has been, and why."""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression to run. `rare` says why it may have no series; empty: it must have some."""

    where: str
    expression: str
    kind: str
    """`panel`, `variable`, `record`, `alert` or `selector` (of an alert)."""
    rare: str = ""


def queries(deploy: Path) -> list[Query]:
    """Return all of them, dashboards first; equal ones as often as they occur."""
    return [
        *_of_dashboards(deploy / "grafana" / "dashboards"),
        *_of_rules(deploy / "prometheus" / "rules.yml"),
    ]


def dashboard_files(deploy: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return path and content of each dashboard."""
    paths = sorted((deploy / "grafana" / "dashboards").glob("*.json"))
    return [(path, json.loads(path.read_text())) for path in paths]


def metrics(expression: str) -> set[str]:
    """Return the names of the metrics in an expression, recorded ones included."""
    return set(_METRIC.findall(expression))


def labels(expression: str) -> set[str]:
    """Return the labels that an expression matches or groups by."""
    grouped = {name.strip() for inner in _GROUPING.findall(expression) for name in inner.split(",")}
    return (grouped | set(_MATCHER.findall(expression))) - {""}


def _of_dashboards(folder: Path) -> Iterator[Query]:
    for path, dashboard in dashboard_files(folder.parents[1]):
        for variable in dashboard["templating"]["list"]:
            label_values = _LABEL_VALUES.fullmatch(str(variable.get("definition", "")))
            if label_values is not None:
                yield _query(
                    f"{path.stem}: ${variable['name']}",
                    f"count by ({label_values[2]}) ({label_values[1]})",
                    "variable",
                )
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield _query(f"{path.stem}: {panel['title']}", target["expr"], "panel")


def _of_rules(path: Path) -> Iterator[Query]:
    for group in yaml.safe_load(path.read_text())["groups"]:
        for rule in group["rules"]:
            where = f"rules: {rule.get('record') or rule['alert']}"
            if "record" in rule:
                yield _query(where, rule["expr"], "record")
                continue
            yield Query(where, rule["expr"], "alert", "all is well")
            for selector in dict.fromkeys(_SELECTOR.findall(rule["expr"])):
                yield _query(where, selector, "selector")


def _query(where: str, expression: str, kind: str) -> Query:
    used = metrics(expression)
    rare = next((why for name in used for beginning, why in RARE.items() if name.startswith(beginning)), "")
    return Query(where, expression, kind, rare)
