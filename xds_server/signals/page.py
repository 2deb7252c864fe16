"""A lean reader of Prometheus and OpenMetrics text: only the wanted lines of a page are looked into.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and OpenMetrics 1.0. Comment lines
(`# HELP`, `# TYPE`, `# EOF`) carry nothing that a reader of known names needs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

_SUFFIXES: Final = (b"", b"_total", b"_bucket", b"_sum", b"_count")
"""What a family's samples may be called. `_created` is missing on purpose: it is a time, not a count."""

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


class Sample(NamedTuple):
    """One line: the full sample name (suffix included), its labels, its value (may be NaN or infinite)."""

    name: str
    labels: dict[str, str]
    value: float


class Page(NamedTuple):
    """The wanted samples in the order of the page."""

    samples: list[Sample]
    malformed_lines: int
    """Lines that begin with a wanted name and cannot be read; unwanted lines are not looked into."""


def read_samples(page: bytes, wanted: frozenset[str]) -> Page:
    """Read the samples of the wanted names.

    A wanted name is a sample's full name or its family's: `x` also takes `x_total`, `x_bucket`, `x_sum`
    and `x_count`, never `x_created`. Lines that cannot be read are skipped and counted; nothing raises.
    """
    prefixes, names = _compiled(wanted)
    samples: list[Sample] = []
    malformed = 0
    for line in page.split(b"\n"):
        if not line.startswith(prefixes):
            continue
        found = _NAME.match(line)
        if found is None or (name := names.get(found[0])) is None:
            continue
        sample = _read_line(name, line, found.end())
        if sample is None:
            malformed += 1
        else:
            samples.append(sample)
    return Page(samples, malformed)


@lru_cache(maxsize=64)
def _compiled(wanted: frozenset[str]) -> tuple[tuple[bytes, ...], dict[bytes, str]]:
    families = sorted(name.encode() for name in wanted)
    names = {family + suffix: (family + suffix).decode() for family in families for suffix in _SUFFIXES}
    return tuple(families), names


def _read_line(name: str, line: bytes, start: int) -> Sample | None:
    rest = _REST.match(line, start)
    if rest is None:
        return None
    text, number = rest.groups()
    try:
        value = float(number)
    except ValueError:
        return None
    if not text:
        return Sample(name, {}, value)
    if not _LABELS.match(text):
        return None
    return Sample(name, {key.decode(): _unescaped(raw) for key, raw in _LABEL.findall(text)}, value)


def _unescaped(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: {"n": "\n"}.get(found[1], found[1]), text)
