"""Findings as text for people and as plain data for programs."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from warmroute.doctor.rule import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmroute.doctor.rule import Finding

_WIDTH: Final = 100
_LABELS: Final = ("where", "why", "fix")


def data(proxy: str, findings: Sequence[Finding], parts: Mapping[str, int]) -> dict[str, Any]:
    """Return findings as JSON has them, with a count of each severity and of what was looked at."""
    return {
        "proxy": proxy,
        "looked_at": dict(parts),
        "counts": {level.word: _count(findings, level) for level in reversed(Severity)},
        "findings": [
            {
                "rule": finding.rule,
                "severity": finding.severity.word,
                "where": finding.where,
                "what": finding.what,
                "why": finding.why,
                "fix": finding.fix,
            }
            for finding in findings
        ],
    }


def lines(findings: Sequence[Finding], titles: Mapping[str, str], parts: Mapping[str, int]) -> list[str]:
    """Return findings as text: those with one reason and one remedy together, the worst first.

    Args:
        findings: in the order in which they are shown.
        titles: what each rule looks for.
        parts: how many of what there was to look at, by plural.
    """
    groups: dict[tuple[Severity, str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.rule, finding.why, finding.fix), []).append(finding)
    shown: list[str] = []
    for (severity, rule, why, fix), group in groups.items():
        shown.append(f"{severity.word:7}  {rule}: {printable(titles.get(rule, ''))}")
        shown += [row for finding in group for row in _rows("where", f"{finding.where}: {finding.what}")]
        shown += [*_rows("why", why), *_rows("fix", fix), ""]
    return [*shown, summary(findings, parts)]


def summary(findings: Sequence[Finding], parts: Mapping[str, int]) -> str:
    """Return how many there are of each severity, in one line; of none, in how much there was."""
    counts = [
        f"{count} {level.word}{'s' if count > 1 else ''}"
        for level in reversed(Severity)
        if (count := _count(findings, level))
    ]
    if counts:
        return ", ".join(counts)
    places = ", ".join(f"{count} {name[:-1] if count == 1 else name}" for name, count in parts.items())
    return f"Nothing found. Looked at: {places}."


def printable(text: str) -> str:
    """Return a text without control characters: names in a configuration are other people's."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _rows(label: str, text: str) -> list[str]:
    indent = " " * (len("warning") + 2 + max(len(name) for name in _LABELS) + 2)
    wrapped = textwrap.wrap(
        printable(text), _WIDTH - len(indent), break_long_words=False, break_on_hyphens=False
    ) or [""]
    head = f"{'':9}{label:{len(indent) - 9}}"
    return [f"{head if number == 0 else indent}{row}" for number, row in enumerate(wrapped)]


def _count(findings: Sequence[Finding], level: Severity) -> int:
    return sum(finding.severity is level for finding in findings)
