"""What a real terminal shows of each verb that draws, before a running fleet: at any width, keys and all."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.product.fleet import REQUEST_ID, running_fleet
from tests.terminal import Terminal, verb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.product.fleet import Fleet

WIDTHS = (40, 80, 200)
SLA = """
pools:
  - name: chat
    endpoints: [{address: "10.0.0.11:8000"}, {address: "10.0.0.12:8000"}, {address: "10.0.0.13:8000"}]
    sla: {first_token_p95_seconds: 0.8, tolerated_error_ratio: 0.15, base_round_trip_seconds: 0.02}
    health_check: {}
listeners:
  - {name: llm, address: "127.0.0.1:10000", pool: chat}
"""


@pytest.fixture(scope="module")
def _running() -> Iterator[Fleet]:
    """One for all tests here, which look at it and do not change it."""
    with running_fleet() as made:
        yield made


@pytest.fixture
def fleet(_running: Fleet) -> Iterator[Fleet]:
    _running.check()
    yield _running
    _running.check()


def test_top_draws_the_fleet_at_any_size_and_obeys_every_key(fleet: Fleet) -> None:
    with Terminal(verb("top", "--admin", fleet.admin, "--interval", "0.2"), 80, 24) as top:
        first = top.until(*fleet.engines, "q quit", "pools", "warm ", "P99", "ok")
        assert "3 endpoints" in first.splitlines()[0]
        top.press("sss")
        top.until("by weight ▲", "Weight▲")
        top.press("S")
        top.until("Weight▼")
        top.resize(40, 10)
        top.until(*fleet.engines, "Warmroute  3 endpoints", "q quit")
        assert not [line for line in top.lines if "…" in line]
        top.press("?")
        top.until("Home, End, g, G", "q, Ctrl-C")
        top.resize(200, 12)
        top.press("x")
        top.until(*fleet.engines, "P50", "P99s", "Weights", "Reason", "? keys")
        top.resize(80, 5)
        top.press("G")
        top.until(max(fleet.engines), lambda text: min(fleet.engines) not in text, "2 of 3 rows")
        top.press("\x1b[H")
        top.until("2 of 3 rows")
        top.resize(80, 24)
        top.press(f"/{fleet.engines[1]}\r")
        top.until(fleet.engines[1], lambda text: fleet.engines[0] not in text, "(1 of 3)")
        top.press("\x1b")
        top.until(*fleet.engines)
        top.press("p")
        top.until("PAUSED")
        top.press("q")
        assert top.ended() == 0
        assert top.restored()


@pytest.mark.parametrize("name", ["explain endpoint", "explain request", "diagnose", "doctor", "sla"])
def test_what_is_printed_is_the_same_at_any_width(fleet: Fleet, tmp_path: Path, name: str) -> None:
    (tmp_path / "sla.yaml").write_text(SLA)
    engine, admin = fleet.engines[0], ("--admin", fleet.admin)
    command, wanted = {
        "explain endpoint": (verb("explain", engine, *admin), (engine, "weight")),
        "explain request": (verb("explain", REQUEST_ID, *admin), (REQUEST_ID, "cold")),
        "diagnose": (verb("diagnose", *admin), (*fleet.engines, "(pool)", "evidence")),
        "doctor": (verb("doctor", "--admin", fleet.envoy_admin), ("ext-proc-message-timeout", "1 warning")),
        "sla": (verb("sla", str(tmp_path / "sla.yaml")), ("chat:", "attempts")),
    }[name]
    with ExitStack() as stack:
        terminals = [stack.enter_context(Terminal(command, 100, 200)) for _ in WIDTHS]
        for terminal, columns in zip(terminals, WIDTHS, strict=True):
            terminal.resize(columns, 200)
            terminal.press("q ?\r")
        for terminal in terminals:
            assert terminal.ended() in {0, 1}, terminal.text
            assert "Traceback" not in terminal.raw
            assert "\x1b" not in terminal.raw
            for part in wanted:
                assert part.replace(" ", "") in terminal.words, terminal.text
