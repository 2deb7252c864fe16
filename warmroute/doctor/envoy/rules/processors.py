"""External processors: availability, time limits, body modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.facts import DEFAULT_BREAKER
from warmroute.doctor.envoy.queries import counter_sum, processor_clusters, processors
from warmroute.doctor.rule import Finding, Severity, rule
from warmroute.doctor.units import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.envoy.facts import Facts
    from warmroute.doctor.rule import Context


@rule(
    title="ext_proc with `failure_mode_allow: false`",
    why="While the processor is away or too slow, every request fails with a 500 or 504, although the "
    "engines are well.",
    fix="`failure_mode_allow: true`: requests then go by weights.",
)
def ext_proc_failure_mode(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find processors without `failure_mode_allow`."""
    for passage, entry, ext_proc in processors(facts, context):
        where = f"{entry.where}.failure_mode_allow"
        if not ext_proc.failure_mode_allow:
            yield Finding(Severity.ERROR, where, "false, or not set")
        elif ext_proc.mode.request_body == "FULL_DUPLEX_STREAMED":
            yield Finding(
                Severity.NOTE,
                passage.route.where,
                "failure_mode_allow with request_body_mode FULL_DUPLEX_STREAMED",
                why="Once the processor has taken a piece of the body, Envoy cannot go on without it: a "
                "processor that ends in the middle makes requests fail.",
                fix="request_body_mode BUFFERED, and BUFFERED_PARTIAL for long bodies.",
            )


_LONG_MESSAGE_SECONDS: Final = 1.0
_SHORT_MESSAGE_SECONDS: Final = 0.02
"""Pauses of a garbage collector or of a busy machine are as long."""
_MANY_TIMEOUTS_SHARE: Final = 0.01
_ENOUGH_TIMEOUTS: Final = 10


@rule(
    title="ext_proc `message_timeout` too long or too short, or striking often",
    why="A processor that is frozen, not dead, costs every request this much before it goes on without a "
    "pick.",
    fix="A quarter of a second, and a gRPC health check on the processor's cluster.",
)
def ext_proc_message_timeout(facts: Facts, context: Context) -> Iterator[Finding]:
    """Check the limit, and the number of timeouts."""
    counters = _timeouts_and_streams(facts)
    for passage, entry, ext_proc in processors(facts, context):
        limit = ext_proc.message_timeout_seconds
        where = f"{entry.where}.message_timeout"
        if limit > _LONG_MESSAGE_SECONDS:
            yield Finding(Severity.WARNING, where, seconds(limit))
        elif limit < _SHORT_MESSAGE_SECONDS:
            yield Finding(
                Severity.WARNING,
                where,
                seconds(limit),
                why="A pause of the processor or of the machine is as long: requests lose their pick by "
                "chance.",
                fix="A quarter of a second.",
            )
        timeouts, streams = counters.get(passage.manager.stat_prefix, (0.0, 0.0))
        if timeouts >= _ENOUGH_TIMEOUTS and timeouts > streams * _MANY_TIMEOUTS_SHARE:
            yield Finding(
                Severity.WARNING,
                where,
                f"{seconds(limit)}, and it has struck {timeouts:,.0f} times in {streams:,.0f} streams",
                why="The processor is too slow or was frozen: each time a request waited for nothing.",
                fix="Look at the processor's CPU and at the sizes of bodies that it gets; a health check "
                "on its cluster takes a frozen one out.",
            )


def _timeouts_and_streams(facts: Facts) -> dict[str, tuple[float, float]]:
    """Timeouts and streams of the external processors of each connection manager, by its prefix."""
    by_prefix: dict[str, list[float]] = {}
    for name, value in facts.stats.values.items():
        prefix, separator, rest = name.removeprefix("http.").partition(".ext_proc.")
        for position, counter in enumerate(("message_timeouts", "streams_started")):
            if separator and rest.rpartition(".")[2] == counter:
                by_prefix.setdefault(prefix, [0.0, 0.0])[position] += value
    return {prefix: (timeouts, streams) for prefix, (timeouts, streams) in by_prefix.items()}


_SLOW_CHECK_SECONDS: Final = 5.0


@rule(
    title="no health check of the ext_proc cluster, or one without `no_traffic_interval`",
    why="A processor that is frozen keeps its connections: every request waits for the whole "
    "message_timeout.",
    fix="`health_checks` with `grpc_health_check: {}`, and `interval` and `no_traffic_interval` of a "
    "quarter of a second.",
)
def ext_proc_health(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find processors' clusters without health checks, or with checks that come once a minute."""
    for cluster in processor_clusters(facts, context):
        if not cluster.health_checks:
            yield Finding(Severity.WARNING, f"{cluster.where}.health_checks", "none")
        for health_check in cluster.health_checks:
            if health_check.no_traffic_seconds > _SLOW_CHECK_SECONDS:
                yield Finding(
                    Severity.WARNING,
                    f"{health_check.where}.no_traffic_interval",
                    seconds(health_check.no_traffic_seconds),
                    why="Envoy goes by this interval for the ext_proc cluster whatever its real traffic, "
                    "so a frozen processor is noticed only after so long.",
                )
            elif health_check.interval_seconds > _SLOW_CHECK_SECONDS:
                yield Finding(
                    Severity.WARNING, f"{health_check.where}.interval", seconds(health_check.interval_seconds)
                )


@rule(
    title="the ext_proc cluster goes into panic",
    why="With too few healthy processors left, Envoy asks the unhealthy ones again, and requests wait for "
    "them.",
    fix="`common_lb_config: {healthy_panic_threshold: {value: 0}}`: requests then go on without a pick at "
    "once.",
)
def ext_proc_panic(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find processors' clusters with health checks and a panic threshold above 0."""
    for cluster in processor_clusters(facts, context):
        if cluster.health_checks and cluster.panic_percent:
            yield Finding(
                Severity.WARNING,
                f"{cluster.where}.common_lb_config.healthy_panic_threshold",
                f"{cluster.panic_percent:g} %",
            )


@rule(
    title="circuit breakers of the ext_proc cluster at Envoy's default of 1,024 or below",
    why="A stream to the processor lives as long as its request, so this is a limit on requests in flight: "
    "those beyond it go without a pick, or fail without `failure_mode_allow`.",
    fix="`max_requests` and `max_pending_requests` far above the number of requests in flight, such as "
    "1000000.",
)
def ext_proc_circuit_breaker(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at the thresholds that streams meet, and at whether they have been met."""
    for cluster in processor_clusters(facts, context):
        breakers = cluster.breakers
        met = counter_sum(facts, cluster.name, "upstream_rq_pending_overflow", "upstream_rq_active_overflow")
        limits = {"max_requests": breakers.max_requests, "max_pending_requests": breakers.max_pending}
        for name, setting in limits.items():
            limit = DEFAULT_BREAKER if setting is None else setting
            if limit > DEFAULT_BREAKER and not met:
                continue
            what = f"{limit:,}" + (" (the default)" if setting is None else "")
            if met:
                what += f", and streams were refused {met:,.0f} times"
            yield Finding(
                Severity.ERROR if met else Severity.WARNING,
                f"{cluster.where}.circuit_breakers.{name}",
                what,
            )


@rule(
    title="the ext_proc cluster speaks HTTP/1.1",
    why="ext_proc is gRPC, and gRPC needs HTTP/2: no message ever arrives.",
    fix="`explicit_http_config: {http2_protocol_options: {}}` in the cluster's HttpProtocolOptions.",
)
def ext_proc_protocol(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find clusters without HTTP/2 options."""
    for cluster in processor_clusters(facts, context):
        if not cluster.http2:
            yield Finding(Severity.ERROR, f"{cluster.where}.typed_extension_protocol_options", "HTTP/1.1")


@rule(
    title="ext_proc with `request_body_mode: STREAMED`",
    why="The headers leave before the first piece of the body is read, and the host with them: nothing that "
    "stands in the body can choose it.",
    fix="`request_body_mode: BUFFERED` for ordinary bodies and BUFFERED_PARTIAL for long ones.",
)
def ext_proc_streamed(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find STREAMED request bodies."""
    for passage, entry, ext_proc in processors(facts, context):
        if ext_proc.mode.request_body == "STREAMED":
            yield Finding(
                Severity.WARNING, passage.route.where, f"request_body_mode STREAMED of {entry.name}"
            )


_BUFFERED: Final = frozenset({"BUFFERED", "BUFFERED_PARTIAL"})


@rule(
    title="response bodies go through ext_proc",
    why="Envoy holds a token stream back until it has ended or its buffer is full: clients see nothing, then "
    "everything, and long answers fail.",
    fix="`response_body_mode: NONE`; the access log tells what became of each request.",
)
def ext_proc_response_body(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find response bodies that are buffered, or that cost one message a chunk."""
    for passage, entry, ext_proc in processors(facts, context):
        mode = ext_proc.mode.response_body
        what = f"response_body_mode {mode} of {entry.name}"
        if mode in _BUFFERED:
            yield Finding(Severity.ERROR, passage.route.where, what)
        elif mode != "NONE":
            yield Finding(
                Severity.NOTE,
                passage.route.where,
                what,
                why="Each token of each answer waits for a round trip to the processor.",
            )
