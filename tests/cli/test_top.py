"""`warmroute top` as a whole: one table for scripts; on a terminal it obeys keys and leaves no trace."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 60.0
STYLE = re.compile(r"\x1b\[[0-9;]*m")
ALTERNATE_SCREEN, ORDINARY_SCREEN, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@pytest.fixture
def told(admin: Any, endpoints: dict[str, Any], status: dict[str, Any]) -> Any:
    admin.documents = {"/api/v1/endpoints": endpoints, "/api/v1/status": status}
    return admin


def test_once_prints_one_table(told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", told.url, "--once", "--sort", "weight", "--reverse"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "Endpoint",
        "10.0.0.1:8000",
        "10.0.0.2:8000",
        "10.0.0.3:8000",
    ]
    assert "\x1b" not in "".join(lines)


def test_where_no_terminal_is_it_prints_once(told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", told.url.removeprefix("http://"), "--filter", "stalled"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_json_tells_unknown_as_null(told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", told.url, "--json", "--sort", "weight"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["weight"] for row in document["endpoints"]] == [100, 300, None]
    assert document["endpoints"][0]["health"].startswith("stalled")
    assert document["status"]["nacks"] == 1


def test_the_token_is_borne(told: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told.token = "open-sesame"
    assert main(["top", "--admin", told.url, "--once"]) == 2
    assert "--token-file" in capsys.readouterr().err
    file = tmp_path / "token"
    file.write_text("open-sesame\n")
    assert main(["top", "--admin", told.url, "--once", "--token-file", str(file)]) == 0
    file.write_text("\n")
    assert main(["top", "--admin", told.url, "--once", "--token-file", str(file)]) == 2
    assert "holds no token" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "word"), [(404, "has no /api"), (500, "status 500"), (b"<html>", "no JSON")]
)
def test_an_answer_of_no_use_ends_with_its_reason(
    admin: Any, document: Any, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.documents = {"/api/v1/endpoints": document}
    assert main(["top", "--admin", admin.url, "--once"]) == 2
    told = capsys.readouterr().err
    assert word in told
    assert "Traceback" not in told


def test_nobody_there_ends_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--admin", "http://127.0.0.1:1", "--once"]) == 2
    assert "cannot be reached" in capsys.readouterr().err


class Session:
    """The live view on a pseudo-terminal. `seen` is all that it has written."""

    def __init__(self, arguments: list[str], columns: int = 150, **environment: str) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.seen = ""
        kept = {
            name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "top", "--interval", "0.1", *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=ROOT,
            env={**kept, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )

    def press(self, keys: str) -> None:
        """Type; what was seen before no longer counts."""
        self.seen = ""
        os.write(self.master, keys.encode())

    def until(self, *wanted: str | Callable[[str], bool]) -> str:
        """Read on until everything wanted was written; return what was, without colours."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            text = STYLE.sub("", self.seen)
            if all(part(text) if callable(part) else part in text for part in wanted):
                return text
            assert time.monotonic() < deadline, f"{wanted} in {text[-3000:]!r}"
            self._read(0.1)

    def ended(self) -> int:
        """Read on to the end of the process; return its exit status."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen[-3000:]
            self._read(0.05)
        while self._read(0.0):
            pass
        return self.process.returncode

    def restored(self) -> bool:
        """Whether the terminal is as it was: its modes, its screen and its cursor."""
        screens = self.seen.rfind(ORDINARY_SCREEN) > self.seen.rfind(ALTERNATE_SCREEN)
        return termios.tcgetattr(self.slave) == self.before and screens and SHOW_CURSOR in self.seen

    def _read(self, seconds: float) -> bool:
        readable, _, _ = select.select([self.master], [], [], seconds)
        if readable:
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        return bool(readable)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def view(told: Any) -> Iterator[Session]:
    made = Session(["--admin", told.url])
    try:
        yield made
    finally:
        made.close()


def test_it_lives_obeys_keys_and_leaves_no_trace(view: Session, told: Any) -> None:
    first = view.until(ALTERNATE_SCREEN, "10.0.0.1:8000", "10.0.0.3:8000", "s sort")
    assert "Endpoint▲" in first
    assert termios.tcgetattr(view.slave) != view.before, "keys come one by one"
    view.press("s")
    view.until("by pool ▲")
    view.press("/stalled")
    view.until("stalled█")
    view.press("\r")
    view.until("filter: stalled (1 of 3)")
    told.documents["/api/v1/endpoints"]["endpoints"][1]["weight"] = 4321
    view.until("4,321")
    view.press("p")
    view.until("PAUSED")
    view.press("q")
    assert view.ended() == 0
    assert view.restored()


def test_an_answer_that_stays_away_is_told_and_awaited(view: Session, told: Any) -> None:
    view.until("10.0.0.1:8000")
    held = told.documents
    told.documents = {"/api/v1/endpoints": 503}
    text = view.until("NO ANSWER", "status 503", "what you see is")
    assert "10.0.0.1:8000" in text
    told.documents = held
    view.press("s")
    view.until(lambda seen: "▲" in seen and "NO ANSWER" not in seen.rpartition("Warmroute")[2])
    view.press("q")
    assert view.ended() == 0


@pytest.mark.parametrize(
    ("number", "left"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)]
)
def test_signals_end_it_and_the_terminal_is_as_before(
    view: Session, number: signal.Signals, left: int
) -> None:
    view.until("10.0.0.1:8000")
    view.process.send_signal(number)
    assert view.ended() == left
    assert view.restored()


def test_suspending_gives_the_terminal_back_and_takes_it_again(view: Session) -> None:
    view.until("10.0.0.1:8000")
    view.process.send_signal(signal.SIGTSTP)
    view.until(ORDINARY_SCREEN)
    deadline = time.monotonic() + WAIT_SECONDS
    while Path(f"/proc/{view.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert view.restored()
    view.seen = ""
    view.process.send_signal(signal.SIGCONT)
    view.until(ALTERNATE_SCREEN, "10.0.0.1:8000")
    view.press("q")
    assert view.ended() == 0


def test_a_fault_of_its_own_gives_the_terminal_back(told: Any) -> None:
    broken = "import cli.top, cli.view.table\ndef bad(*_):\n    raise ZeroDivisionError\ncli.top.live = bad\n"
    code = f"{broken}import sys; from cli.main import main; sys.exit(main(['top', '--admin', {told.url!r}]))"
    session = Session([])
    session.process.kill()
    session.process.wait()
    session.seen = ""
    termios.tcsetattr(session.slave, termios.TCSANOW, session.before)
    session.process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=session.slave,
        stdout=session.slave,
        stderr=session.slave,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    )
    try:
        assert session.ended() == 1
        assert "ZeroDivisionError" in session.seen
        assert session.restored()
    finally:
        session.close()


def test_a_narrow_terminal_without_colours(told: Any) -> None:
    session = Session(["--admin", told.url], columns=40, NO_COLOR="1")
    try:
        session.until("10.0.0.2:8000", "q quit")
        codes = {int(code) for style in STYLE.findall(session.seen) for code in re.findall(r"\d+", style)}
        assert codes <= {0, 1, 2}, "bold and dim are no colours"
        session.press("q")
        assert session.ended() == 0
    finally:
        session.close()
