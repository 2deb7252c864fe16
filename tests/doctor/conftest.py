"""What a real Envoy 1.40 that runs Warmroute's configuration said, and ways to plant traps in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from warmroute.doctor.envoy.read import read
from warmroute.doctor.envoy.rules import RULES
from warmroute.doctor.rule import Context, examine

DATA = Path(__file__).parent / "data"


def load(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


class Patient:
    """One Envoy's documents, to be changed in place."""

    def __init__(self) -> None:
        self.config = load("config_dump")
        self.states = load("clusters")
        self.stats = load("stats")

    def section(self, kind: str) -> Any:
        return next(
            section for section in self.config["configs"] if section["@type"].endswith(f".{kind}ConfigDump")
        )

    @property
    def listener(self) -> Any:
        return self.section("Listeners")["dynamic_listeners"][0]["active_state"]["listener"]

    @property
    def manager(self) -> Any:
        return self.listener["filter_chains"][0]["filters"][0]["typed_config"]

    def filter(self, name: str) -> Any:
        filters = self.manager["http_filters"]
        return next(entry for entry in filters if entry["name"] == f"envoy.filters.http.{name}")

    @property
    def ext_proc(self) -> Any:
        return self.filter("ext_proc")["typed_config"]

    @property
    def host(self) -> Any:
        config = self.section("Routes")["dynamic_route_configs"][0]["route_config"]
        return config["virtual_hosts"][0]

    def route(self, name: str) -> Any:
        return next(route for route in self.host["routes"] if route["name"] == name)

    def action(self, name: str) -> Any:
        return self.route(name)["route"]

    def override(self, route: str, name: str) -> Any:
        return self.route(route)["typed_per_filter_config"][f"envoy.filters.http.{name}"]

    def cluster(self, name: str) -> Any:
        section = self.section("Clusters")
        listed = [*section["static_clusters"], *section["dynamic_active_clusters"]]
        return next(entry["cluster"] for entry in listed if entry["cluster"]["name"] == name)

    @property
    def pool(self) -> Any:
        return self.cluster("engines")

    @property
    def processor(self) -> Any:
        return self.cluster("warmroute_ext_proc")

    def options(self, cluster: str) -> Any:
        return self.cluster(cluster)["typed_extension_protocol_options"][
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        ]

    @property
    def policy(self) -> Any:
        return self.pool["load_balancing_policy"]["policies"][0]["typed_extension_config"]["typed_config"]

    def weigh(self, *weights: int) -> None:
        """Give the pool's endpoints these weights."""
        state = next(status for status in self.states["cluster_statuses"] if status["name"] == "engines")
        for host, weight in zip(state["host_statuses"], weights, strict=True):
            host["weight"] = weight

    def count(self, name: str, value: float) -> None:
        """Set a counter or gauge."""
        kept = [stat for stat in self.stats["stats"] if stat.get("name") != name]
        self.stats["stats"] = [*kept, {"name": name, "value": value}]

    def took(self, cluster: str, milliseconds: float, requests: int) -> None:
        """Let a cluster's answers have this P99."""
        self.count(f"cluster.{cluster}.upstream_rq_total", requests)
        self._p99(f"cluster.{cluster}.upstream_rq_time", milliseconds)

    def connected(self, cluster: str, milliseconds: float, connections: int) -> None:
        """Let a cluster's connections have this P99."""
        self.count(f"cluster.{cluster}.upstream_cx_total", connections)
        self._p99(f"cluster.{cluster}.upstream_cx_connect_ms", milliseconds)

    def _p99(self, name: str, milliseconds: float) -> None:
        histograms = next(entry["histograms"] for entry in self.stats["stats"] if "histograms" in entry)
        position = histograms["supported_quantiles"].index(99)
        listed = histograms["computed_quantiles"]
        histogram = next((entry for entry in listed if entry["name"] == name), None)
        if histogram is None:
            histogram = {"name": name, "values": [{} for _ in histograms["supported_quantiles"]]}
            listed.append(histogram)
        histogram["values"][position]["cumulative"] = milliseconds

    def findings(self, **context: Any) -> list[Any]:
        return examine(RULES, read(self.config, self.states, self.stats), Context(**context))


@pytest.fixture
def patient() -> Patient:
    return Patient()
