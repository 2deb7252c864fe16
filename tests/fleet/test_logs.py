"""No text from outside makes a line of the log, whoever logs it and however."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.logs import MAX_CHARS, OneLine, escaped

ROOT = Path(__file__).parents[2]
FORGED = "x\n2026-01-01 00:00:00,000 INFO fleet: all is well\x1b[2J\u2028\u202e\x85\x00\ud800\r"


def formatted(text: str) -> str:
    record = logging.LogRecord("n", logging.INFO, "p", 1, "Envoy %s refuses", (text,), None)
    return OneLine("%(levelname)s %(name)s: %(message)s").format(record)


@given(st.text(st.characters(codec=None), max_size=300))
def test_a_record_is_one_printable_line(text: str) -> None:
    line = formatted(text)
    assert line.isprintable()
    assert line.startswith("INFO n: Envoy ")
    assert len(line.encode()) >= len(text)


def test_what_is_printable_stays_as_it_is() -> None:
    assert escaped("Grüße an 10.0.0.1:80, 東京 🚀") == "Grüße an 10.0.0.1:80, 東京 🚀"
    assert formatted("a\nb\tc\x1b") == r"INFO n: Envoy a\nb\tc\x1b refuses"


def test_a_record_has_a_limit() -> None:
    line = formatted("\n" * 10_000_000)
    assert len(line) < 3 * MAX_CHARS
    assert "characters)" in line


def test_lines_of_a_traceback_are_no_records() -> None:
    error = ValueError(FORGED)
    record = logging.LogRecord("n", logging.ERROR, "p", 1, "failed", None, (ValueError, error, None))
    record.stack_info = FORGED
    first, *others = OneLine("%(levelname)s %(message)s").format(record).split("\n")
    assert first == "ERROR failed"
    assert len(others) == 4
    assert all(line.startswith("    ") and line.isprintable() for line in others)


@pytest.mark.parametrize("where", ["fleet.logs", "some.library"])
def test_every_logger_of_a_service_goes_through_it(where: str) -> None:
    code = (
        "import logging\n"
        "from fleet.logs import configure_logging\n"
        "configure_logging()\n"
        f"logging.getLogger({where!r}).warning('%s', {FORGED!r})\n"
        f"logging.getLogger({where!r}).error({FORGED.replace('%', '')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stderr=subprocess.PIPE)
    lines = done.stderr.decode().split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_logging_is_configured_in_one_place() -> None:
    """So that no caller has to remember."""
    packages = ("fleet", "xds_server", "ext_proc", "gpu_agent", "doctor", "cli", "simulator", "bench")
    named = ("basicConfig", "StreamHandler(", "FileHandler(", "addHandler(", "dictConfig", "setFormatter(")
    places = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if any(name in path.read_text() for name in named)
    }
    assert places == {"fleet/logs.py"}
