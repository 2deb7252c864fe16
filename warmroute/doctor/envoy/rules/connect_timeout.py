"""Too little time to connect to engines with TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import connect_p99_seconds, counted, pools, seconds
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_SHORT_SECONDS: Final = 3.0
"""A packet that the kernel drops or loses is sent again after one second, and then after three."""
_SPARE: Final = 2.0


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find limits that a late handshake exceeds, by Envoy's statistics or by the kernel's timers."""
    for cluster in pools(facts, context):
        limit = cluster.connect_seconds
        if not cluster.tls:
            continue
        measured = connect_p99_seconds(facts, cluster.name)
        if measured is not None and limit < _SPARE * measured:
            what = f"{seconds(limit)}, with a P99 of connecting of {seconds(measured)}"
        elif limit < _SHORT_SECONDS:
            what = seconds(limit)
        else:
            continue
        if failed := counted(facts, cluster.name, "upstream_cx_connect_timeout"):
            what += f"; {failed:,.0f} connections were not made in time"
        yield Finding(Severity.WARNING, f"{cluster.where}.connect_timeout", what)


RULE = Rule(
    title="a time to connect that handshakes with busy engines exceed",
    why="It covers the TLS handshake, which the engine's own process makes: where all engines are busy, "
    "every attempt fails in the same way, and the client gets 503.",
    fix="Envoy's default of 5 s, or twice the P99 of `upstream_cx_connect_ms` under full load. Hosts that do "
    "not answer at all are left by outlier detection.",
    check=check,
)
