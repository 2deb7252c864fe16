"""`warmroute explain`: prints the servers' answers in words, and ends with status 1 without any."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as some
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.service.admin import Query
from fleet.settings import parse_settings
from fleet.store import FleetStore
from warmroute.cli.explain import query_of
from warmroute.cli.main import main
from warmroute.cli.view.explanation import explained
from xds_server.app import XdsServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.io

COMPARED = ("address", "cost", "wait_seconds", "cold_seconds", "matched_blocks")
FIELDS = ("picks", "weights", "verdict", "signals", "a:1", "considered", "weight", "reason", "fallbacks")
PICK = {
    "at": "2026-11-29T10:11:12.131+00:00",
    "request": "5f2e7a10-0000-4000-8000-000000000001",
    "pool": "chat",
    "reason": "warm",
    "endpoint": "10.0.0.1:8000",
    "fallbacks": ["10.0.0.2:8000"],
    "matched_share": 0.875,
    "expected_seconds": 0.0413,
    "candidates": 3,
    "considered": [
        dict(zip(COMPARED, ("10.0.0.1:8000", 0.05, 0.02, 0.01, 7), strict=True)),
        dict(zip(COMPARED, ("10.0.0.2:8000", 0.9, 0.0, None, 0), strict=True)),
    ],
    "trace": None,
}  # fmt: skip
UNTIL = "2026-11-30T08:00:00.000+00:00"
VERDICT = {
    "address": "10.0.0.1:8000",
    "pool": "chat",
    "weight": 300,
    "share": 0.75,
    "target_share": 0.74,
    "score": 1.234567,
    "factors": {"trust": 0.388},
    "unhealthy": False,
    "reason": "memory 0.97",
    "overridden_until": None,
    "by_place": {},
    "weight_by_place": {},
    "signals": {"memory_used_ratio": {"value": 0.97, "age_seconds": 0.42, "source": "scrape"}},
}
CHANGE = {
    "at": "2026-11-29T10:11:02.000+00:00",
    "version": "v1",
    "address": "10.0.0.1:8000",
    "before": 900,
    "weight": 300,
    "reason": "memory 0.97",
    "score": 1.234567,
    "factors": {"trust": 0.388},
    "signals": {"memory_used_ratio": 0.97},
}
PAGE = """
vllm:kv_cache_usage_perc 0.7
vllm:num_requests_waiting 12
vllm:num_requests_running 4
"""
SETTINGS = """
pools: [{{name: chat, endpoints: [{{address: "{busy}", locality: {{region: eu, zone: a}}}}, {{address:
  "127.0.0.1:1", locality: {{region: eu, zone: b}}}}], joining: {{probe: none}}}}]
listeners: [{{name: l, address: "127.0.0.1:9", pool: chat}}]
signals: {{scrape_interval_seconds: 0.1}}
xds: {{address: "unix:{path}/xds.sock", tick_seconds: 0.02}}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a running xds_server answers about an endpoint with a metrics page."""
    return asyncio.run(_answer_of_a_server(tmp_path_factory.mktemp("xds")))


async def _answer_of_a_server(folder: Path) -> dict[str, Any]:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text=PAGE)

    engine = web.Application()
    engine.router.add_get("/metrics", page)
    runner = web.AppRunner(engine, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    settings = parse_settings(SETTINGS.format(busy=f"{host}:{port}", path=folder))
    server = XdsServer(settings, FleetStore(), CollectorRegistry(), TracerProvider(), control=False)
    await server.start()
    try:
        async with asyncio.timeout(60):
            while True:
                answer = server.queries()["/api/v1/decisions"](Query(endpoint=f"{host}:{port}"))
                verdict = answer["verdict"]
                if answer["weights"] and verdict and verdict["signals"].get("queue_depth"):
                    document: dict[str, Any] = json.loads(json.dumps(answer))
                    return document
                await asyncio.sleep(0.01)
    finally:
        await server.stop()
        await runner.cleanup()


def test_fixtures_have_the_fields_of_a_running_server(running: dict[str, Any]) -> None:
    assert running["verdict"].keys() == VERDICT.keys()
    assert running["weights"][0].keys() == CHANGE.keys()
    assert all(
        reading is None or reading.keys() == {"value", "age_seconds", "source"}
        for reading in running["verdict"]["signals"].values()
    )


def test_a_servers_signals_show_value_age_and_source(running: dict[str, Any]) -> None:
    lines = explained(running)
    at = lines.index("  signals")
    shown = {line.split("  ")[2]: line.split("  ")[-1].strip() for line in lines[at + 1 : at + 4]}
    assert re.fullmatch(r"70.0%, \d+\.\d s old, from scrape", shown["memory used ratio"])
    assert re.fullmatch(r"12, \d+\.\d s old, from scrape", shown["queue depth"])
    assert any(line.startswith("    unknown: ") and "latency p99" in line for line in lines)


def test_an_old_signal_is_unknown_with_its_age() -> None:
    signals = {"queue_depth": {"value": None, "age_seconds": 31.0, "source": "scrape"}, "running": None}
    lines = explained({"verdict": {**VERDICT, "signals": signals}})
    assert "    unknown: queue depth (31.0 s old), running" in lines


def test_a_place_with_another_weight_has_a_line() -> None:
    places = {"by_place": {"eu/a": 1.0, "eu/b": 0.8}, "weight_by_place": {"eu/a": 300, "eu/b": 240}}
    lines = explained({"verdict": {**VERDICT, **places}})
    assert "  weight for Envoys in eu/b: 240 (nearness 0.8)" in lines
    assert not [line for line in lines if "eu/a" in line or "place" in line]


def test_an_address_is_distinguished_from_a_request() -> None:
    assert query_of("10.0.0.1:8000") == {"endpoint": "10.0.0.1:8000"}
    assert query_of("[fd00::1]:8000") == {"endpoint": "[fd00::1]:8000"}
    assert query_of("10.0.0.1:8000#3") == {"endpoint": "10.0.0.1:8000"}
    assert query_of(str(PICK["request"])) == {"request": PICK["request"]}


def test_why_this_pick() -> None:
    text = "\n".join(explained({"picks": [PICK]}))
    first = f"{PICK['at']}  request {PICK['request']} to pool chat was sent to 10.0.0.1:8000: warm"
    assert text.splitlines()[0] == first
    for part in (
        "88% of its prompt was warm there",
        "expected time to the first token: 0.0413 s",
        "for retries: 10.0.0.2:8000",
        "candidates: 3",
    ):
        assert part in text
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.split()[0] == "compared")
    chosen, other = lines[at + 1 : at + 3]
    assert chosen.split() == ["10.0.0.1:8000", "*", "0.05", "0.02", "s", "0.01", "s", "7"]
    assert other.split() == ["10.0.0.2:8000", "0.9", "0", "s", "unknown", "0"]


def test_the_terms_of_a_cost_add_up_to_it() -> None:
    compared = {"address": "a:1", "cost": 0.17, "wait_seconds": 0.07, "cold_seconds": 0.01}
    compared |= {"penalty_seconds": 0.02, "matched_blocks": 7}
    lines = explained({"picks": [{**PICK, "considered": [compared], "pick_seconds": 0.0003}]})
    heading = next(line for line in lines if line.split()[0] == "compared")
    assert heading.split("  ")[1].strip() == "compared"
    assert heading.split() == [
        "compared",
        "cost",
        "=",
        "wait",
        "+",
        "cold",
        "+",
        "penalty",
        "+",
        "other",
        "terms",
        "matched",
        "blocks",
    ]
    (row,) = [line for line in lines if line.split()[0] == "a:1"]
    assert row.split() == ["a:1", "0.17", "s", "0.07", "s", "0.01", "s", "0.02", "s", "0.07", "s", "7"]
    assert "  decided in: 0.0003 s" in lines


def test_a_traced_pick_shows_each_cost_term_by_its_name() -> None:
    parts = {"wait_seconds": 0.07, "cold_seconds": 0.01, "penalty_seconds": 0.02, "matched_blocks": 7}
    compared = [
        {"address": "a:1", "cost": 0.17, **parts, "terms": {"first_token": 0.2, "trust": 0.0, "fair": -0.03}},
        {"address": "b:1", "cost": 0.3, **parts, "terms": {"first_token": 0.3, "trust": 0.0}},
    ]
    lines = explained({"picks": [{**PICK, "endpoint": "a:1", "considered": compared}]})
    heading = next(line for line in lines if line.split()[0] == "compared")
    assert " ".join(heading.split()) == "compared cost = first token + fair wait cold matched blocks"
    rows = [line.split()[-12:] for line in lines if line.split()[0] in {"a:1", "b:1"}]
    assert rows[0] == ["*", *["0.17", "s", "0.2", "s", "-0.03", "s", "0.07", "s", "0.01", "s", "7"]]
    assert rows[1][1:] == ["0.3", "s", "0.3", "s", "0", "s", "0.07", "s", "0.01", "s", "7"]
    assert not [line for line in lines if "other terms" in line or "penalty:" in line]


def test_price_of_cold_work_has_its_own_name() -> None:
    compared = {"address": "a:1", "cost": 0.47, "wait_seconds": 0.07, "cold_seconds": 0.1}
    compared |= {"price_seconds": 0.28, "penalty_seconds": 0.0, "matched_blocks": 7}
    lines = explained({"picks": [{**PICK, "considered": [compared]}]})
    heading = next(line for line in lines if line.split()[0] == "compared")
    assert "= wait + cold + price + penalty + other terms" in " ".join(heading.split())
    (row,) = [line for line in lines if line.split()[0] == "a:1"]
    assert row.split()[7:9] == ["0.28", "s"]
    legends = [line.split()[0] for line in lines if line.lstrip().startswith(("price:", "penalty:"))]
    assert legends == ["price:", "penalty:"]


def test_terms_below_a_tenth_of_the_difference_are_summed_up() -> None:
    terms = {"first_token": 0.2, "trust": 0.01, "session": 0.02}
    compared = [
        {"address": "a:1", "cost": 0.23, "terms": terms},
        {"address": "b:1", "cost": 0.7, "terms": {"first_token": 0.6, "trust": 0.05, "session": 0.05}},
    ]
    lines = explained({"picks": [{**PICK, "considered": compared}]})
    heading = next(line for line in lines if line.split()[0] == "compared")
    assert " ".join(heading.split()) == "compared cost = first token + others"
    (row,) = [line for line in lines if line.split()[0] == "b:1"]
    assert row.split() == ["b:1", "0.7", "s", "0.6", "s", "0.1", "s"]


def test_why_no_pick() -> None:
    entry = {"request": "r", "pool": None, "reason": "not_json", "endpoint": None, "considered": []}
    assert explained({"picks": [entry]}) == ["request r went by weights, without a pick: not_json"]
    refused = {**entry, "pool": "small", "reason": "unknown_model", "refused_with": 404}
    assert explained({"picks": [refused]}) == ["request r to pool small was refused with 404: unknown_model"]


def test_the_picked_rank_has_the_star() -> None:
    compared = [{"address": f"10.0.0.1:8000#{rank}", "cost": float(rank)} for rank in (1, 3)]
    lines = explained({"picks": [{**PICK, "rank": "1", "considered": compared}]})
    assert [line.split()[:2] for line in lines if "#" in line] == [
        ["10.0.0.1:8000#1", "*"],
        ["10.0.0.1:8000#3", "3"],
    ]


def test_why_this_weight() -> None:
    lines = explained({"verdict": VERDICT, "picks": []})
    assert lines[0] == "10.0.0.1:8000 (pool chat) has weight 300, 75.0% of its pool: memory 0.97"
    for line in (
        "    memory used ratio  97.0%, 0.4 s old, from scrape",
        "  score: 1.235",
        "    trust: 0.388",
        "  target share: 74.0%",
        "  unhealthy: no",
    ):
        assert line in lines
    assert "overridden" not in "\n".join(lines), "there is no override"


@pytest.mark.parametrize(
    "document", [None, [], {}, {"picks": [], "weights": []}, {"picks": None, "limit": 20}]
)
def test_an_empty_document_yields_no_lines(document: Any) -> None:
    assert explained(document) == []


def test_how_the_weight_moved() -> None:
    """All that it came from for the newest change, one line for the others."""
    lines = explained({"weights": [CHANGE, {**CHANGE, "weight": 900, "before": None, "reason": "neutral"}]})
    assert lines[0] == "2026-11-29T10:11:02.000+00:00  weight of 10.0.0.1:8000 900 -> 300: memory 0.97"
    assert "  score: 1.235" in lines
    assert lines[-1] == "2026-11-29T10:11:02.000+00:00  weight of 10.0.0.1:8000 none -> 900: neutral"


def test_what_a_newer_server_tells_is_not_lost() -> None:
    text = "\n".join(
        explained({"verdict": {"a:1": {"weight": 1, "stabiliser": {"slew_ratio": 0.5}}}, "new": {"x": 1}})
    )
    assert "a:1 has weight 1" in text
    assert "slew ratio: 50.0%" in text
    assert "new\n  x: 1" in text


@given(
    some.recursive(
        some.none() | some.booleans() | some.floats() | some.text(max_size=4),
        lambda inner: (
            some.lists(inner, max_size=3)
            | some.dictionaries(
                some.sampled_from(FIELDS),
                inner,
                max_size=4,
            )
        ),
        max_leaves=10,
    )
)  # fmt: skip
def test_no_document_breaks_it(document: Any) -> None:
    assert all(line.isprintable() for line in explained(document))


def test_explain_queries_both_services(admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Apart, xds_server knows of weights and ext_proc of picks."""
    admin.documents = {"/api/v1/decisions": {"verdict": VERDICT, "picks": [PICK]}}
    where = ["--admin", admin.url, "--ext-proc-admin", f"{admin.url}/"]
    assert main(["explain", "10.0.0.1:8000", *where]) == 0
    output = capsys.readouterr().out
    assert output.count("has weight 300") == 1, "one server is asked once"
    assert "was sent to 10.0.0.1:8000" in output
    decisions = [query for path, query in admin.requests if path == "/api/v1/decisions"]
    assert decisions == [{"endpoint": ["10.0.0.1:8000"]}]


def test_json_tells_it_by_server(admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    admin.documents = {"/api/v1/decisions": {"picks": [PICK]}}
    where = ["--admin", "127.0.0.1:1", "--ext-proc-admin", admin.url]
    assert main(["explain", str(PICK["request"]), "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out) == {admin.url: {"picks": [PICK]}}
    assert admin.requests[0][1] == {"request": [PICK["request"]]}


def test_with_serve_one_server_is_enough(admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """One server knows of weights and picks; the default of `--ext-proc-admin` is for the other forms."""
    admin.documents = {"/api/v1/decisions": {"weights": [], "verdict": None, "picks": []}}
    assert main(["explain", "no-such-request", "--admin", admin.url]) == 1
    errors = capsys.readouterr().err
    assert "19001" not in errors
    assert errors.count("\n") == 1


def test_an_unreachable_server_is_reported_with_the_os_error(
    admin: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    unused_tcp_port: int,
) -> None:
    monkeypatch.setattr("warmroute.cli.explain.DEFAULT_EXT_PROC_ADMIN", f"127.0.0.1:{unused_tcp_port}")
    admin.documents = {"/api/v1/decisions": {"weights": [], "verdict": None}}
    assert main(["explain", "no-such-request", "--admin", admin.url]) == 1
    errors = capsys.readouterr().err
    assert f"http://127.0.0.1:{unused_tcp_port} cannot be reached: connection refused" in errors
    assert "ssl" not in errors


def test_a_weight_shows_its_peers_and_an_override_its_end(
    admin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    load = {"memory_used_ratio": 0.97, "queue_depth": 12.0, "latency_p99_seconds": None}
    addresses = ("10.0.0.2:8000", "10.0.0.1:8000", "10.0.0.3:8000")
    admin.documents = {
        "/api/v1/decisions": {
            "verdict": {**VERDICT, "reason": "override", "overridden_until": UNTIL},
            "weights": [],
            "picks": [],
        },
        "/api/v1/endpoints": {
            "endpoints": [
                {"address": address, "pool": "chat", "weight": 300, "load": load} for address in addresses
            ]
            + [{"address": "10.1.0.1:8000", "pool": "code", "weight": 1, "load": None}]
        },
        "/api/v1/weights": {
            "weights": {
                "10.0.0.1:8000": {"score": 1.2},
                "10.0.0.2:8000": {"score": 2.4, "share": 0.25, "reason": "queue 12"},
            }
        },
    }
    assert main(["explain", "10.0.0.1:8000", "--admin", admin.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("75.0% of its pool: override, until " + UNTIL)
    at = next(number for number, line in enumerate(lines) if line.split()[:3] == ["of", "its", "pool"])
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == [addresses[1], addresses[0], addresses[2]]
    assert lines[at + 1].split()[1] == "*"
    assert lines[at + 2].split() == [
        "10.0.0.2:8000",
        "300",
        "25.0%",
        "2.4",
        "97.0%",
        "12",
        "unknown",
        "queue",
        "12",
    ]
    assert "10.1.0.1" not in "\n".join(lines)


def test_an_endpoint_that_is_not_let_in_is_explained(admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"address": "10.0.0.9:8000", "pool": "chat", "weight": None, "not_ready": "connection refused"}
    admin.documents = {
        "/api/v1/decisions": {"verdict": None, "weights": [], "picks": []},
        "/api/v1/endpoints": {"endpoints": [entry]},
    }
    assert main(["explain", "10.0.0.9:8000", "--admin", admin.url]) == 0
    assert capsys.readouterr().out == "10.0.0.9:8000 (pool chat) is not ready: connection refused\n"


@pytest.mark.parametrize(
    ("state", "why", "in_short"),
    [
        ("drained", f"drained by an operator until {UNTIL}", f"drained until {UNTIL}"),
        ("asleep", "asleep: in sleep mode", "asleep: in sleep mode"),
        ("leaving", "leaving: no source names it", "leaving: no source names it"),
        ("probing", "not ready: not asked yet", "not ready: not asked yet"),
    ],
)
def test_a_kept_out_endpoint_is_explained_first_with_its_peers(
    admin: Any, capsys: pytest.CaptureFixture[str], state: str, why: str, in_short: str
) -> None:
    load = {"memory_used_ratio": 0.5, "queue_depth": 3.0, "latency_p99_seconds": None}
    out = {"address": "10.0.0.1:8000", "pool": "chat", "state": state, "weight": None, "load": load}
    serving = {**out, "address": "10.0.0.2:8000", "state": "admitted", "weight": 900}
    verdict = {**VERDICT, "address": "10.0.0.2:8000", "weight": 900}
    drained = [{"endpoint": "10.0.0.1:8000", "until": UNTIL, "in_force": state == "drained"}]
    admin.documents = {
        "/api/v1/decisions": {"verdict": None, "weights": [CHANGE], "picks": []},
        "/api/v1/endpoints": {"endpoints": [out, serving]},
        "/api/v1/weights": {"weights": {"10.0.0.2:8000": verdict}, "drained": drained},
    }
    assert main(["explain", "10.0.0.1:8000", "--admin", admin.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"10.0.0.1:8000 (pool chat) is {why}"
    assert lines[2].split() == [
        "10.0.0.1:8000",
        "*",
        *["none"] * 3,
        "50.0%",
        "3",
        "unknown",
        *in_short.split(),
    ]
    admin.documents["/api/v1/decisions"]["verdict"] = verdict
    assert main(["explain", "10.0.0.2:8000", "--admin", admin.url]) == 0
    assert in_short in capsys.readouterr().out


def test_an_unknown_name_is_status_1(admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    admin.documents = {"/api/v1/decisions": {"picks": []}}
    where = ["--admin", admin.url, "--ext-proc-admin", "127.0.0.1:1"]
    assert main(["explain", "no-such-request", *where]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "nothing is known about no-such-request: only the newest picks" in output.err
    assert "127.0.0.1:1 cannot be reached" in output.err


def test_a_pool_is_named_as_such(admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    listed = [{"address": f"10.0.0.{number}:80", "pool": "chat"} for number in range(4)]
    admin.documents = {"/api/v1/decisions": {"picks": []}, "/api/v1/endpoints": {"endpoints": listed}}
    assert main(["explain", "chat", "--admin", admin.url]) == 1
    named = "it is a pool; name one of its endpoints (10.0.0.0:80, 10.0.0.1:80, 10.0.0.2:80, ...)"
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["explain", "diagnose"])
def test_a_wrong_server_is_named(admin: Any, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For example Envoy's own admin server."""
    assert main([verb, "10.0.0.1:80", "--admin", admin.url]) == 2
    error = capsys.readouterr().err
    assert f"{admin.url} has no /api/v1/" in error
    assert "name the admin server of xds_server" in error
    assert "nothing is known" not in error


def test_words_of_weights_are_explained() -> None:
    peers = [{"address": "10.0.0.2:8000", "score": 1.0, "reason": "neutral, at the floor"}]
    text = "\n".join(explained({"verdict": VERDICT, "peers": peers}))
    assert "score: the strategy's number" in text
    assert "neutral: a new endpoint" in text
    assert "neutral:" not in "\n".join(explained({"verdict": VERDICT}))


@pytest.mark.parametrize("columns", [40, 80])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    why = "GET http://127.0.0.1:80/v1/models was answered 200, and lists no model of 'm'; mend pools.models"
    out = {"address": "10.0.0.1:8000", "pool": "chat", "why": why}
    peers = [{"address": "10.0.0.1:8000", "weight": 1, "share": 0.5, "score": 20.0, "reason": "neutral"}]
    document = {"verdict": VERDICT, "kept_out": out, "peers": peers, "picks": [PICK], "weights": [CHANGE]}
    assert max(map(len, explained(document))) > 80
    assert max(map(len, explained(document, columns))) <= columns


def test_nobody_there_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "a:1", "--admin", "127.0.0.1:1", "--ext-proc-admin", "127.0.0.1:2"]) == 2
    assert "cannot be reached" in capsys.readouterr().err


def test_tables_stand_in_parts_that_have_room() -> None:
    """Every column with its row's address, and no line wider than the terminal."""
    terms = {"wait_seconds": 0.07123, "cold_seconds": 0.01, "penalty_seconds": 0.02, "matched_blocks": 7}
    entry = {"address": "10.0.0.1:8000", "cost": 0.17, **terms, "queue_depth": 11.0, "kv_ratio": 0.41}
    document = {"picks": [{**PICK, "considered": [entry, {**entry, "address": "10.0.0.2:8000"}]}]}
    wide, narrow = explained(document), explained(document, 80)
    at = next(number for number, line in enumerate(wide) if line.split()[:1] == ["compared"])
    assert max(map(len, wide[at : at + 3])) > 80
    parts = [line for line in narrow if line.split()[:1] == ["compared"]]
    assert len(parts) > 1
    rows = [line for line in narrow if line.split()[:1] == ["10.0.0.2:8000"]]
    assert len(rows) == len(parts)
    assert all(len(line) <= 80 for line in (*parts, *rows))
    assert sorted(" ".join(parts).replace("compared", "").split()) == sorted(wide[at].split()[1:])


def test_missing_picks_are_reported(
    admin: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setattr("warmroute.cli.explain.DEFAULT_EXT_PROC_ADMIN", f"127.0.0.1:{unused_tcp_port}")
    admin.documents = {"/api/v1/decisions": {"weights": [], "verdict": VERDICT}}
    assert main(["explain", "10.0.0.1:8000", "--admin", admin.url]) == 0
    output = capsys.readouterr()
    assert "has weight" in output.out
    assert f"http://127.0.0.1:{unused_tcp_port} cannot be reached: connection refused" in output.err
    assert "no picks are shown: name ext_proc's admin server by --ext-proc-admin" in output.err
