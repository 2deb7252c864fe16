"""`warmroute doctor`: where it reads, what it prints, how it ends."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from tests.doctor.conftest import DATA, Patient, load
from tests.doctor.test_front import GOOD as FRONT
from warmroute.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

GOOD = str(DATA / "config_dump.json")
MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
BOOTSTRAP = f"""
static_resources:
  listeners:
  - name: front
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/{MANAGER}
          route_config:
            name: front
            virtual_hosts:
            - name: all
              routes:
              - {{name: chat, match: {{prefix: /}}, route: {{cluster: engines}}}}
"""


@pytest.fixture
def bad(tmp_path: Path) -> str:
    """A bootstrap whose one route has no time limit: an error."""
    path = tmp_path / "envoy.yaml"
    path.write_text(BOOTSTRAP)
    return str(path)


def doctor(*arguments: str) -> int:
    return main(["doctor", *arguments])


def test_a_good_configuration_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--clusters", str(DATA / "clusters.json"), "--stats", str(DATA / "stats.json")]
    assert doctor("--config-dump", GOOD, *files) == 0
    assert capsys.readouterr().out == "Nothing found. Looked at: 1 listener, 5 routes, 3 clusters.\n"


def test_a_bad_one_ends_with_1_and_says_why(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("--config-dump", bad) == 1
    out = capsys.readouterr().out
    assert "error    route-timeout: " in out
    assert "where  routes[front].virtual_hosts[all].routes[chat].route.timeout: none is set, so 15 s" in out
    assert "fix    `timeout: 0s`" in out
    assert out.endswith("1 error\n")


def test_json_is_one_object(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("--config-dump", bad, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["counts"] == {"error": 1, "warning": 0, "note": 0}
    assert [finding["rule"] for finding in document["findings"]] == ["route-timeout"]


@pytest.mark.parametrize(("fail_on", "status"), [("error", 0), ("warning", 0), ("note", 1)])
def test_only_what_is_bad_enough_fails(tmp_path: Path, fail_on: str, status: int) -> None:
    path = tmp_path / "envoy.yaml"
    path.write_text(BOOTSTRAP.replace("{cluster: engines}", "{cluster: engines, timeout: 120s}"))
    assert doctor("--config-dump", str(path), "--fail-on", fail_on) == status


def test_what_is_said_of_the_traffic_counts(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "warmroute.yaml"
    settings.write_text(
        "pools: [{name: other}]\nlisteners: [{name: l, address: '127.0.0.1:1', pool: other}]\n"
    )
    assert doctor("--config-dump", bad, "--settings", str(settings)) == 0
    assert doctor("--config-dump", bad, "--p99-seconds", "20") == 1
    assert "under the P99 of 20 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cut.json", (DATA / "config_dump.json").read_text()[:5000]),
        ("empty.json", ""),
        ("empty.yaml", ""),
        ("other.json", '{"a": 1}'),
        ("list.yaml", "- a\n- b\n"),
        ("broken.yaml", "a: [b\n"),
        ("deep.json", "[" * 100_000),
        ("deep.yaml", "[" * 5000),
        ("date.yaml", "a: 2026-99-99\n"),
        ("binary.yaml", "\x00\x01"),
        ("no-sections.json", '{"configs": []}'),
        ("junk.json", '{"configs": [1, "x", null, {"@type": 5}]}'),
        ("junk.yaml", "static_resources: {listeners: x, clusters: [1, {name: 7}]}"),
        ("warmroute.yaml", "pools: [{name: a}]\nadmin: {address: '127.0.0.1:1'}\n"),
        ("tag.yaml", "!!python/object/apply:os.getcwd []\n"),
    ],
)
def test_what_cannot_be_read_ends_with_2(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert doctor("--config-dump", str(path)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("warmroute doctor: ")
    assert str(path) in printed.err


def test_files_that_are_swapped_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    clusters, stats = str(DATA / "clusters.json"), str(DATA / "stats.json")
    assert doctor("--config-dump", GOOD, "--clusters", stats, "--stats", stats) == 2
    assert f"{stats}: " in capsys.readouterr().err
    assert doctor("--config-dump", GOOD, "--clusters", clusters, "--stats", clusters) == 2
    assert f"{clusters}: " in capsys.readouterr().err
    assert doctor("--config-dump", clusters) == 2


def test_a_file_that_is_not_there_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("--config-dump", str(tmp_path / "none.json")) == 2
    assert "none.json" in capsys.readouterr().err


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert doctor("--config-dump", str(path)) == 2
    assert "at most" in capsys.readouterr().err


def test_an_admin_that_is_not_there_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert doctor("--admin", f"127.0.0.1:{bound.getsockname()[1]}") == 2
    output = capsys.readouterr().err
    assert "cannot be reached: connection refused" in output
    assert "ssl" not in output
    assert doctor("--admin", f"unix:{tmp_path}/admin.sock") == 2
    assert doctor("--admin", "http://[") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--p99-seconds", "nan"],
        ["--p99-seconds", "0"],
        ["--longest-prompt-bytes", "-1"],
        ["--longest-prompt-bytes", "1e3"],
        ["--ping-permit", "5"],
        ["--ping-permit", "a=x"],
        ["--fail-on", "all"],
    ],
)
def test_senseless_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        doctor("--config-dump", GOOD, *arguments)
    assert ended.value.code == 2


def test_a_permit_is_taken(tmp_path: Path) -> None:
    config = load("config_dump")
    text = json.dumps(config).replace("warmroute_ext_proc", "processor")
    path = tmp_path / "dump.json"
    path.write_text(text)
    assert doctor("--config-dump", str(path)) == 1
    assert doctor("--config-dump", str(path), "--ping-permit", "processor=30") == 0


@pytest.mark.parametrize("proxy", ["nginx", "traefik", "kong"])
def test_a_proxy_in_front_is_judged(proxy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(f"--{proxy}", str(FRONT / proxy)) == 0
    assert capsys.readouterr().out.startswith("Nothing found. Looked at: ")
    assert doctor(f"--{proxy}", str(FRONT / proxy), "--p99-seconds", "9999", "--json") == int(
        proxy != "traefik"
    )
    document = json.loads(capsys.readouterr().out)
    assert document["proxy"] == proxy
    assert document["looked_at"]["routes"] == 1
    assert doctor(f"--{proxy}", str(tmp_path)) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_the_p99_of_the_envoy_behind_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patient = Patient()
    stats = tmp_path / "stats.json"
    patient.took("engines", 4_000_000, requests=100)
    stats.write_text(json.dumps(patient.stats))
    files = ["--config-dump", GOOD, "--stats", str(stats)]
    assert doctor("--nginx", str(FRONT / "nginx"), *files, "--json") == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["rule"], finding["what"]) == ("silence-limit", "3600s, under the P99 of 4000 s")
    assert doctor("--nginx", str(FRONT / "nginx"), *files, "--p99-seconds", "100") == 0


@pytest.mark.parametrize(("port", "status"), [(8000, 0), (8001, 2)])
def test_only_ways_to_the_listeners_of_the_settings_count(
    port: int, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "warmroute.yaml"
    path.write_text(f"pools: [{{name: a}}]\nlisteners: [{{name: l, address: '0.0.0.0:{port}', pool: a}}]\n")
    assert doctor("--nginx", str(FRONT / "nginx"), "--settings", str(path)) == status
    assert status == 0 or f"(port {port})" in capsys.readouterr().err


def test_one_proxy_is_judged_at_a_time() -> None:
    with pytest.raises(SystemExit) as ended:
        doctor("--nginx", str(FRONT / "nginx"), "--kong", str(FRONT / "kong"))
    assert ended.value.code == 2
