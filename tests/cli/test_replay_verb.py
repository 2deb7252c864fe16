"""`warmroute replay` as its user sees it."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING

import pytest

from warmroute.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.io


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    draw = random.Random(1)
    lines = []
    for number in range(40):
        chat = draw.randrange(5)
        blocks = [chat * 100 + block for block in range(2 + number // 10)]
        entry = {"timestamp": number * 500, "input_length": len(blocks) * 512 + 9, "output_length": 8}
        lines.append(json.dumps({**entry, "hash_ids": blocks}))
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("columns", [40, 80, 340])
def test_table_fits_the_terminal(
    trace: Path, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    policies = ["--policy", "least_request", "--policy", "warmroute"]
    assert main(["replay", str(trace), "--replicas", "2", *policies, "--seeds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert {"least_request", "warmroute"} <= {line.split(" ")[0] for line in lines}
    assert "…" not in "".join(lines), "no figure is cut"
    assert ("±" in "".join(lines)) == (columns == 340)


@pytest.mark.parametrize("columns", [40, 80])
def test_sweep_prints_its_definition(
    trace: Path, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    policies = ["--policy", "round_robin", "--policy", "smg"]
    assert main(["replay", str(trace), "--replicas", "1", *policies, "--sweep"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns
    assert "TTFT p90 at or under" in " ".join(text.split())
    rows = [line.split() for line in text.splitlines() if line.startswith(("smg ", "round_robin "))]
    rates = [float(row[1].rstrip("*")) for row in rows]
    assert len(rates) == 2
    assert rates[0] >= rates[1], "the best is first"
    assert not any("*" in cell for row in rows for cell in row[3:]), "each at another rate"


def test_references_are_named_as_such(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = ["--policy", "least_request", "--policy", "cold_price"]
    assert main(["replay", str(trace), "--replicas", "1", *policies]) == 0
    assert "more than a router can: cold_price." in " ".join(capsys.readouterr().out.split())
    assert main(["replay", str(trace), "--replicas", "1", "--policy", "least_request"]) == 0
    assert "reference" not in capsys.readouterr().out


def test_sweep_has_json(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--replicas", "1", "--policy", "smg", "--sweep", "--seeds", "2", "--json"]
    assert main(["replay", str(trace), *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    knee = result["knees"]["smg"]
    assert knee["ttft_p90"]["mean"] <= result["limit_ttft_p90_seconds"]
    per_second = 40 / 19.5
    assert knee["requests_per_second"]["mean"] == pytest.approx(knee["rate"]["mean"] * per_second)
    assert knee["rate"]["half_width"] is not None


def test_json_has_every_figure_and_interval(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(trace), "--replicas", "2", "--seeds", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {
        *("trace", "requests", "parameters", "ideal_hit_ratio", "load", "warnings", "policies")
    }
    assert result["parameters"]["replicas"] == result["parameters"]["seeds"] == 2
    assert result["warnings"] == []
    assert result["requests"] == 40
    assert set(result["policies"]) == {"round_robin", "least_request", "warmroute"}
    figures = result["policies"]["warmroute"]
    assert 0 < figures["hit_ratio"]["mean"] <= result["ideal_hit_ratio"]
    assert figures["ttft_p90"]["mean"] > 0
    assert figures["ttft_p90"]["half_width"] >= 0
    main(["replay", str(trace), "--replicas", "2", "--policy", "smg", "--json"])
    assert json.loads(capsys.readouterr().out)["policies"]["smg"]["ttft_p90"]["half_width"] is None


def test_failures_are_shown(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fault = "--fail", "5:0:5"
    assert main(["replay", str(trace), "--replicas", "1", "--policy", "smg", *fault]) == 0
    assert " failed " in capsys.readouterr().out
    assert main(["replay", str(trace), "--replicas", "1", "--policy", "smg"]) == 0
    assert " failed " not in capsys.readouterr().out


def test_overload_and_late_fault_are_said(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--replicas", "1", "--policy", "smg", "--rate", "200", "--fail", "9e3:0:5"]
    assert main(["replay", str(trace), *arguments]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Warning: past the knee" in text
    assert "): smg. There queues grow" in text
    assert "Warning: --fail at 9000 s has no effect" in text
    load = re.search(r"The prompts alone take (\d+)% of the replicas' time without any cache", text)
    assert load is not None
    assert int(load[1]) > 100


def test_leaving_clients_are_not_past_the_knee(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(trace), "--policy", "smg", "--cancel", "1:0.001", "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert [warning.partition(":")[0] for warning in warnings] == ["clients left before their answers' end"]


def test_sample_comes_along(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--most", "200", "--policy", "least_request"]) == 0
    assert "200 requests of mooncake_conversation, 2 times its rate" in capsys.readouterr().out


def test_plot_is_drawn(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    assert main(["replay", str(trace), "--policy", "smg", "--seeds", "2", "--plot", str(path)]) == 0
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rate", "0"], "--rate is 0.0; allowed: 0.001 to 1000"),
        (["--replicas", "-1"], "--replicas is -1; allowed: 1 to 4096"),
        (["--rate", "nan"], "--rate is nan; allowed: 0.001 to 1000"),
        (["--ttft", "-1"], "--ttft is -1.0; allowed: 0.001 to 1e+06"),
        (["--most", "0"], "--most is 0; allowed: 1 to"),
        (["--kv-tokens", "1"], "--kv-tokens is 1; allowed: 512 to"),
        (["--kv-tokens", "2048"], "has 2065 tokens; allowed: 2048, the smaller of --kv-tokens"),
        (["--scrape-interval", "0"], "--scrape-interval is 0.0; allowed: 0.01 to 5"),
        (["--signal-delay", "-1"], "--signal-delay is -1.0; allowed: 0 to 60"),
        (["--jitter", "-1"], "--jitter is -1.0; allowed: 0 to 1e+06"),
        (["--fail", "1:8:1"], "--fail names replica 8; allowed: 0 to 7"),
        (["--copies", "50001"], "of 40 requests; allowed: up to 50,000, for 2,000,000 requests in all"),
        (["--cancel", "2:1"], "--cancel is '2:1'; allowed: SHARE from 0 to 1"),
        (["--fail", "soon"], "--fail is 'soon'; allowed: AT:REPLICA:SECONDS[:KIND]"),
        (["--plot", "x.gif"], "--plot is x.gif; allowed: a file that ends in .png or .svg"),
        (["--sweep", "--plot", "x.png"], "--plot is of one rate"),
    ],
)
def test_wrong_argument_is_named(
    trace: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(trace), *arguments]) == 2
    assert says in capsys.readouterr().err


def test_missing_trace_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
