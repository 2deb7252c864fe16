"""Lines of a terminal: broken between words, continued below their beginning."""

from __future__ import annotations

import shutil
import sys
import textwrap

_LEAST_COLUMNS = 24
"""A cell with less room stands below its row."""


def output_columns() -> int | None:
    """Return the columns of standard output; None: it is no terminal, and no line is broken."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(line: str, columns: int | None, indent: int | None = None) -> list[str]:
    """Break a line that is longer than `columns`; the rest has `indent` spaces, or two more than the line."""
    if columns is None or len(line) <= columns:
        return [line]
    spaces = len(line) - len(line.lstrip()) + 2 if indent is None else indent
    return textwrap.wrap(line, columns, subsequent_indent=" " * spaces, break_on_hyphens=False)


def row_with_text(cells: str, text: str, columns: int | None) -> list[str]:
    """Return a table's row that ends with a text, which is broken within its column, or stands below."""
    if columns is None or columns - len(cells) >= _LEAST_COLUMNS:
        return wrapped(f"{cells}{text}".rstrip(), columns, len(cells))
    below = [] if not text else wrapped(f"    {text}", columns, 4)
    return [cells.rstrip(), *below]
