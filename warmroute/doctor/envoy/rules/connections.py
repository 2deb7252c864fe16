"""Clusters of engines, connections and the access log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.names import ADS_CLUSTER, EXT_PROC_CLUSTER
from warmroute.doctor.envoy.facts import DEFAULT_BREAKER
from warmroute.doctor.envoy.queries import (
    connect_p99_seconds,
    counter_sum,
    engine_passages,
    is_ours,
    passages_with_cluster,
    pools,
    processor_clusters,
    request_passages,
)
from warmroute.doctor.rule import Finding, Severity, rule
from warmroute.doctor.units import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.envoy.facts import Cluster, Facts, HealthCheck
    from warmroute.doctor.rule import Context


@rule(
    title="circuit breakers of a pool at Envoy's default of 1,024, or refusing requests",
    why="LLM requests last for seconds to minutes, so thousands are in flight at once: Envoy answers 503 to "
    "those beyond the limit while engines would have queued them.",
    fix="Choose `max_connections`, `max_pending_requests` and `max_requests` on purpose, above what the "
    "engines hold together.",
)
def pool_circuit_breaker(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find default thresholds, and thresholds that requests have reached."""
    for cluster in pools(facts, context):
        where = f"{cluster.where}.circuit_breakers"
        met = counter_sum(
            facts,
            cluster.name,
            "upstream_rq_pending_overflow",
            "upstream_rq_active_overflow",
        )
        missing = [name for name, limit in _breaker_limits(cluster).items() if limit is None]
        if met:
            yield Finding(Severity.ERROR, where, f"requests were refused {met:,.0f} times")
        elif missing:
            yield Finding(
                Severity.WARNING, where, f"{', '.join(missing)} at the default of {DEFAULT_BREAKER:,}"
            )


def _breaker_limits(cluster: Cluster) -> dict[str, int | None]:
    breakers = cluster.breakers
    limits = {"max_pending_requests": breakers.max_pending, "max_requests": breakers.max_requests}
    # An HTTP/1.1 connection carries one request at a time.
    return {"max_connections": breakers.max_connections, **limits} if cluster.http1 else limits


@rule(
    title="a pool without a panic threshold",
    why="A wave of load makes checks fail everywhere: when the last endpoint is marked, every request gets "
    "503 although engines still work.",
    fix="Leave `healthy_panic_threshold` at its default of 50 for pools; 0 is for the ext_proc cluster.",
)
def pool_panic(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find pools with a panic threshold of 0 and health checks or outlier detection."""
    for cluster in pools(facts, context):
        marked = cluster.health_checks or cluster.outlier or cluster.discovery == "EDS"
        if marked and not cluster.panic_percent:
            yield Finding(
                Severity.WARNING, f"{cluster.where}.common_lb_config.healthy_panic_threshold", "0 %"
            )


_SHORT_CHECK_SECONDS: Final = 1.0
_PATIENT_SECONDS: Final = 10.0


@rule(
    title="health checks of engines with a time limit of a second or less",
    why="An engine that computes a long prefill may answer its health page seconds late: the check takes "
    "it out in the middle of its work, its load goes to the others, and they follow.",
    fix="A time limit of several seconds, several failures in a row, and the engine's own signals for "
    "weights.",
)
def engine_health_check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find checks that a single late or odd answer can fail."""
    for cluster in pools(facts, context):
        for health_check in cluster.health_checks:
            if (
                health_check.timeout_seconds <= _SHORT_CHECK_SECONDS
                and _patience(health_check) < _PATIENT_SECONDS
            ):
                threshold = health_check.unhealthy_threshold
                what = (
                    f"{seconds(health_check.timeout_seconds)}, unhealthy after {threshold} in a row, every"
                    f" {seconds(health_check.interval_seconds)}"
                )
                yield Finding(Severity.WARNING, f"{health_check.where}.timeout", what)

            if health_check.one_answer_is_enough:
                yield Finding(
                    Severity.NOTE,
                    f"{health_check.where}.http_health_check.retriable_statuses",
                    "none",
                    why="One answer with another status than 200 takes an engine out at once, whatever "
                    "`unhealthy_threshold` says.",
                    fix="`retriable_statuses: [{start: 100, end: 600}]`: then such answers count like the "
                    "late ones.",
                )


def _patience(health_check: HealthCheck) -> float:
    """Seconds of silence after which an engine is out."""
    return health_check.timeout_seconds + (health_check.unhealthy_threshold - 1) * max(
        health_check.interval_seconds, 0.0
    )


_SHORT_CONNECT_SECONDS: Final = 3.0
"""A packet that the kernel drops or loses is sent again after one second, and then after three."""
_CONNECT_SPARE: Final = 2.0


@rule(
    title="a time to connect that handshakes with busy engines exceed",
    why="It covers the TLS handshake, which the engine's own process makes: where all engines are busy, "
    "every attempt fails in the same way, and the client gets 503.",
    fix="Envoy's default of 5 s, or twice the P99 of `upstream_cx_connect_ms` under full load. Hosts that do "
    "not answer at all are left by outlier detection.",
)
def connect_timeout(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find limits that a late handshake exceeds, by Envoy's statistics or by the kernel's timers."""
    for cluster in pools(facts, context):
        limit = cluster.connect_seconds
        if not cluster.tls:
            continue
        measured = connect_p99_seconds(facts, cluster.name)
        if measured is not None and limit < _CONNECT_SPARE * measured:
            what = f"{seconds(limit)}, with a P99 of connecting of {seconds(measured)}"
        elif limit < _SHORT_CONNECT_SECONDS:
            what = seconds(limit)
        else:
            continue
        if failed := counter_sum(facts, cluster.name, "upstream_cx_connect_timeout"):
            what += f"; {failed:,.0f} connections were not made in time"
        yield Finding(Severity.WARNING, f"{cluster.where}.connect_timeout", what)


_ENGINE_SECONDS: Final = 5.0
"""Of uvicorn, in which vLLM and SGLang run."""
_COVERS_RESET: Final = frozenset({"reset-before-request", "reset", "5xx", "gateway-error"})


@rule(
    title="idle connections to engines outlive the engines' own keep-alive",
    why="A request that meets a connection which the engine is just closing fails with 503, now and then, on "
    "quiet pools.",
    fix="`idle_timeout: 4s` in the pool's common_http_protocol_options, and `reset-before-request` in "
    "retry_on.",
)
def engine_keepalive(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find HTTP/1.1 pools with long idle times and no retry for a connection that was just closed."""
    for passage, cluster in passages_with_cluster(facts, context):
        if cluster.http2 or 0 < cluster.idle_seconds < _ENGINE_SECONDS:
            continue
        retry = passage.route.retries
        if retry is None or not retry.on & _COVERS_RESET:
            limit = seconds(cluster.idle_seconds) if cluster.idle_seconds else "off"
            where = f"{cluster.where}.common_http_protocol_options.idle_timeout"
            yield Finding(
                Severity.WARNING, where, f"{limit}; engines often close after {seconds(_ENGINE_SECONDS)}"
            )


WARMROUTE_PERMITS_SECONDS: Final = 0.5
GRPC_PERMITS_SECONDS: Final = 300.0
"""The default of gRPC servers in every language, on a quiet connection."""


@rule(
    title="HTTP/2 keepalive more often than the gRPC server permits",
    why="gRPC servers count pings on quiet connections and end them with GOAWAY `too_many_pings`: every few "
    "minutes all streams break, and configuration is sent again.",
    fix="A longer interval, or a server that permits it "
    "(`grpc.http2.min_recv_ping_interval_without_data_ms`, KeepaliveEnforcementPolicy); set it by "
    "`--ping-permit CLUSTER=SECONDS`.",
)
def keepalive(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare the pings of clusters that carry gRPC with what their servers permit."""
    ours = {ADS_CLUSTER: WARMROUTE_PERMITS_SECONDS, EXT_PROC_CLUSTER: WARMROUTE_PERMITS_SECONDS}
    permits = {**ours, **context.ping_permits}
    carrying = [
        *facts.grpc_users,
        *(p.route.cluster for p in request_passages(facts, context) if p.route.grpc),
    ]
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


_FEW_STREAMS: Final = 100


@rule(
    title="fewer than 100 HTTP/2 streams on a connection",
    why="An LLM request holds its stream for minutes. A gateway or client library with one connection "
    "waits, or gets REFUSED_STREAM, beyond that number.",
    fix="`max_concurrent_streams` of some hundreds to a thousand.",
)
def http2_streams(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at `max_concurrent_streams` of listeners, pools and external processors."""
    field = "http2_protocol_options.max_concurrent_streams"
    for manager in dict.fromkeys(passage.manager for passage in engine_passages(facts, context)):
        limit = manager.max_concurrent_streams
        if limit is not None and limit < _FEW_STREAMS:
            yield Finding(Severity.WARNING, f"{manager.where}.{field}", f"{limit} a connection")
    for cluster in dict.fromkeys([*processor_clusters(facts, context), *pools(facts, context)]):
        limit = cluster.max_concurrent_streams
        if limit is not None and limit < _FEW_STREAMS:
            yield Finding(
                Severity.NOTE,
                f"{cluster.where}.{field}",
                f"{limit} a connection",
                why="Beyond this number of requests in flight, Envoy opens another connection.",
            )


@rule(
    title="no access log to xds_server",
    why="Without it the time to the first token, errors and retries of each engine are unknown: weights and "
    "picks go by the engines' own pages alone.",
    fix="`envoy.access_loggers.http_grpc` with the cluster of xds_server, log_name `warmroute` and "
    "buffer_flush_interval 0.25s.",
)
def access_log(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find connection managers with our picks and without a gRPC access log to the control plane."""
    for passage in request_passages(facts, context):
        logs = passage.manager.log_clusters
        logged = facts.ads_cluster in logs if facts.ads_cluster else bool(logs)
        if passage.processors and is_ours(passage) and not logged:
            yield Finding(
                Severity.NOTE, f"{passage.manager.where}.access_log", "no http_grpc log to xds_server"
            )
