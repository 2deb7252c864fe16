"""HTTP/2 pings that the gRPC server at the other end punishes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.names import ADS_CLUSTER, EXT_PROC_CLUSTER
from warmroute.doctor.envoy.ask import bodies, seconds
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

WARMROUTE_PERMITS_SECONDS: Final = 0.5
GRPC_PERMITS_SECONDS: Final = 300.0
"""The default of gRPC servers in every language, on a quiet connection."""


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare the pings of clusters that carry gRPC with what their servers permit."""
    ours = {ADS_CLUSTER: WARMROUTE_PERMITS_SECONDS, EXT_PROC_CLUSTER: WARMROUTE_PERMITS_SECONDS}
    permits = {**ours, **context.ping_permits}
    carrying = [*facts.grpc_users, *(p.route.cluster for p in bodies(facts, context) if p.route.grpc)]
    for name in dict.fromkeys(carrying):
        cluster = facts.clusters.get(name)
        if cluster is None:
            continue
        interval, permitted = cluster.keepalive_seconds, permits.get(name, GRPC_PERMITS_SECONDS)
        where = f"{cluster.where}.http2_protocol_options.connection_keepalive"
        if interval is not None and interval < permitted:
            caveat = "as far as is known, " if name not in permits else ""
            what = f"a ping every {seconds(interval)}; {caveat}the server permits one in {seconds(permitted)}"
            yield Finding(Severity.WARNING, where, what)
        elif interval is None and name == facts.ads_cluster:
            yield Finding(
                Severity.NOTE,
                where,
                "none on the stream that configuration comes by",
                why="When the server's host vanishes without a word, Envoy waits for ever for its next "
                "update.",
                fix="`connection_keepalive: {interval: 30s, timeout: 10s}`, if the server permits it.",
            )


RULE = Rule(
    title="HTTP/2 keepalive more often than the gRPC server permits",
    why="gRPC servers count pings on quiet connections and end them with GOAWAY `too_many_pings`: every few "
    "minutes all streams break, and configuration is sent anew.",
    fix="A longer interval, or a server that permits it "
    "(`grpc.http2.min_recv_ping_interval_without_data_ms`, KeepaliveEnforcementPolicy); tell the doctor by "
    "`--ping-permit CLUSTER=SECONDS`.",
    check=check,
)
