"""Problems in settings are told in words, at their place, whenever they are found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from cli.main import main
from fleet.errors import SettingsError
from fleet.settings import Settings, located, parse_settings
from fleet.settings.words import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = """\
pools:
  - name: chat
    endpoints: [{address: "127.0.0.1:1"}]
listeners:
  - name: llm
    address: 127.0.0.1:10000
    pool: chat
    tls:
      certificate_file: /nowhere/tls.crt
      key_file: /nowhere/tls.key
xds: {address: "unix:/tmp/unused.sock"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "warmroute.yaml"
    path.write_text(TEXT)
    return path


def patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for held in schema.values():
            yield from patterns(held)
    elif isinstance(schema, list):
        for held in schema:
            yield from patterns(held)


def test_each_pattern_of_settings_is_told_in_words() -> None:
    assert set(patterns(Settings.model_json_schema())) == set(PATTERNS)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (
            "weights: {memory: auto}",
            "'auto'; allowed: 'kv', 'gpu' or 'highest'; or delete the line for the default",
        ),
        (
            "ext_proc: {pick: {cold_without_load: weights}}",
            "trial_interval_seconds; otherwise delete the line",
        ),
    ],
)
def test_a_value_or_field_that_is_gone_is_told_with_the_next_step(text: str, step: str) -> None:
    with pytest.raises(SettingsError, match=f"{re.escape(step)}$"):
        parse_settings(f"{TEXT}{text}\n")


def test_a_field_without_a_default_is_not_to_be_deleted() -> None:
    text = "weights: {topology: {links: [{between: [a, b], link: FAST}]}}"
    with pytest.raises(SettingsError) as caught:
        parse_settings(f"{TEXT}{text}\n")
    assert "delete" not in next(problem for problem in caught.value.problems if "FAST" in problem)


def test_an_operator_reads_no_regular_expression() -> None:
    text = TEXT + "upgrades: {paths: [realtime]}\n"
    with pytest.raises(SettingsError) as caught:
        parse_settings(text)
    (problem,) = caught.value.problems
    asked = "a path of a URL: / and then printable ASCII without spaces"
    assert problem.endswith(f":12: upgrades.paths[0]: 'realtime'; allowed: {asked}")


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("listeners[0].tls.certificate_file: no", "{file}:9: listeners[0].tls.certificate_file: no"),
        ("listeners[0].show_decision: no", "{file}:5: listeners[0].show_decision: no"),
        ("listeners[7].tls: no", "{file}:4: listeners[7].tls: no"),
        ("signals.access_log: no", "{file}: signals.access_log: no"),
        ("{file}: pools: no", "{file}: pools: no"),
        ("{file}:3: pools: no", "{file}:3: pools: no"),
        ("something: else", "something: else"),
        ("no path at all", "no path at all"),
    ],
)
def test_a_problem_that_comes_later_gets_its_place(file: Path, problem: str, told: str) -> None:
    found = located(file, SettingsError([problem.replace("{file}", str(file))]))
    assert found.problems == [told.replace("{file}", str(file))]


def test_without_the_file_problems_stay_as_they_are(tmp_path: Path) -> None:
    error = SettingsError(["listeners[0].tls: no"])
    assert located(tmp_path / "none.yaml", error) is error


def test_a_start_without_certificates_says_where_they_are_named(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["xds", str(file)]) == 2
    told = capsys.readouterr().err
    assert f"{file}:9: listeners[0].tls.certificate_file: '/nowhere/tls.crt' cannot be read" in told
