"""`warmroute top` as a whole: one table for scripts; on a terminal it obeys keys and leaves no trace."""

from __future__ import annotations

import json
import re
import signal
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.terminal import ALTERNATE_SCREEN, WAIT_SECONDS, Terminal, verb
from warmroute.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def fake_admin(admin: Any, endpoints: dict[str, Any], status: dict[str, Any]) -> Any:
    admin.documents = {"/api/v1/endpoints": endpoints, "/api/v1/status": status}
    return admin


def test_once_prints_one_table(fake_admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", fake_admin.url, "--once", "--sort", "weight", "--reverse"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "Endpoint",
        "10.0.0.1:8000",
        "10.0.0.2:8000",
        "10.0.0.3:8000",
    ]
    assert "\x1b" not in "".join(lines)


def test_where_no_terminal_is_it_prints_once(fake_admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", fake_admin.url.removeprefix("http://"), "--filter", "stalled"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_json_tells_unknown_as_null(fake_admin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", fake_admin.url, "--json", "--sort", "weight"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["weight"] for row in document["endpoints"]] == [100, 300, None]
    assert document["endpoints"][0]["health"].startswith("stalled")
    assert document["status"]["nacks"] == 1


def test_causes_of_incomplete_kv_events_are_printed(
    fake_admin: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    events = {"10.0.0.1:8000": {"freshness": "stale", "cause": "a replay is in progress", "ranks": []}}
    fake_admin.documents["/api/v1/kv_events"] = events
    assert main(["top", "--admin", fake_admin.url, "--once"]) == 0
    note = "KV events of 10.0.0.1:8000 are stale: a replay is in progress"
    assert note in capsys.readouterr().err
    assert main(["top", "--admin", fake_admin.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kv_events"] == events


def test_the_token_is_borne(fake_admin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_admin.token = "open-sesame"
    assert main(["top", "--admin", fake_admin.url, "--once"]) == 2
    assert "--token-file" in capsys.readouterr().err
    file = tmp_path / "token"
    file.write_text("open-sesame\n")
    assert main(["top", "--admin", fake_admin.url, "--once", "--token-file", str(file)]) == 0
    file.write_text("\n")
    assert main(["top", "--admin", fake_admin.url, "--once", "--token-file", str(file)]) == 2
    assert "holds no token" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "word"), [(404, "has no /api"), (500, "status 500"), (b"<html>", "no JSON")]
)
def test_an_answer_of_no_use_ends_with_its_reason(
    admin: Any, document: Any, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.documents = {"/api/v1/endpoints": document}
    assert main(["top", "--admin", admin.url, "--once"]) == 2
    errors = capsys.readouterr().err
    assert word in errors
    assert "Traceback" not in errors


def test_nobody_there_ends_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", "http://127.0.0.1:1", "--once"]) == 2
    assert "cannot be reached" in capsys.readouterr().err


def top(*arguments: str, **environment: str) -> Terminal:
    return Terminal(verb("top", "--interval", "0.1", *arguments), 150, 40, **environment)


@pytest.fixture
def view(fake_admin: Any) -> Iterator[Terminal]:
    with top("--admin", fake_admin.url) as made:
        yield made


def test_it_lives_obeys_keys_and_leaves_no_trace(view: Terminal, fake_admin: Any) -> None:
    first = view.until("10.0.0.1:8000", "10.0.0.3:8000", "s sort")
    assert ALTERNATE_SCREEN in view.raw
    assert "Endpoint▲" in first
    assert termios.tcgetattr(view.slave) != view.before, "keys come one by one"
    view.press("s")
    view.until("by pool ▲")
    view.press("/stalled")
    view.until("stalled█")
    view.press("\r")
    view.until("filter: stalled (1 of 3)")
    fake_admin.documents["/api/v1/endpoints"]["endpoints"][1]["weight"] = 4321
    view.until("4,321")
    view.press("p")
    view.until("PAUSED")
    view.press("q")
    assert view.ended() == 0
    assert view.restored()


def test_a_missing_answer_is_reported_and_awaited(view: Terminal, fake_admin: Any) -> None:
    view.until("10.0.0.1:8000")
    documents = fake_admin.documents
    fake_admin.documents = {"/api/v1/endpoints": 503}
    text = view.until("NO ANSWER", "status 503", "what you see is")
    assert "10.0.0.1:8000" in text
    fake_admin.documents = documents
    view.until("10.0.0.1:8000", lambda text: "NO ANSWER" not in text)
    view.press("q")
    assert view.ended() == 0


@pytest.mark.parametrize(
    ("number", "left"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)]
)
def test_signals_end_it_and_the_terminal_is_as_before(
    view: Terminal, number: signal.Signals, left: int
) -> None:
    view.until("10.0.0.1:8000")
    view.process.send_signal(number)
    assert view.ended() == left
    assert view.restored()


def test_suspending_gives_the_terminal_back_and_takes_it_again(view: Terminal) -> None:
    view.until("10.0.0.1:8000")
    view.process.send_signal(signal.SIGTSTP)
    deadline = time.monotonic() + WAIT_SECONDS
    while Path(f"/proc/{view.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
        view.read(0.01)
    while view.read(0.0):
        pass
    assert view.restored()
    view.raw = ""
    view.process.send_signal(signal.SIGCONT)
    view.until(lambda _: ALTERNATE_SCREEN in view.raw, "10.0.0.1:8000")
    view.press("q")
    assert view.ended() == 0


def test_a_fault_of_its_own_gives_the_terminal_back(fake_admin: Any) -> None:
    code = (
        "import sys\nfrom warmroute.cli import main, top\n"
        "def bad(*_):\n    raise ZeroDivisionError\ntop.live = bad\n"
        f"sys.exit(main.main(['top', '--admin', {fake_admin.url!r}]))"
    )
    with Terminal([sys.executable, "-c", code]) as terminal:
        assert terminal.ended() == 1
        assert "ZeroDivisionError" in terminal.raw
        assert terminal.restored()


def test_a_narrow_terminal_without_colours(fake_admin: Any) -> None:
    with top("--admin", fake_admin.url, NO_COLOR="1") as terminal:
        terminal.until("10.0.0.2:8000")
        terminal.resize(40, 40)
        terminal.until("10.0.0.2:8000", "q quit")
        codes = {int(code) for style in STYLE.findall(terminal.raw) for code in re.findall(r"\d+", style)}
        assert codes <= {0, 1, 2}, "bold and dim are no colours"
        terminal.press("q")
        assert terminal.ended() == 0
