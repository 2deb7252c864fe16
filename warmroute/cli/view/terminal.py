"""The terminal while a live view has it: keys one by one, an alternate screen, and its full restoration."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from typing import TYPE_CHECKING, Any, Final, Self

from rich.live import Live
from rich.text import Text

from warmroute.cli.view.keys import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminal:
    """Holds the terminal for as long as its context lasts. Keys come only where standard input is a terminal.

    However the context is left, by an exception or a signal that ends the process, the terminal's modes,
    cursor and contents are as before. SIGTSTP gives it back until SIGCONT.
    """

    def __init__(self, console: Console, on_key: Callable[[str], None], on_event: Callable[[], None]) -> None:
        self._on_key = on_key
        self._on_event = on_event
        self._live = Live(
            Text(),
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._input = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._modes: list[Any] | None = None
        self.ended_by: signal.Signals | None = None
        """The signal that asks for the end."""

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGWINCH, self._on_event)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._give_back()
        finally:
            loop = asyncio.get_running_loop()
            for number in (*_ENDING, signal.SIGWINCH, signal.SIGTSTP):
                loop.remove_signal_handler(number)

    def draw(self, content: RenderableType) -> None:
        """Replace the content of the screen by this."""
        self._live.update(content, refresh=True)

    def _take(self) -> None:
        if self._input is not None:
            self._modes = termios.tcgetattr(self._input)
            tty.setcbreak(self._input, termios.TCSANOW)
            asyncio.get_running_loop().add_reader(self._input, self._read)
        self._live.start()

    def _give_back(self) -> None:
        try:
            self._live.stop()
        finally:
            if self._input is not None and self._modes is not None:
                asyncio.get_running_loop().remove_reader(self._input)
                # What was typed and not read is not for the shell.
                termios.tcsetattr(self._input, termios.TCSAFLUSH, self._modes)
                self._modes = None

    def _read(self) -> None:
        assert self._input is not None
        data = os.read(self._input, 1024)
        if not data:
            self._end(signal.SIGHUP)
            return
        for key in decode(data):
            self._on_key(key)

    def _end(self, number: signal.Signals) -> None:
        self.ended_by = number
        self._on_event()

    def _suspend(self) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self._on_event()
