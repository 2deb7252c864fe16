"""Configurations as other people and other versions write them are read rightly, and junk does no harm."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.doctor.conftest import Patient
from warmroute.doctor.envoy.plain import Node, camel
from warmroute.doctor.envoy.queries import coverage
from warmroute.doctor.envoy.read import read
from warmroute.doctor.envoy.rules import RULES
from warmroute.doctor.rule import Context, DoctorError, examine

if TYPE_CHECKING:
    from warmroute.doctor.envoy.facts import Facts

ROOT = Path(__file__).parents[2]
PRE = "type.googleapis.com/envoy"
FILTERS = f"{PRE}.extensions.filters.http"


def static(patient: Patient) -> dict[str, Any]:
    """Return the same configuration as a static bootstrap."""
    manager = patient.manager
    del manager["rds"]
    route_config = patient.section("Routes")["dynamic_route_configs"][0]["route_config"]
    clusters = [patient.cluster(name) for name in ("warmroute_xds", "warmroute_ext_proc", "engines")]
    untyped = copy.deepcopy([patient.listener, route_config, *clusters])
    for entry in untyped:
        del entry["@type"]
    chain = untyped[0]["filter_chains"][0]["filters"][0]["typed_config"]
    chain["route_config"] = untyped[1]
    return {"static_resources": {"listeners": untyped[:1], "clusters": untyped[2:]}}


def camelled(item: Any, key: str = "") -> Any:
    """Return the same document in the other spelling; the keys of maps stay."""
    if isinstance(item, dict):
        maps = key.startswith("typed_")
        keep = maps and key != "typed_config"
        return {name if keep else camel(name): camelled(value, name) for name, value in item.items()}
    return [camelled(inner, key) for inner in item] if isinstance(item, list) else item


def findings_of(config: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.where) for finding in examine(RULES, read(config), Context())]


def filters_of(facts: Facts, route: str) -> list[str]:
    passage = next(entry for entry in facts.passages if entry.route.where.endswith(f"[{route}]"))
    return [entry.kind for entry in passage.filters]


def test_a_static_bootstrap_is_read_like_a_dump(patient: Patient) -> None:
    dumped = read(patient.config)
    written = read(yaml.safe_load(yaml.safe_dump(static(patient))))
    assert written.passages == dumped.passages
    weightless = {name: cluster for name, cluster in written.clusters.items() if name != "engines"}
    assert weightless == {name: cluster for name, cluster in dumped.clusters.items() if name != "engines"}


def test_both_spellings_of_fields_are_read(patient: Patient) -> None:
    plain = static(patient)
    other = camelled(plain)
    assert "staticResources" in other
    spelt = read(other)
    assert [passage.route for passage in spelt.passages] == [
        passage.route for passage in read(plain).passages
    ]
    assert spelt.clusters["engines"] == read(plain).clusters["engines"]
    del plain["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"][
        "route_config"
    ]["virtual_hosts"][0]["routes"][1]["route"]["timeout"]
    assert ("route-timeout", "routes[front].virtual_hosts[front].routes[json].route.timeout") in findings_of(
        camelled(plain)
    )


@pytest.mark.parametrize(
    "path",
    sorted(path for path in (ROOT / "deploy").rglob("*.yaml") if "bootstrap" in path.read_text()[:200]),
)
def test_shipped_bootstraps_have_no_findings(path: Path) -> None:
    assert findings_of(yaml.safe_load(path.read_text())) == []


def test_files_of_resources_are_read() -> None:
    cluster = {"@type": f"{PRE}.config.cluster.v3.Cluster", "name": "a", "type": "EDS"}
    assignment = {
        "@type": f"{PRE}.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "a",
        "endpoints": [{"lb_endpoints": [{"load_balancing_weight": 7}, {}]}],
    }
    facts = read({"resources": [cluster, assignment]})
    assert facts.clusters["a"].weights == (7, 1)


def test_overrides_apply_from_the_general_to_the_special(patient: Patient) -> None:
    off = {"@type": f"{FILTERS}.buffer.v3.BufferPerRoute", "disabled": True}
    on = {"@type": f"{FILTERS}.buffer.v3.BufferPerRoute", "buffer": {"max_request_bytes": 5}}
    patient.host["typed_per_filter_config"] = {"envoy.filters.http.buffer": off}
    assert filters_of(read(patient.config), "json") == ["ext_proc", "router"]
    patient.route("json")["typed_per_filter_config"] = {"envoy.filters.http.buffer": on}
    facts = read(patient.config)
    assert filters_of(facts, "json") == ["ext_proc", "buffer", "router"]
    passage = next(candidate for candidate in facts.passages if candidate.route.where.endswith("[json]"))
    assert passage.first("buffer").buffer_bytes == 5  # type: ignore[union-attr]


def test_a_filter_that_is_off_is_turned_on_by_a_route(patient: Patient) -> None:
    patient.filter("buffer")["disabled"] = True
    assert filters_of(read(patient.config), "json") == ["ext_proc", "router"]
    wrapped = {"@type": f"{PRE}.config.route.v3.FilterConfig", "config": {}}
    patient.route("json")["typed_per_filter_config"] = {"envoy.filters.http.buffer": wrapped}
    assert filters_of(read(patient.config), "json") == ["ext_proc", "buffer", "router"]
    patient.route("json")["typed_per_filter_config"]["envoy.filters.http.buffer"] = {
        **wrapped,
        "disabled": True,
    }
    assert filters_of(read(patient.config), "json") == ["ext_proc", "router"]


def test_each_cluster_of_a_weighted_route_is_a_way(patient: Patient) -> None:
    action = patient.action("json")
    del action["cluster"]
    disabled = {"@type": f"{FILTERS}.ext_proc.v3.ExtProcPerRoute", "disabled": True}
    second = {"name": "b", "typed_per_filter_config": {"envoy.filters.http.ext_proc": disabled}}
    action["weighted_clusters"] = {"clusters": [{"name": "engines"}, second]}
    ways = [passage for passage in read(patient.config).passages if passage.route.where.endswith("[json]")]
    assert [(passage.route.cluster, bool(passage.processors)) for passage in ways] == [
        ("engines", True),
        ("b", False),
    ]


def test_filters_by_extension_discovery_are_read(patient: Patient) -> None:
    buffer = patient.filter("buffer")
    section = {
        "@type": f"{PRE}.admin.v3.EcdsConfigDump",
        "ecds_filters": [
            {
                "ecds_filter": {
                    "@type": f"{PRE}.config.core.v3.TypedExtensionConfig",
                    "name": buffer["name"],
                    "typed_config": buffer.pop("typed_config"),
                }
            }
        ],
    }
    buffer["config_discovery"] = {"type_urls": ["envoy.extensions.filters.http.buffer.v3.Buffer"]}
    patient.config["configs"].append(section)
    assert patient.findings() == []
    passage = next(p for p in read(patient.config).passages if p.route.where.endswith("[json]"))
    assert passage.first("buffer").buffer_bytes == 262_145  # type: ignore[union-attr]


def test_routes_behind_one_that_takes_all_are_not_ways(patient: Patient) -> None:
    routes = patient.host["routes"]
    routes.append({"name": "never", "match": {"prefix": "/"}, "route": {"cluster": "engines"}})
    assert patient.findings() == []
    routes[-2]["match"]["runtime_fraction"] = {"default_value": {"numerator": 50}}
    assert {finding.rule for finding in patient.findings()} >= {"route-timeout"}


def test_upgrades_go_only_where_they_are_allowed(patient: Patient) -> None:
    patient.manager["upgrade_configs"][0]["enabled"] = False
    assert not any(passage.upgrade for passage in read(patient.config).passages)
    patient.action("other")["upgrade_configs"] = [{"upgrade_type": "WebSocket"}]
    patient.host["routes"].remove(patient.route("upgrade"))
    ways = [passage.route.where for passage in read(patient.config).passages if passage.upgrade]
    assert ways == ["routes[front].virtual_hosts[front].routes[other]"]


@pytest.mark.parametrize("junk", [None, [], "x", 1, {}, {"configs": None}, {"a": {"b": 1}}])
def test_what_is_no_configuration_is_refused(junk: Any) -> None:
    with pytest.raises(DoctorError, match="not an Envoy's configuration"):
        read(junk)


@pytest.mark.parametrize(
    "empty",
    [
        {"configs": []},
        {"configs": [1, "x", None, {"@type": 5}]},
        {"resources": []},
        {"static_resources": None},
        {"static_resources": {"listeners": "x", "clusters": [1, {"name": 7}]}},
        {"static_resources": {"listeners": [{"name": "tcp"}]}},
        {"node": {"id": "a"}},
        {"dynamic_resources": {"lds_config": {"path_config_source": {"path": "/x"}}}},
        {"resources": [{"@type": f"{PRE}.config.route.v3.RouteConfiguration", "name": "r"}]},
    ],
)
def test_where_nothing_can_be_looked_at_nothing_is_called_good(empty: Any) -> None:
    with pytest.raises(DoctorError, match="no HTTP listener and no cluster"):
        read(empty)


def test_warmroute_settings_are_rejected_as_envoy_configuration() -> None:
    ours = {"pools": [{"name": "a"}], "listeners": [{"name": "l"}], "admin": {"address": "127.0.0.1:1"}}
    with pytest.raises(DoctorError, match=r"--settings"):
        read(ours)


@pytest.mark.parametrize(
    ("states", "stats", "document"),
    [
        ({"stats": []}, None, "clusters"),
        ([], None, "clusters"),
        (None, {"cluster_statuses": []}, "stats"),
        (None, {}, "stats"),
        (None, "x", "stats"),
    ],
)
def test_states_and_statistics_are_not_interchangeable(
    patient: Patient, states: Any, stats: Any, document: str
) -> None:
    with pytest.raises(DoctorError, match="format=json") as caught:
        read(patient.config, states, stats)
    assert caught.value.document == document


def test_an_envoy_without_clusters_has_no_states(patient: Patient) -> None:
    """The JSON form of its messages leaves empty lists out."""
    assert read(patient.config, {}, {"stats": []}).clusters


def test_coverage_counts_examined_parts(patient: Patient) -> None:
    facts = read(patient.config)
    assert coverage(facts, Context()) == {
        "listeners": 1,
        "routes": len({passage.route.where for passage in facts.passages}),
        "clusters": 3,
    }
    assert coverage(facts, Context(pools=frozenset({"others"})))["routes"] == 0


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in pairs for place in places(inner, (*path, key)))]


DUMP = Patient()
PLACES = {name: places(getattr(DUMP, name))[1:] for name in ("config", "states", "stats")}
JUNK = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        10**40,
        1.5,
        "",
        "x",
        "1" * 5000,
        "99999999999999s",
        "s",
        [],
        [[]],
        [None],
        {},
        {"": {}},
    ]
)


@pytest.mark.untraced
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.sampled_from(sorted(PLACES)).flatmap(
            lambda name: st.tuples(st.just(name), st.sampled_from(PLACES[name]), JUNK)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_junk_anywhere_does_no_harm(changes: list[tuple[str, tuple[Any, ...], Any]]) -> None:
    """Whatever stands in a place where something else should: findings, or a refusal in words."""
    documents = {name: copy.deepcopy(getattr(DUMP, name)) for name in PLACES}
    for name, path, junk in changes:
        parent = documents[name]
        try:
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = junk
        except (LookupError, TypeError):
            continue  # An earlier change took this place away.
    try:
        findings = examine(RULES, read(*documents.values()), Context())
    except DoctorError:
        return
    json.dumps([finding.where for finding in findings])


@pytest.mark.parametrize(
    ("text", "read_as"),
    [("0.250s", 0.25), ("15s", 15.0), ("0s", 0.0), ("15", None), (15, None), ("-1s", None), ("1e9s", None)],
)
def test_durations(text: Any, read_as: float | None) -> None:
    assert Node({"timeout": text}).seconds("timeout") == read_as


@pytest.mark.parametrize(
    ("value", "read_as"),
    [(5, 5), ("5", 5), (True, None), (-5, None), ("-5", None), (5.0, None), ("\u0665", None)],
)
def test_whole_numbers(value: Any, read_as: int | None) -> None:
    assert Node({"n": value}).whole("n") == read_as


def test_paths_name_what_they_lead_to(patient: Patient) -> None:
    """A finding's path has the names of the configuration, so that it can be searched for."""
    facts = read(patient.config)
    paths = {passage.route.where for passage in facts.passages}
    assert all(
        re.fullmatch(r"routes\[front\]\.virtual_hosts\[front\]\.routes\[[a-z-]+\]", at) for at in paths
    )
