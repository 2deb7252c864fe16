"""What people and programs get to see."""

from __future__ import annotations

import json

from warmroute.doctor.report import data, lines
from warmroute.doctor.rule import Finding, Severity

FIRST = Finding(Severity.ERROR, "routes[a]", "15 s", "route-timeout", "It cuts.", "0s.")
SECOND = Finding(Severity.ERROR, "routes[b]", "15 s", "route-timeout", "It cuts.", "0s.")
THIRD = Finding(Severity.NOTE, "clusters[c]", "none", "keepalive", "It waits.", "30 s.")


def test_findings_with_one_remedy_stand_together() -> None:
    assert lines([FIRST, SECOND, THIRD], {"route-timeout": "limits", "keepalive": "pings"}, {}) == [
        "error    route-timeout: limits",
        "         where  routes[a]: 15 s",
        "         where  routes[b]: 15 s",
        "         why    It cuts.",
        "         fix    0s.",
        "",
        "note     keepalive: pings",
        "         where  clusters[c]: none",
        "         why    It waits.",
        "         fix    30 s.",
        "",
        "2 errors, 1 note",
    ]


def test_nothing_is_said_in_words() -> None:
    assert lines([], {}, {"listeners": 1, "routes": 0, "clusters": 2}) == [
        "Nothing found. Looked at: 1 listener, 0 routes, 2 clusters."
    ]


def test_long_reasons_are_wrapped_below_their_label() -> None:
    (_, _, first, second, *_) = lines([Finding(Severity.NOTE, "a", "b", "r", "word " * 30, "c")], {}, {})
    assert first.startswith("         why    word word")
    assert second.startswith("                word")
    assert max(len(first), len(second)) <= 100


def test_names_with_control_characters_do_not_reach_the_terminal() -> None:
    shown = "\n".join(lines([Finding(Severity.NOTE, "routes[\x1b[2J\u202e]", "x\ny", "r", "w", "f")], {}, {}))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "x?y" in shown


def test_programs_get_everything_with_counts() -> None:
    document = json.loads(json.dumps(data("envoy", [FIRST, THIRD], {"routes": 2})))
    assert document["proxy"] == "envoy"
    assert document["looked_at"] == {"routes": 2}
    assert document["counts"] == {"error": 1, "warning": 0, "note": 1}
    assert document["findings"][0] == {
        "rule": "route-timeout",
        "severity": "error",
        "where": "routes[a]",
        "what": "15 s",
        "why": "It cuts.",
        "fix": "0s.",
    }
