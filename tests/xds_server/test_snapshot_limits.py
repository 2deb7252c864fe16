"""Limits as Envoy configuration: nothing without an SLA, and the derived numbers with one."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    Cluster,
    ClusterCommonLbConfig,
    OutlierDetection,
)
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutationRules

from fleet.settings import Settings, parse_settings
from fleet.settings.sla_policy import UNSENT
from xds_server.envoy import limits
from xds_server.envoy.clusters import clusters

SLA = {"first_token_p95_seconds": 0.8, "tolerated_error_ratio": 0.15, "base_round_trip_seconds": 0.02}


def settings(pool: dict[str, Any] | None = None, **idempotency: Any) -> Settings:
    entry = {"name": "p", "endpoints": [{"address": f"10.0.0.{i}:1"} for i in (1, 2, 3)], **(pool or {})}
    written = {
        "pools": [entry],
        "listeners": [{"name": "l", "address": "127.0.0.1:10000", "pool": "p"}],
        "ext_proc": {"idempotency": idempotency},
    }
    return parse_settings(json.dumps(written))


def pool_cluster(configured: Settings) -> Cluster:
    return Cluster.parse(bytes(clusters(configured)[0].body.value))


def test_without_an_sla_everything_is_what_it_was() -> None:
    configured = settings()
    (pool,), (listener,) = configured.pools, configured.listeners
    breakers, outlier, common = CircuitBreakers(), OutlierDetection(), ClusterCommonLbConfig()
    rules = HeaderMutationRules(disallow_all=True)
    assert limits.circuit_breakers(pool, breakers) is breakers
    assert bytes(limits.outlier_detection(pool, outlier)) == b""
    assert bytes(limits.common_lb_config(pool, common)) == b""
    assert limits.mutation_rules(listener, configured, rules).allow_expression is None
    assert limits.health_checks(pool) == []
    assert not pool_cluster(configured).ignore_health_on_host_removal
    assert limits.filters(listener, configured) == []
    assert not limits.may_answer(listener, configured)
    assert limits.hedge_policy(pool, configured) is None
    policy = limits.retry_policy(pool, configured)
    assert policy is not None
    assert (policy.num_retries, policy.retry_back_off) == (2, None)
    assert {*policy.retry_on.split(",")} == {*UNSENT.split(","), "retriable-status-codes"}
    assert policy.retriable_status_codes == [503]


def test_with_an_sla_the_derived_numbers_are_there() -> None:
    configured = settings({"sla": {**SLA, "requests_per_endpoint": 512}})
    (pool,) = configured.pools
    policy = limits.retry_policy(pool, configured)
    assert policy is not None
    assert policy.retry_back_off is not None
    assert (policy.num_retries, policy.retry_on) == (1, UNSENT)
    assert policy.retry_back_off.base_interval == timedelta(milliseconds=100)
    assert policy.retry_back_off.max_interval == timedelta(milliseconds=400)
    assert policy.per_try_timeout is policy.per_try_idle_timeout is None, "a late answer is no 504"
    (threshold,) = limits.circuit_breakers(pool, CircuitBreakers()).thresholds
    assert threshold.max_requests == threshold.max_connections == threshold.max_pending_requests == 2304
    assert threshold.retry_budget is not None
    assert threshold.retry_budget.budget_percent is not None
    assert threshold.retry_budget.budget_percent.value == 34
    outlier = limits.outlier_detection(pool, OutlierDetection(consecutive_local_origin_failure=2))
    assert (outlier.consecutive_5xx, outlier.failure_percentage_threshold) == (8, 31)
    assert outlier.consecutive_local_origin_failure == 2, "refused connections count as before"


def test_attempts_of_one_are_no_retry_policy() -> None:
    configured = settings({"sla": {**SLA, "attempts": 1}})
    assert limits.retry_policy(configured.pools[0], configured) is None


def test_repeats_need_consent_per_request() -> None:
    """The route itself never repeats what was sent: the filter passes on what ext_proc says of one."""
    configured = settings({"sla": {**SLA, "repeats": "keyed"}}, enabled=True, streaming=True)
    (pool,), (listener,) = configured.pools, configured.listeners
    policy = limits.retry_policy(pool, configured)
    assert policy is not None
    assert policy.retry_on == UNSENT
    assert policy.per_try_timeout is None
    assert 503 in policy.retriable_status_codes
    assert limits.hedge_policy(pool, configured) is not None
    (made,) = limits.filters(listener, configured)
    assert made.typed_config is not None
    config = bytes(made.typed_config)
    for name in (b"x-envoy-retry-on", b"x-envoy-upstream-rq-per-try-timeout-ms", b"idempotency"):
        assert name in config


def test_keys_alone_repeat_nothing() -> None:
    configured = settings(enabled=True)
    (made,) = limits.filters(configured.listeners[0], configured)
    assert made.typed_config is not None
    assert b"x-envoy" not in bytes(made.typed_config)


def test_probes_leave_room_for_one_odd_answer() -> None:
    configured = settings({"health_check": {"most_out_ratio": 0.3}})
    (pool,) = configured.pools
    (check,) = limits.health_checks(pool)
    assert check.http_health_check is not None
    ((start, end),) = [(codes.start, codes.end) for codes in check.http_health_check.retriable_statuses]
    assert (start, end) == (100, 600)
    assert check.unhealthy_threshold == 3
    assert pool_cluster(configured).ignore_health_on_host_removal
    outlier = limits.outlier_detection(pool, OutlierDetection())
    assert outlier.successful_active_health_check_uneject_host is False
    common = limits.common_lb_config(pool, ClusterCommonLbConfig())
    assert common.healthy_panic_threshold is not None
    assert common.healthy_panic_threshold.value == 70
