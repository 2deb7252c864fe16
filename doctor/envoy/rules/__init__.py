"""The rules about Envoy, by name: one file each. This dict is the only registration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from doctor.envoy.rules import (
    access_log,
    buffer_limit,
    dead_picks,
    doubled_body,
    engine_health_check,
    engine_keepalive,
    ext_proc_circuit_breaker,
    ext_proc_failure_mode,
    ext_proc_health,
    ext_proc_message_timeout,
    ext_proc_panic,
    ext_proc_protocol,
    ext_proc_response_body,
    ext_proc_streamed,
    filter_order,
    header_removal,
    http2_streams,
    idle_timeout,
    keepalive,
    leading_part_behind_buffer,
    per_try_timeout,
    pick_ignored,
    pick_too_late,
    pool_circuit_breaker,
    pool_panic,
    retry_limit,
    route_timeout,
    slow_start,
    stream_duration,
    unsafe_retries,
    upgrade_behind_buffer,
    weights_under_updates,
)

if TYPE_CHECKING:
    from doctor.envoy.facts import Facts
    from doctor.rule import Rule

RULES: Final[dict[str, Rule[Facts]]] = {
    "buffer-limit": buffer_limit.RULE,
    "leading-part-behind-buffer": leading_part_behind_buffer.RULE,
    "upgrade-behind-buffer": upgrade_behind_buffer.RULE,
    "route-timeout": route_timeout.RULE,
    "idle-timeout": idle_timeout.RULE,
    "stream-duration": stream_duration.RULE,
    "per-try-timeout": per_try_timeout.RULE,
    "ext-proc-failure-mode": ext_proc_failure_mode.RULE,
    "ext-proc-message-timeout": ext_proc_message_timeout.RULE,
    "ext-proc-health": ext_proc_health.RULE,
    "ext-proc-panic": ext_proc_panic.RULE,
    "ext-proc-circuit-breaker": ext_proc_circuit_breaker.RULE,
    "ext-proc-protocol": ext_proc_protocol.RULE,
    "ext-proc-streamed": ext_proc_streamed.RULE,
    "ext-proc-response-body": ext_proc_response_body.RULE,
    "filter-order": filter_order.RULE,
    "pick-too-late": pick_too_late.RULE,
    "pick-ignored": pick_ignored.RULE,
    "dead-picks": dead_picks.RULE,
    "weights-under-updates": weights_under_updates.RULE,
    "slow-start": slow_start.RULE,
    "header-removal": header_removal.RULE,
    "unsafe-retries": unsafe_retries.RULE,
    "retry-limit": retry_limit.RULE,
    "doubled-body": doubled_body.RULE,
    "pool-circuit-breaker": pool_circuit_breaker.RULE,
    "pool-panic": pool_panic.RULE,
    "engine-health-check": engine_health_check.RULE,
    "engine-keepalive": engine_keepalive.RULE,
    "keepalive": keepalive.RULE,
    "http2-streams": http2_streams.RULE,
    "access-log": access_log.RULE,
}
