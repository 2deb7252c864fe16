"""A lean reader of Prometheus and OpenMetrics text: only the lines of known metrics are looked into.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and OpenMetrics 1.0. Comment lines
(`# HELP`, `# TYPE`, `# EOF`) carry nothing that a reader of known names needs.

From scrape to scrape an engine's page differs in its values only. One compiled expression cuts the wanted
lines into what stands before the value and the value; while the former is unchanged, no label is read again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from fleet.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_READ_LINES: Final = 8192
"""Of a page; one engine's has some sixty. More are none that a server of many engines has, and each costs
memory and Python's lock."""
_MAX_LINE_BYTES: Final = 16_384
_SLICE_BYTES: Final = 65_536
"""The part of a page that the expression reads at once: it holds Python's lock until its end."""

_NAME: Final = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*+")
# Possessive quantifiers: a hostile page costs time linear in its length, never more.
_QUOTED: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_REST: Final = re.compile(
    rb"[ \t]*+(?:\{((?:[^\"}]++|" + _QUOTED + rb")*+)\})?+"  # labels
    rb"[ \t]*+([^\s#_]++)"  # value; float() would read 1_0 as 10
    rb"(?:[ \t]++-?[0-9.eE+-]++)?+"  # timestamp: the page is read now, so it says nothing more
    rb"[ \t]*+(?:\#.*+)?+\r?+\Z"  # exemplar
)
_LABEL: Final = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_LABELS: Final = re.compile(
    rb"\s*+(?:[a-zA-Z_][a-zA-Z0-9_]*+[ \t]*+=[ \t]*+" + _QUOTED + rb"[ \t]*+(?:,[ \t]*+|\Z))*+\Z"
)
_ESCAPE: Final = re.compile(r"\\(.)")
_PLAIN: Final = (
    rb"(?![a-zA-Z0-9_:])(?:\{[^}\n]*+\})?+)"  # a `}` within a label's value makes the line no plain one
    rb"(?: ([^\s#_]++)(?: -?[0-9.eE+-]++)?+\r?+(?![^\n]))?+"
    rb"([^\n]*+)"  # empty for a plain line
)


class PageError(PeerError):
    """A page has more wanted lines than are read."""


@dataclass(frozen=True, slots=True)
class Series:
    """What a line says before its value: the full sample name (suffix included) and the labels."""

    name: str
    labels: dict[str, str]


class Lines(NamedTuple):
    """The wanted lines in the order of the page."""

    series: tuple[Series, ...]
    """The very object of the page before while the lines are the same but for their values."""
    values: list[float]
    """One a series; may be NaN or infinite."""
    malformed_lines: int
    """Lines that begin with a wanted name and cannot be read; unwanted lines are not looked into."""


class PageReader:
    """Reads one endpoint's pages, one after the other. `names` are full sample names."""

    def __init__(self, names: frozenset[str]) -> None:
        self._pattern = _compiled(names)
        self._heads: tuple[bytes, ...] = ()
        self._series: tuple[Series, ...] = ()

    def read(self, page: bytes) -> Lines:
        """Read the wanted lines; those that cannot be read are skipped and counted.

        Raises:
            PageError: there are too many.
        """
        page = b"\n" + page
        lines = []
        for begin, end in _slices(page):
            lines += self._pattern.findall(page, begin, end)
            if len(lines) > MAX_READ_LINES:
                raise PageError(f"more than {MAX_READ_LINES} lines of metrics that are read")
        if not lines:
            self._heads = self._series = ()
            return Lines((), [], 0)
        heads, numbers, rests = zip(*lines, strict=True)
        if heads == self._heads and not any(rests) and all(numbers):
            try:
                return Lines(self._series, list(map(float, numbers)), 0)
            except ValueError:
                pass  # the way below finds out which line it is
        return self._read_all(page, heads)

    def _read_all(self, page: bytes, heads: tuple[bytes, ...]) -> Lines:
        series: list[Series] = []
        values: list[float] = []
        malformed = 0
        plain = True
        matches = (self._pattern.finditer(page, begin, end) for begin, end in _slices(page))
        for match in chain.from_iterable(matches):
            sample = read_line(match[0][1:])
            plain = plain and not match[3]
            if sample is None:
                malformed += 1
            else:
                series.append(sample[0])
                values.append(sample[1])
        if (read := tuple(series)) != self._series:
            self._series = read
        self._heads = heads if plain and not malformed else ()
        return Lines(self._series, values, malformed)


def _slices(page: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of parts of a page that are made of whole lines, each with the newline before it."""
    begin, size = 0, len(page)
    while begin < size:
        end = page.find(b"\n", begin + _SLICE_BYTES) if begin + _SLICE_BYTES < size else size
        end = size if end < 0 else end
        yield begin, end
        begin = end


@lru_cache(maxsize=64)
def _compiled(names: frozenset[str]) -> re.Pattern[bytes]:
    return re.compile(rb"\n(" + _any_of(sorted(name.encode() for name in names)) + _PLAIN)


def _any_of(names: list[bytes]) -> bytes:
    """An expression for any of the sorted names that looks at each byte of a line once.

    Python's engine tries alternatives one by one, so what they begin with in common is drawn out.
    """
    if not names:
        return b"(?!)"
    first, last = names[0], names[-1]
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    if len(names) == 1:
        return re.escape(first)
    branches: dict[bytes, list[bytes]] = {}
    for name in names:
        branches.setdefault(name[shared : shared + 1], []).append(name[shared:])
    ends = branches.pop(b"", None) is not None
    either = b"(?:" + b"|".join(_any_of(branch) for branch in branches.values()) + b")"
    return re.escape(first[:shared]) + either + (b"?" if ends else b"")


def read_line(line: bytes) -> tuple[Series, float] | None:
    """Return the series of a line and its value; None: it cannot be read."""
    if len(line) > _MAX_LINE_BYTES:
        return None
    name = _NAME.match(line)
    rest = None if name is None else _REST.match(line, name.end())
    if name is None or rest is None:
        return None
    text, number = rest.groups()
    try:
        value = float(number)
    except ValueError:
        return None
    if text and not _LABELS.match(text):
        return None
    labels = {key.decode(): _unescaped(raw) for key, raw in _LABEL.findall(text or b"")}
    return Series(name[0].decode(), labels), value


def _unescaped(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: {"n": "\n"}.get(match[1], match[1]), text)
