"""The rules about Envoy by name. This dict is the only registration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.rules import connections, limits, picks, processors, retries

if TYPE_CHECKING:
    from warmroute.doctor.envoy.facts import Facts
    from warmroute.doctor.rule import Rule

RULES: Final[dict[str, Rule[Facts]]] = {
    "buffer-limit": limits.buffer_limit,
    "leading-part-behind-buffer": limits.leading_part_behind_buffer,
    "upgrade-behind-buffer": limits.upgrade_behind_buffer,
    "route-timeout": limits.route_timeout,
    "idle-timeout": limits.idle_timeout,
    "stream-duration": limits.stream_duration,
    "per-try-timeout": limits.per_try_timeout,
    "ext-proc-failure-mode": processors.ext_proc_failure_mode,
    "ext-proc-message-timeout": processors.ext_proc_message_timeout,
    "ext-proc-health": processors.ext_proc_health,
    "ext-proc-panic": processors.ext_proc_panic,
    "ext-proc-circuit-breaker": processors.ext_proc_circuit_breaker,
    "ext-proc-protocol": processors.ext_proc_protocol,
    "ext-proc-streamed": processors.ext_proc_streamed,
    "ext-proc-response-body": processors.ext_proc_response_body,
    "filter-order": picks.filter_order,
    "pick-too-late": picks.pick_too_late,
    "pick-ignored": picks.pick_ignored,
    "dead-picks": picks.dead_picks,
    "weights-under-updates": picks.weights_under_updates,
    "slow-start": picks.slow_start,
    "header-removal": picks.header_removal,
    "unsafe-retries": retries.unsafe_retries,
    "retry-limit": retries.retry_limit,
    "doubled-body": retries.doubled_body,
    "pool-circuit-breaker": connections.pool_circuit_breaker,
    "pool-panic": connections.pool_panic,
    "engine-health-check": connections.engine_health_check,
    "connect-timeout": connections.connect_timeout,
    "engine-keepalive": connections.engine_keepalive,
    "keepalive": connections.keepalive,
    "http2-streams": connections.http2_streams,
    "access-log": connections.access_log,
}
