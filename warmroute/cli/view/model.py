"""The admin API's answers as frozen values. Unknown or missing fields are None."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ENDPOINTS: Final = "/api/v1/endpoints"
STATUS: Final = "/api/v1/status"
WEIGHTS: Final = "/api/v1/weights"
SKEW: Final = "/api/v1/skew"
KV_EVENTS: Final = "/api/v1/kv_events"
_DEEPEST: Final = 4
_POOR_TRUST: Final = 0.95
_BESIDE_THE_CAUSE: Final = re.compile(r"GET \S+ (was (answered (200, and )?)?)?|by an operator ")
"""The part of a reason before its cause: the request, and what the state repeats."""
_NOT_SERVING: Final = frozenset(("stalled", "unreachable", "not ready"))


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """One endpoint at one moment."""

    address: str
    pool: str = ""
    state: str = ""
    weight: int | None = None
    share: float | None = None
    """Of its pool's traffic by weight, 0 to 1."""
    in_flight: float | None = None
    reason: str | None = None
    """Why its weight is what it is, or why it gets no new requests."""
    not_ready: bool = False
    """Whether its probe keeps it out."""
    unhealthy: bool = False
    """Whether it is pushed to Envoys as unhealthy."""
    load: Mapping[str, float | None] = field(default_factory=dict)
    """By the names of `fleet.signals.SIGNALS`."""

    def signal(self, *names: str) -> float | None:
        """Return the first of these signals with a value."""
        return next((value for name in names if (value := self.load.get(name)) is not None), None)

    @property
    def faults(self) -> tuple[str, ...]:
        """Its faults, worst first; empty without a known one."""
        faults = []
        if self.signal("stalled"):
            faults.append("stalled")
        if self.signal("reachable") == 0:
            faults.append("unreachable")
        elif self.not_ready or self.signal("ready") == 0:
            faults.append("not ready")
        if (score := self.signal("gpu_health_score")) is not None and score < 1:
            faults.append(f"gpu={score:.1f}")
        if (trust := self.signal("trust_ratio")) is not None and trust < _POOR_TRUST:
            faults.append(f"trust={trust:.2f}")
        return tuple(faults)

    @property
    def health(self) -> str | None:
        """Return `ok`, the faults, or None without any signal."""
        values = (self.signal(name) for name in ("stalled", "reachable", "gpu_health_score", "trust_ratio"))
        return ",".join(self.faults) or ("ok" if any(value is not None for value in values) else None)

    @property
    def serves(self) -> bool:
        """Whether it gets new requests and has no known fault that keeps it from answering."""
        return self.weight is not None and not self.unhealthy and _NOT_SERVING.isdisjoint(self.faults)


@dataclass(frozen=True, slots=True)
class Picture:
    """The answers of one round of requests."""

    rows: Sequence[EndpointRow] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    skew: Sequence[str] = ()
    """One line for each active skew event."""
    kv_events: Mapping[str, Any] = field(default_factory=dict)
    """By endpoint; empty if none publishes KV events, or if the server has no picks."""

    @property
    def pools(self) -> tuple[str, ...]:
        """Names, in the order of the endpoints."""
        return tuple(dict.fromkeys(row.pool for row in self.rows))


def picture(documents: Mapping[str, Any]) -> Picture:
    """Join the documents, by path, into one picture."""
    status = documents.get(STATUS)
    weights = documents.get(WEIGHTS)
    reasons = {entry["address"]: entry for entry in _entries(weights, "address")}
    until = drained_until(weights)
    entries = [*_entries(documents.get(ENDPOINTS), "address")]
    totals: dict[str, float] = {}
    for entry in entries:
        pool = str(entry.get("pool") or "")
        totals[pool] = totals.get(pool, 0.0) + (number(entry.get("weight")) or 0.0)
    rows = [_row(entry, reasons.get(entry["address"], {}), totals, until) for entry in entries]
    skew_document = documents.get(SKEW)
    active = skew_document.get("active") if isinstance(skew_document, dict) else None
    skew = tuple(dict.fromkeys(_skew_line(entry) for entry in _entries(active, "kind")))
    kv_events = {
        address: entry
        for address, entry in (documents.get(KV_EVENTS) or {}).items()
        if isinstance(entry, dict)
    }
    return Picture(rows, status if isinstance(status, dict) else {}, skew, kv_events)


def number(value: Any) -> float | None:
    """Return a finite number, or the value of a signal with its age; None for anything else."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)


def envoys_away(status: Mapping[str, Any]) -> str:
    """Say that no Envoy is connected, with the reason if known; empty: one is, or none is expected.

    None is expected where picks happen without any push: another control plane configures the gateway.
    """
    has_picks = any((status.get("picks") or {}).values())
    if status.get("clients") != 0 or (has_picks and not status.get("pushes")):
        return ""
    refusals = (status.get("certificate_refusals") or {}).get("xds")
    if not refusals:
        return "no Envoy is connected"
    calls = "1 call" if refusals == 1 else f"{refusals:,} calls"
    return f"no Envoy is connected; xds has refused {calls} by certificate, its log has the names"


def kv_event_counts(kv_events: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of endpoints with KV events by freshness."""
    return dict(Counter(printable(str(entry.get("freshness"))) for entry in kv_events.values()))


def kv_event_notes(kv_events: Mapping[str, Any]) -> list[str]:
    """Return a line for each endpoint whose KV events are incomplete, with the cause."""
    return [
        printable(f"KV events of {address} are {entry.get('freshness')}: {entry['cause']}")
        for address, entry in kv_events.items()
        if entry.get("cause")
    ]


def drained_until(weights: Any) -> dict[str, str]:
    """Return address to the end of each drain that is in force, of the weights' document."""
    return {
        entry["endpoint"]: str(entry.get("until"))
        for entry in _entries(weights.get("drained") if isinstance(weights, dict) else None, "endpoint")
        if entry.get("in_force")
    }


def kept_out(entry: Mapping[str, Any], until: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why an endpoint gets no new requests, as cause and reason; None where it may get some.

    `entry` is its own in the endpoints' document, `until` the ends of drains by address.
    """
    state, why = entry.get("state"), entry.get("not_ready")
    if state == "drained":
        end = until.get(str(entry.get("address")))
        return state, "by an operator" + (f" until {end}" if end else "")
    if state == "asleep":
        return state, "in sleep mode"
    if state == "leaving":
        return state, "no source names it"
    if why or state == "probing":
        return "not_ready", printable(str(why or "not asked yet"))
    return None


def brief(reason: str) -> str:
    """Return a reason's cause alone, without the request and the advice."""
    return _BESIDE_THE_CAUSE.sub("", reason, count=1).partition(";")[0]


def printable(text: str) -> str:
    """Replace control characters by question marks: they would steer a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _row(
    entry: Mapping[str, Any],
    verdict: Mapping[str, Any],
    totals: Mapping[str, float],
    until: Mapping[str, str],
) -> EndpointRow:
    both = {**verdict, **{name: value for name, value in entry.items() if value is not None}}
    weight, pool = number(entry.get("weight")), str(entry.get("pool") or "")
    # From the weights in the same document, if present: both are of one moment.
    share = number(both.get("share")) if weight is None or not totals[pool] else weight / totals[pool]
    load = entry.get("load")
    cause, why = kept_out(entry, until) or (None, None)
    reason = both.get("reason") or why
    return EndpointRow(
        address=printable(entry["address"]),
        pool=printable(pool),
        state=printable(str(entry.get("state") or "")),
        weight=None if weight is None else int(weight),
        share=share,
        in_flight=number(entry.get("in_flight")),
        reason=printable(reason) if isinstance(reason, str) else None,
        not_ready=cause == "not_ready",
        unhealthy=both.get("unhealthy") is True,
        load={name: number(value) for name, value in load.items()} if isinstance(load, dict) else {},
    )


def _skew_line(entry: Mapping[str, Any]) -> str:
    where = entry.get("address") or entry.get("pool") or ""
    event = f"{entry['kind'].replace('_', ' ')} {where}".strip()
    evidence = entry.get("evidence")
    figures = {name: number(value) for name, value in evidence.items()} if isinstance(evidence, dict) else {}
    why = ", ".join(f"{name} {value:.4g}" for name, value in figures.items() if value is not None)
    return printable(f"{event}: {why}" if why else event)


def _entries(document: Any, key: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the objects with a text under `key`, wherever the document holds them."""
    if depth > _DEEPEST:
        return
    if isinstance(document, dict):
        if isinstance(document.get(key), str):
            yield document
            return
        document = [
            {key: name, **value} if isinstance(value, dict) and key == "address" and ":" in name else value
            for name, value in document.items()
        ]
    if isinstance(document, list):
        for value in document:
            yield from _entries(value, key, depth + 1)
