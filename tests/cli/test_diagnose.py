"""`warmroute diagnose`: the table, the choice, and an exit status that scripts can go by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings, SkewSettings
from testing.signals import Load, Signal, table_of
from warmroute.cli.diagnose import PATH, lines, with_kept_out
from warmroute.cli.main import main
from xds_server.skew.diagnosis import Diagnosis
from xds_server.skew.rules import RULES
from xds_server.skew.watch import SkewWatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.skew.rules import Rule

pytestmark = pytest.mark.io

CALM = {"running": 8.0, "queue_depth": 0.0, "memory_used_ratio": 0.4, "prefix_hit_ratio": 0.8}
FULL = {**CALM, "queue_depth": 40.0, "memory_used_ratio": 0.97, "kv_capacity_tokens": 1e4}
FULL |= {"prompt_tokens_mean": 1000.0, "generation_tokens_mean": 100.0}


def diagnosis_of(*pools: Mapping[str, Mapping[str, float]]) -> Any:
    """The diagnosis of an xds_server for these pools: address to signals."""
    names = ("chat", "code")
    made = tuple(
        Pool(name, tuple(Endpoint(address, name) for address in pool))
        for name, pool in zip(names, pools, strict=False)
    )
    loads = {
        address: Load(**{name: Signal(value, 10.0, "test") for name, value in signals.items()})
        for pool in pools
        for address, signals in pool.items()
    }
    watch = SkewWatch(SkewSettings(), SignalSettings(), CollectorRegistry())
    members = Membership(made)
    watch.observe(members, table_of(members.addresses, loads), 10.0)
    return json.loads(json.dumps(watch.diagnosis()))


@pytest.fixture
def mixed(admin: Any) -> Any:
    admin.documents[PATH] = diagnosis_of({"10.0.0.1:80": CALM, "10.0.0.2:80": FULL}, {"10.0.1.1:80": CALM})
    return admin


def test_a_healthy_fleet_ends_with_0(admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    admin.documents[PATH] = diagnosis_of({"10.0.0.1:80": CALM, "10.0.0.2:80": {**CALM, "running": 0.0}})
    assert main(["diagnose", "--admin", admin.url]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["pool", "chat", "10.0.0.1:80", "10.0.0.2:80"]
    assert "2 endpoints" not in rows[1]
    assert "1 healthy, 1 idle" in rows[1]


def test_an_endpoint_that_is_not_let_in_is_named_with_the_reason(
    admin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no observations; a pool without ready endpoints serves it, but the cause is unknown."""
    why = "GET http://10.0.0.3:80/v1/models: connection refused; start the engine, or mend its address"
    admin.documents[PATH] = diagnosis_of({"10.0.0.1:80": CALM}, {"10.0.1.1:80": {}})
    admin.documents["/api/v1/endpoints"] = {
        "endpoints": [
            {"address": "10.0.0.1:80", "pool": "chat", "not_ready": None},
            {"address": "10.0.0.3:80", "pool": "chat", "not_ready": why},
            {"address": "10.0.1.1:80", "pool": "code", "not_ready": "no answer in time"},
        ]
    }
    assert main(["diagnose", "--admin", admin.url]) == 1
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert "1 healthy, 1 not_ready" in rows["chat"]
    assert rows["10.0.0.3:80"].split(maxsplit=2)[1:] == ["not_ready", why]
    assert rows["10.0.1.1:80"].split(maxsplit=2)[1:] == ["not_ready", "no answer in time"]
    assert "1 not_ready" in rows["code"]
    assert "unknown" not in rows["code"].partition(";")[0].split("code (pool)")[1].split()[1:]
    assert main(["diagnose", "10.0.0.3:80", "--admin", admin.url]) == 1
    assert main(["diagnose", "10.0.0.1:80", "--admin", admin.url]) == 0


@pytest.mark.parametrize(("columns", "rows"), [(80, 2), (40, 3)])
def test_evidence_is_broken_between_words(columns: int, rows: int) -> None:
    """It stands in its column, or below its row where there is little room."""
    entry = {"pool": "chat", "address": "127.0.0.1:28003", "cause": "not_ready", "healthy": False}
    why = "GET http://127.0.0.1:28003/v1/models was answered 200, and lists no model of 'm'"
    advice = "Its probe does not pass, so it is not let in."
    shown = lines([], [{**entry, "why": why, "advice": advice}], columns)
    assert max(map(len, shown)) <= columns
    row = next(at for at, line in enumerate(shown) if "28003  not_ready" in line)
    assert " ".join(" ".join(shown[row : shown.index("")]).split()[2:]) == why
    assert len(shown[row : shown.index("")]) >= rows


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.cause}: {rule.condition}")
@pytest.mark.parametrize("evidence", ["none", "all"])
@pytest.mark.parametrize("listed", [None, "GET http://10.0.0.1:80/health was answered 503"])
def test_every_cause_is_drawn_for_pools_and_endpoints(rule: Rule, evidence: str, listed: str | None) -> None:
    figures = dict.fromkeys(rule.evidence, 0.5) if evidence == "all" else {}
    missing = ("running",) if evidence == "none" else ()
    scopes = (("10.0.0.1:80", {}), (None, {"endpoints": {rule.cause: 1}}))
    endpoint, pool = (
        {
            **Diagnosis("chat", at, rule.cause, rule.healthy, figures, rule.advice, missing).as_json(),
            **more,
        }
        for at, more in scopes
    )
    diagnosis = with_kept_out(
        {"observed": True, "pools": [pool], "endpoints": [endpoint]},
        [{"address": "10.0.0.1:80", "pool": "chat", "not_ready": listed}],
        {},
    )
    shown = "\n".join(lines(diagnosis["pools"], diagnosis["endpoints"]))
    kept = listed is None or rule.cause == "down"
    assert f"1 {rule.cause if kept else 'not_ready'}" in shown
    if not kept:
        assert listed is not None
        assert listed in shown


def test_an_endpoint_that_was_in_and_goes_down_is_drawn(
    admin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pool without ready endpoints has figures and no probe of its own."""
    gone = {**CALM, "ready": 0.0, "reachable": 0.0}
    admin.documents[PATH] = diagnosis_of({"10.0.0.1:80": gone}, {"10.0.1.1:80": {**CALM, "ready": 0.0}})
    why = "GET http://10.0.1.1:80/v1/models was answered 200, and lists other-model"
    admin.documents["/api/v1/endpoints"] = {
        "endpoints": [
            {"address": "10.0.0.1:80", "pool": "chat", "not_ready": "connection refused"},
            {"address": "10.0.1.1:80", "pool": "code", "not_ready": why},
        ]
    }
    assert main(["diagnose", "--admin", admin.url]) == 1
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "not_ready" in rows["code"]
    assert "1 not_ready; ready 0" in rows["code"]
    assert rows["10.0.1.1:80"].endswith(why)
    assert "1 down" in rows["chat"]


def test_a_pool_is_not_ready_only_as_a_whole() -> None:
    """An endpoint that is ready has no such figure."""
    well = {**CALM, "reachable": 1.0}
    gone = {**CALM, "ready": 0.0, "reachable": 0.0}
    waits = {**well, "ready": 0.0}
    for pool, cause in (
        ({"10.0.0.1:80": gone, "10.0.0.2:80": well}, "healthy"),
        ({"10.0.0.1:80": waits, "10.0.0.2:80": waits}, "not_ready"),
    ):
        assert diagnosis_of(pool)["pools"][0]["cause"] == cause


def test_drained_asleep_or_leaving_endpoints_count_as_healthy(
    admin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.documents[PATH] = diagnosis_of({"10.0.0.1:80": CALM})
    states = {"10.0.0.2:80": "drained", "10.0.0.3:80": "asleep", "10.0.0.4:80": "leaving"}
    listed = [{"address": at, "pool": "chat", "state": state} for at, state in states.items()]
    until = "2026-11-30T08:00:00.000+00:00"
    drained = [{"endpoint": "10.0.0.2:80", "until": until, "in_force": True}]
    admin.documents |= {
        "/api/v1/endpoints": {"endpoints": listed},
        "/api/v1/weights": {"weights": {}, "drained": drained},
    }
    assert main(["diagnose", "--admin", admin.url]) == 0
    rows = {line.split()[0]: line.split(maxsplit=2)[-1] for line in capsys.readouterr().out.splitlines()}
    assert "1 healthy, 1 drained, 1 asleep, 1 leaving" in rows["chat"]
    assert rows["10.0.0.2:80"] == f"by an operator until {until}"
    assert rows["10.0.0.3:80"] == "in sleep mode"
    assert main(["diagnose", "10.0.0.2:80", "--admin", admin.url]) == 0


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"clients": 0, "picks": {"warm": 0}}, 1),
        ({"clients": 0, "picks": {"warm": 3}}, 0),
        ({"clients": 0, "picks": {"warm": 3}, "pushes": 7}, 1),
        ({"clients": 0, "picks": {}, "certificate_refusals": {"xds": 2}}, 1),
        ({"clients": 1, "picks": {}}, 0),
        ({}, 0),
    ],
    ids=[
        "nobody",
        "a gateway of its own",
        "an Envoy that has left",
        "refused",
        "an Envoy",
        "an older server",
    ],
)
def test_a_missing_envoy_shows_in_text_and_status(
    admin: Any, capsys: pytest.CaptureFixture[str], status: dict[str, Any], code: int
) -> None:
    admin.documents[PATH] = diagnosis_of({"10.0.0.1:80": CALM})
    admin.documents["/api/v1/status"] = status
    assert main(["diagnose", "--admin", admin.url]) == code
    out = capsys.readouterr().out
    assert ("no Envoy is connected" in out) is bool(code)
    assert ("start one" in out) is bool(code)
    assert ("xds has refused 2 calls by certificate" in out) is ("certificate_refusals" in status)
    assert main(["top", "--once", "--admin", admin.url]) == 2, "it has no endpoints"
    admin.documents["/api/v1/endpoints"] = {"endpoints": []}
    assert main(["top", "--once", "--admin", admin.url]) == 0
    shown = capsys.readouterr()
    assert ("warmroute top: no Envoy is connected" in shown.err) is bool(code)
    assert "no Envoy" not in shown.out, "which is a table for scripts"
    assert main(["diagnose", "chat", "--admin", admin.url]) == 0, "that pool is well"


def test_a_named_cause_ends_with_1_and_shows_evidence_and_advice(
    mixed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", "--admin", mixed.url]) == 1
    out = capsys.readouterr().out
    (row,) = [line for line in out.splitlines() if line.startswith("  10.0.0.2:80")]
    assert "hot_spot" in row
    assert "queue_depth 40" in row
    assert "\nhot_spot: It has far more to do than its peers" in out


@pytest.mark.parametrize(
    ("what", "shown", "status"),
    [
        ("chat", ["10.0.0.1:80", "10.0.0.2:80"], 1),
        ("code", ["10.0.1.1:80"], 0),
        ("10.0.0.1:80", ["10.0.0.1:80"], 0),
        ("10.0.0.2:80", ["10.0.0.2:80"], 1),
    ],
)
def test_a_pool_or_an_endpoint_can_be_chosen_with_its_status(
    mixed: Any, capsys: pytest.CaptureFixture[str], what: str, shown: list[str], status: int
) -> None:
    assert main(["diagnose", what, "--admin", mixed.url, "--json"]) == status
    printed = json.loads(capsys.readouterr().out)
    assert [entry["address"] for entry in printed["endpoints"]] == shown
    assert [entry["pool"] for entry in printed["pools"]] == ([what] if what in {"chat", "code"} else [])


def test_unknown_is_not_healthy_and_says_what_is_missing(
    admin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.documents[PATH] = diagnosis_of({"10.0.0.1:80": {"running": 3.0}})
    assert main(["diagnose", "10.0.0.1:80", "--admin", admin.url]) == 1
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  10.0.0.1:80")]
    assert "unknown" in row
    assert "memory_used_ratio" in row


def test_an_estimate_is_shown_as_one(admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    roomy = {**FULL, "kv_capacity_tokens": 1e5}
    admin.documents[PATH] = diagnosis_of({"10.0.0.1:80": roomy})
    assert main(["diagnose", "10.0.0.1:80", "--admin", admin.url]) == 1
    assert "kv_fragmentation_estimate ~0.9" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (404, "has no /api/v1/diagnosis"),
        (500, "status 500"),
        ({}, "something else"),
        ([1], "something else"),
        ({"observed": False, "pools": [], "endpoints": []}, "not observed anything yet"),
    ],
)
def test_no_answer_ends_with_2_and_says_why(
    admin: Any, capsys: pytest.CaptureFixture[str], document: Any, why: str
) -> None:
    admin.documents[PATH] = document
    assert main(["diagnose", "--admin", admin.url]) == 2
    assert why in capsys.readouterr().err


def test_nobody_there_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--admin", "127.0.0.1:9"]) == 2
    assert "cannot be reached" in capsys.readouterr().err


def test_a_name_that_nobody_has_ends_with_2(mixed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "chatt", "--admin", mixed.url]) == 2
    assert "no pool or endpoint is called chatt" in capsys.readouterr().err
