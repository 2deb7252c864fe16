"""Output of libraries to standard error past the log, as gRPC's core writes it, with text of peers.

Descriptor 2 becomes a pipe. A thread reads it, and each line becomes a record of this module's logger,
escaped and limited in number. The log itself, Python's tracebacks and its crash reports use the original
descriptor.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

LINES: Final = 20
SECONDS: Final = 60.0
"""At most `LINES` are logged in `SECONDS`."""
_READ_BYTES: Final = 65_536
_MAX_LINE_BYTES: Final = 8192
_ERROR: Final = 2


class LineLimit:
    """Chooses the lines to log and counts the others. Pure."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None
        self._lines = 0
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Take bytes as they arrive, and yield the lines to log."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            if line.strip():
                yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[str]:
        now = self._clock()
        if self._began is None or now - self._began >= SECONDS:
            left_out = self._lines - LINES
            self._began, self._lines = now, 0
            if left_out > 0:
                yield f"libraries have written {left_out:,} lines more, which are left out"
        self._lines += 1
        if self._lines <= LINES:
            yield f"a library says: {line.decode(errors='backslashreplace')}"
        elif self._lines == LINES + 1:
            yield f"lines of libraries are only counted for the rest of {SECONDS:g} s"


def capture() -> None:
    """Redirect descriptor 2, before the log is configured.

    A child process must get `sys.stderr` as its standard error: otherwise it inherits the pipe.
    """
    try:
        if sys.stderr.fileno() != _ERROR:
            return  # It is redirected already, by us or by others.
        before = os.dup(_ERROR)
    except OSError:
        return  # It is no file, or closed: nothing reads the output.
    reading, writing = os.pipe()
    # A library never waits for the pipe; output beyond its capacity is lost.
    os.set_blocking(writing, False)
    own = os.fdopen(before, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    sys.stderr = own
    faulthandler.enable(own)
    os.dup2(writing, _ERROR)
    os.close(writing)
    threading.Thread(target=_follow, args=(reading,), name="native log", daemon=True).start()


def _follow(reading: int) -> None:
    limit = LineLimit()
    while chunk := os.read(reading, _READ_BYTES):
        for text in limit.feed(chunk):
            logger.warning("%s", text)
