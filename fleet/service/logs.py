"""The log: one line for each record, whatever text peers have sent."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Final

from fleet.service import native_log

if TYPE_CHECKING:
    from types import TracebackType

    _ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

logger = logging.getLogger(__name__)

MAX_CHARS: Final = 16_384
"""Of a record, and of each line before it is escaped: node ids and peers' error texts may be as long as a
message."""
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_INDENT: Final = "    "


class OneLine(logging.Formatter):
    """Escapes unprintable characters, so that no text of a peer starts a line or controls a terminal.

    A traceback keeps its lines, each indented: no record begins like that.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's text, without the middle of a long one: tracebacks end with the exception."""
        text = super().format(record)
        if len(text) <= MAX_CHARS:
            return text
        half = MAX_CHARS // 2
        return f"{text[:half]}... ({len(text)} characters) ...{text[-half:]}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return a record's line."""
        return escaped(super().formatMessage(record))

    def formatException(self, exc_info: _ExcInfo) -> str:  # noqa: N802 - logging's name
        """Return a traceback's lines; the exception may contain an engine's text."""
        return _indented(super().formatException(exc_info))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Return a stack's lines."""
        return _indented(super().formatStack(stack_info))


def escaped(text: str) -> str:
    """Return a text without control characters, line separators, bidirectional marks, lone surrogates."""
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def _indented(text: str) -> str:
    if len(text) > 2 * MAX_CHARS:
        text = text[:MAX_CHARS] + "\n" + text[-MAX_CHARS:]
    return "\n".join(_INDENT + escaped(line) for line in text.split("\n"))


def configure_logging() -> None:
    """Log a line for each record on standard error, libraries included, at WARMROUTE_LOG_LEVEL."""
    native_log.capture()
    level = os.environ.get("WARMROUTE_LOG_LEVEL", "INFO").upper()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(_FORMAT))
    logging.basicConfig(
        handlers=[handler], level=level if level in logging.getLevelNamesMapping() else "INFO"
    )
    if level not in logging.getLevelNamesMapping():
        logger.warning("WARMROUTE_LOG_LEVEL is %r, which is no level: INFO is used", level[:20])
    # It logs every change in the directory, and the log file may be there.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
