"""Dashboards and rules ask for what exists; `python -m bench.dashboards` asks a real Prometheus."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from bench import agent_page, dashboards
from bench.dashboard_queries import RARE, Query, dashboard_files, labels, metrics, queries
from warmroute.demo.http_client import HttpClient
from warmroute.demo.processes import BenchError
from warmroute.gpu_agent.metrics import AgentMetrics
from warmroute.gpu_agent.page import GpuCollector
from xds_server.telemetry.exposition import EXPOSED, signal_metric

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EVERYWHERE = {"instance", "job"}
KINDS = {"stat", "timeseries", "row"}
UNITS = {"short", "percentunit", "s", "reqps", "ops", "celsius"}


@pytest.fixture(scope="module")
def deploy(root: Path) -> Path:
    return root / "deploy"


@pytest.fixture(scope="module")
def used_queries(deploy: Path) -> list[Query]:
    return queries(deploy)


@pytest.fixture(scope="module")
def label_sets(root: Path, deploy: Path) -> Mapping[str, set[str]]:
    """Every metric with its labels: those of the documents, of the GPU agent, and the recorded ones."""
    operations = (root / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `(warmroute_\w+)(?:\{([\w,]+)\})?` \|(.+)$", operations, flags=re.MULTILINE)
    sets = {name: set(listed.split(",")) - {""} for name, listed, _ in rows}
    for name, _, text in rows:
        if "histogram" in text:
            sets[f"{name}_bucket"] = sets[name] | {"le"}
    sets |= {signal_metric(name): {"pool", "endpoint"} for name in EXPOSED}
    registry = CollectorRegistry()
    AgentMetrics.of(registry).field_error("name", "NOT_SUPPORTED")
    registry.register(GpuCollector(agent_page._reading, lambda: 0.0))
    for metric in registry.collect():
        for sample in metric.samples:
            sets.setdefault(sample.name, set()).update(sample.labels)
    for group in yaml.safe_load((deploy / "prometheus" / "rules.yml").read_text())["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                sets[rule["record"]] = labels(rule["expr"]) - {"le"}
    return {**sets, "up": set()}


def test_every_metric_exists(used_queries: list[Query], label_sets: Mapping[str, set[str]]) -> None:
    unknown = {
        (query.where, name) for query in used_queries for name in metrics(query.expression) - set(label_sets)
    }
    assert unknown == set()
    assert len({name for query in used_queries for name in metrics(query.expression)}) > 60


def test_every_label_exists(used_queries: list[Query], label_sets: Mapping[str, set[str]]) -> None:
    unknown = set()
    for query in used_queries:
        allowed = EVERYWHERE.union(*(label_sets[name] for name in metrics(query.expression)))
        unknown |= {(query.where, name) for name in labels(query.expression) - allowed}
    assert unknown == set()


def test_legends_name_labels_that_series_have(deploy: Path, label_sets: Mapping[str, set[str]]) -> None:
    for path, dashboard in dashboard_files(deploy):
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                allowed = EVERYWHERE.union(*(label_sets[name] for name in metrics(target["expr"])))
                used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert used <= allowed, (path.name, panel["title"])
                if target["expr"].startswith("sum by"):
                    assert used <= labels(target["expr"]), (path.name, panel["title"])


def test_dashboards_are_well_formed(deploy: Path) -> None:
    files = dashboard_files(deploy)
    assert {path.stem for path, _ in files} == {"fleet", "control", "picks", "gpus"}
    assert len({dashboard["uid"] for _, dashboard in files}) == len(files)
    for path, dashboard in files:
        assert dashboard["uid"] == f"warmroute-{path.stem}"
        assert "id" not in dashboard, "Grafana gives it"
        variables = {variable["name"] for variable in dashboard["templating"]["list"]}
        assert "datasource" in variables
        ids = Counter(panel["id"] for panel in dashboard["panels"])
        assert max(ids.values()) == 1
        titles = Counter(panel["title"] for panel in dashboard["panels"])
        assert max(titles.values()) == 1
        for panel in dashboard["panels"]:
            check_panel(panel, variables)


def check_panel(panel: dict[str, Any], variables: set[str]) -> None:
    assert panel["type"] in KINDS
    if panel["type"] == "row":
        return
    assert panel["description"].endswith(".")
    assert panel["targets"]
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    for target in panel["targets"]:
        assert panel["datasource"] == target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
        assert used <= variables, panel["title"]


def test_panels_do_not_cover_each_other(deploy: Path) -> None:
    for path, dashboard in dashboard_files(deploy):
        cells: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24
            own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            assert not own & cells, (path.name, panel["title"])
            cells |= own


def test_rules_say_what_they_are_about(deploy: Path) -> None:
    groups = yaml.safe_load((deploy / "prometheus" / "rules.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    names = Counter(rule.get("alert") or rule["record"] for rule in rules)
    assert max(names.values()) == 1
    assert max(Counter(group["name"] for group in groups).values()) == 1
    for rule in rules:
        if "alert" in rule:
            assert re.fullmatch(r"Warmroute[A-Za-z]+", rule["alert"])
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}
            assert rule["annotations"]["summary"]
        else:
            assert re.fullmatch(r"warmroute:[a-z0-9_]+:[a-z0-9_]+", rule["record"])


def test_what_is_worth_an_alert_has_one(deploy: Path, root: Path) -> None:
    """The list in the document is the list in the rules."""
    operations = (root / "docs" / "operations.md").read_text()
    (line,) = re.findall(r"^Worth an alert: (.+)$", operations, flags=re.MULTILINE)
    groups = yaml.safe_load((deploy / "prometheus" / "rules.yml").read_text())["groups"]
    used = {name for group in groups for rule in group["rules"] for name in metrics(rule["expr"])}
    assert set(re.findall(r"`(warmroute_\w+)`", line)) <= used


def test_every_dashboard_and_alert_is_documented(root: Path, deploy: Path) -> None:
    text = (root / "docs" / "dashboards.md").read_text()
    groups = yaml.safe_load((deploy / "prometheus" / "rules.yml").read_text())["groups"]
    for _, dashboard in dashboard_files(deploy):
        assert f"`{dashboard['uid']}`" in text
        for panel in dashboard["panels"]:
            assert panel["type"] == "row" or panel["title"] in text, panel["title"]
    documented = set(re.findall(r"^\| `(Warmroute\w+)` \|", text, flags=re.MULTILINE))
    assert documented == {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    assert [beginning for beginning in RARE if beginning not in text] == []


def test_alerts_are_split_into_their_selectors(used_queries: list[Query]) -> None:
    alert = [query for query in used_queries if query.where == "rules: WarmrouteAllRefused"]
    assert [query.kind for query in alert] == ["alert", "selector", "selector"]
    assert [query.expression for query in alert[1:]] == [
        "warmroute_xds_nacks_total",
        "warmroute_xds_acks_total",
    ]
    assert alert[0].rare
    assert not alert[1].rare


def test_names_and_labels_are_found_in_expressions() -> None:
    left = 'sum by (pool, le) (rate(warmroute_a_bucket{x="1", y=~"b|c"}[5m]))'
    expression = f"{left} / on (z) group_left () warmroute:r:s"
    assert metrics(expression) == {"warmroute_a_bucket", "warmroute:r:s"}
    assert labels(expression) == {"pool", "le", "x", "y", "z"}


def test_empty_and_failed_queries_miss_the_target() -> None:
    ran = [
        dashboards.Ran(Query("a", "b", "panel"), 1),
        dashboards.Ran(Query("c", "d", "panel"), 0),
        dashboards.Ran(Query("e", "f", "alert", "all is well"), 0),
        dashboards.Ran(Query("g", "h", "panel"), 0, "parse error"),
    ]
    result, targets = dashboards.result_of(ran)
    assert [entry["where"] for entry in result["empty"]] == ["c"]
    assert [entry["where"] for entry in result["empty_as_documented"]] == ["e"]
    assert [entry["where"] for entry in result["failed"]] == ["g"]
    assert {entry.name: entry.met for entry in targets} == {
        "queries": False,
        "queries_with_errors": False,
        "queries_without_series": False,
    }


def test_missing_program_is_named_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"no `prometheus` in .+docs/dashboards\.md"):
        dashboards.program("prometheus", tmp_path)


async def test_fake_gpu_agent_serves_its_page() -> None:
    async with agent_page.agent_page() as address:
        client = HttpClient(address, asyncio.get_running_loop().time)
        page = (await client.request("GET", "/metrics")).body.decode()
        client.close()
    assert 'warmroute_gpu_memory_used_bytes{index="0",uuid="GPU-made-up-0"}' in page
    assert "warmroute_gpu_agent_connected 0.0" in page, "it reports to nobody"
