"""`warmroute replay` as its user sees it."""

from __future__ import annotations

import json
import random
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


@pytest.mark.parametrize("columns", [40, 80, 200])
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
    assert ("±" in "".join(lines)) == (columns == 200)


def test_json_has_every_figure_and_interval(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(trace), "--replicas", "2", "--seeds", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["requests"] == 40
    interval = result["policies"]["warmroute"]["ttft_p90"]
    assert interval["mean"] > 0
    assert interval["half_width"] >= 0
    main(["replay", str(trace), "--replicas", "2", "--json"])
    assert json.loads(capsys.readouterr().out)["policies"]["warmroute"]["ttft_p90"]["half_width"] is None


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
