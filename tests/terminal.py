"""A command on a pseudo-terminal, before an emulator that tells what a user sees of it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyte

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[1]
WAIT_SECONDS = 300.0
"""Reached by nothing that works."""
ALTERNATE_SCREEN, ORDINARY_SCREEN, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
# So that the kernel signals the command as it does in a real terminal.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def verb(*arguments: str) -> list[str]:
    """The command line of a verb, run by this interpreter."""
    return [sys.executable, "-m", "warmroute.cli.main", *arguments]


class Terminal:
    """A context manager; the command is gone when it is left.

    `raw` is all that the command has written, `text` what stands on the screen, a line a row.
    """

    def __init__(
        self, command: Sequence[str], columns: int = 150, rows: int = 40, **environment: str
    ) -> None:
        self.master, self.slave = pty.openpty()
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._set_size(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.raw = ""
        kept = {
            name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}
        }
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _TAKE_TERMINAL, *command],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=ROOT,
            env={**kept, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    @property
    def lines(self) -> list[str]:
        """What stands on the screen, without blanks at the ends of lines."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """Return these as one text."""
        return "\n".join(self.lines)

    @property
    def words(self) -> str:
        """Return them without any blanks and line ends: where a terminal breaks lines does not matter."""
        return "".join("".join(self._screen.display).split())

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self.master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Change the terminal's size; the kernel tells the command by SIGWINCH."""
        self._screen.resize(rows, columns)
        self._screen.reset()
        self._set_size(columns, rows)

    def until(self, *parts: str | Callable[[str], bool]) -> str:
        """Read on until all of it stands on the screen, or holds of its text; return that."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not all(part(self.text) if callable(part) else part in self.text for part in parts):
            assert "Traceback" not in self.raw, self.raw[-3000:]
            ended = self.process.poll()
            if not self.read(0.1 if ended is not None else 5.0):
                self._wake_writer()
                assert ended is None, f"ended with {ended}, without {parts} in\n{self.text.rstrip()}"
                assert time.monotonic() < deadline, f"{parts} in\n{self.text.rstrip()}\n{self._state()}"
        return self.text

    def _wake_writer(self) -> None:
        """Stop and restart output: a busy kernel once left a command asleep in the middle of a row."""
        termios.tcflow(self.slave, termios.TCOOFF)
        termios.tcflow(self.slave, termios.TCOON)

    def _state(self) -> str:
        """What the command does now, and how its output ended."""
        status = Path(f"/proc/{self.process.pid}/status")
        lines = status.read_text().splitlines()[:4] if status.exists() else []
        return f"{lines}, after {len(self.raw):,} characters that end with {self.raw[-200:]!r}"

    def ended(self) -> int:
        """Read on to the end of the command; return its exit status."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self.read(0.05)
        while self.read(0.0):
            pass
        return self.process.returncode

    def restored(self) -> bool:
        """Whether the terminal is as it was: its modes, its screen and its cursor."""
        screens = self.raw.rfind(ORDINARY_SCREEN) > self.raw.rfind(ALTERNATE_SCREEN)
        return termios.tcgetattr(self.slave) == self.before and screens and SHOW_CURSOR in self.raw

    def read(self, seconds: float) -> bool:
        """Take what the command has written, or writes within so many seconds; whether there was any."""
        readable, _, _ = select.select([self.master], [], [], seconds)
        if readable:
            data = os.read(self.master, 65536)
            self.raw += data.decode(errors="replace")
            self._stream.feed(data)
        return bool(readable)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
