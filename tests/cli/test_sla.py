"""`warmroute sla`: the derivation as a table and as JSON; an SLA that cannot be kept ends with the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from warmroute.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = """\
pools:
  - name: chat
    endpoints: [{address: "10.0.0.1:8000"}, {address: "10.0.0.2:8000"}]
    sla: {first_token_p95_seconds: 0.8, tolerated_error_ratio: 0.15, base_round_trip_seconds: 0.02}
    health_check: {}
  - name: plain
listeners: [{name: main, address: "127.0.0.1:10000", pool: chat}]
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "warmroute.yaml"
    path.write_text(SETTINGS)
    return path


def test_the_table_names_number_value_and_reason(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sla", str(settings)]) == 0
    output = capsys.readouterr().out
    (attempts,) = [line for line in output.splitlines() if line.startswith("  attempts ")]
    assert attempts.split()[:2] == ["attempts", "2"]
    assert "0.15^2 = 2.25%" in attempts
    assert "plain: neither an sla nor a health_check" in output
    assert max(map(len, output.splitlines())) <= 120


def test_reasons_are_wrapped_and_never_cut(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sla", str(settings), "--json"])
    numbers = json.loads(capsys.readouterr().out)["chat"]
    main(["sla", str(settings), "--pool", "chat"])
    words = capsys.readouterr().out.split()
    for number in numbers:
        for word in number["why"].split():
            assert word in words


def test_json_holds_one_pool_or_all(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sla", str(settings), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["plain"] == []
    assert {"name", "value", "why"} == set(document["chat"][0])
    assert main(["sla", str(settings), "--json", "--pool", "plain"]) == 0
    assert json.loads(capsys.readouterr().out) == {"plain": []}


def test_what_cannot_be_kept_ends_with_status_2_and_the_reason(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.write_text(SETTINGS.replace("0.8", "0.2"))
    for verb in ("sla", "check"):
        assert main([verb, str(settings)]) == 2
        errors = capsys.readouterr().err
        assert f"{settings}:4: pools[0].sla.first_token_p95_seconds: 0.2; allowed: at least 0.3," in errors
        assert "the base round trip takes 20 ms" in errors


def test_an_unknown_pool_is_an_error(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sla", str(settings), "--pool", "nobody"]) == 2
    assert "allowed: chat, plain" in capsys.readouterr().err
