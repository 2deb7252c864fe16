"""Problems in settings are described in words, with their place, at any time."""

from __future__ import annotations

import re
from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet.errors import SettingsError
from fleet.settings import Settings, load_settings, located, parse_settings
from fleet.settings.load import _models as models
from fleet.settings.words import PATTERNS
from warmroute.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydantic import BaseModel

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
        for part in schema.values():
            yield from patterns(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from patterns(part)


def test_each_pattern_of_settings_has_words() -> None:
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
def test_removed_value_or_field_has_the_next_step(text: str, step: str) -> None:
    with pytest.raises(SettingsError, match=f"{re.escape(step)}$"):
        parse_settings(f"{TEXT}{text}\n")


def test_a_field_without_a_default_is_not_to_be_deleted() -> None:
    text = "weights: {topology: {links: [{between: [a, b], link: FAST}]}}"
    with pytest.raises(SettingsError) as caught:
        parse_settings(f"{TEXT}{text}\n")
    assert "delete" not in next(problem for problem in caught.value.problems if "FAST" in problem)


LIBRARYS = re.compile(
    r"Input should|String should|Tuple|Object of|items?\b|validation|function-|literal\[|type=|dictionary"
    r"|valid |codec|unicode string|must be str|Exceeds|\.\.\.\[|\^"
)
"""Words of pydantic, PyYAML and Python."""
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 1e300, float("nan"), 10**30, "", "x" * 500, "\n", "é:/", "127.0.0.1:9901x"),
    *([], {}, [[]], [None], {"é": 1}, ["x"] * 70),
)


def paths(model: type[BaseModel], before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every field, and those inside of it; lists by their first entry."""
    for name, field in model.model_fields.items():
        here = (*before, field.alias or name)
        yield here
        listed = "tuple[" in str(field.annotation)
        for inner in models(field.annotation):
            yield from paths(inner, (*here, 0) if listed else here)


def put(document: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    node: Any = document
    for step, following in pairwise(path):
        if isinstance(step, int):
            node += [] if node else [None]
            node[0] = node[0] if node[0] is not None else {}
        elif step not in node:
            node[step] = [] if isinstance(following, int) else {}
        node = node[step]
    node[path[-1]] = value
    return document


PATHS = (*paths(Settings),)
SECTIONS = {path[:length] for path in PATHS for length in range(1, len(path))}


def no_librarys_words(document: dict[str, Any], value: Any) -> None:
    try:
        parse_settings(yaml.safe_dump(document, allow_unicode=True), "f.yaml")
    except SettingsError as error:
        text = "\n".join(error.problems).replace(repr(value)[:70], "")
        assert not LIBRARYS.search(text), text


@pytest.mark.untraced
@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:20])
def test_errors_of_fields_have_no_library_terms(value: Any) -> None:
    document: dict[str, Any] = {}
    for path in PATHS:
        if path not in SECTIONS:
            put(document, path, deepcopy(value))
    no_librarys_words(document, value)


@pytest.mark.untraced
@pytest.mark.parametrize("value", [None, 1, "", [], {}, [1]], ids=repr)
def test_errors_of_sections_have_no_library_terms(value: Any) -> None:
    for path in SECTIONS:
        if path[-1] != 0:
            no_librarys_words(put(yaml.safe_load(TEXT), path, value), value)


@pytest.mark.parametrize(
    ("more", "allowed"),
    [
        (
            "admin: {address: 127.0.0.1:9901x}",
            ":12: admin.address: '127.0.0.1:9901x'; allowed: host:port with a",
        ),
        ("pools: []", ":1: pools: []; allowed: a list of 1 or more entries"),
        ("upgrades: !!binary aGVsbG8=", ": a key or value of another kind; allowed: text, numbers, "),
        ("? !!binary aGVsbG8=\n: 1", ": a key or value of another kind; allowed: text, numbers, "),
        (
            'telemetry: {service_name: "\\ud800"}',
            ": a value that cannot be read; allowed: text in UTF-8, and ",
        ),
        (f"limits: {{endpoints: 1{'0' * 5000}}}", ": a number that cannot be read; allowed: "),
        ('upgrades: "\x00"', ":12: the character U+0000; allowed: text without control characters"),
        ("admin: {address: '[1:2]:80'}", "'[1:2]:80'; allowed: an IPv6 address in the brackets, then :port"),
        ("upgrades: [", "f.yaml:12: "),
    ],
)
def test_impossible_values_are_refused_in_words(more: str, allowed: str) -> None:
    text = TEXT.replace(TEXT[: TEXT.index("listeners")], f"{more}\n") if more == "pools: []" else TEXT + more
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, "f.yaml")
    (problem,) = caught.value.problems
    assert allowed in problem


def test_binary_file_is_refused_with_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "warmroute.yaml"
    path.write_bytes(b"pools:\n\n\x9e\x00")
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert caught.value.problems == [f"{path}:3: byte 0x9e is no UTF-8; allowed: a text file in UTF-8"]


def test_an_operator_reads_no_regular_expression() -> None:
    text = TEXT + "upgrades: {paths: [realtime]}\n"
    with pytest.raises(SettingsError) as caught:
        parse_settings(text)
    (problem,) = caught.value.problems
    allowed = "a path of a URL: / and then printable ASCII without spaces"
    assert problem.endswith(f":12: upgrades.paths[0]: 'realtime'; allowed: {allowed}")


@pytest.mark.parametrize(
    ("problem", "expected"),
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
def test_a_problem_that_comes_later_gets_its_place(file: Path, problem: str, expected: str) -> None:
    error = located(file, SettingsError([problem.replace("{file}", str(file))]))
    assert error.problems == [expected.replace("{file}", str(file))]


def test_without_the_file_problems_stay_as_they_are(tmp_path: Path) -> None:
    error = SettingsError(["listeners[0].tls: no"])
    assert located(tmp_path / "none.yaml", error) is error


@pytest.mark.io
def test_a_start_without_certificates_says_where_they_are_named(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["xds", str(file)]) == 2
    output = capsys.readouterr().err
    assert f"{file}:9: listeners[0].tls.certificate_file: '/nowhere/tls.crt' cannot be read" in output
