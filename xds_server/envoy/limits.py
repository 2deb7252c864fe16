"""A pool's limits as Envoy configuration: from its SLA and health checks, otherwise the defaults."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    CircuitBreakersThresholdsRetryBudget,
    ClusterCommonLbConfig,
    OutlierDetection,
)
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation, HeaderMutationRules
from envoy_data_plane.envoy.config.core.v3 import HealthCheck, HealthCheckHttpHealthCheck
from envoy_data_plane.envoy.config.route.v3 import (
    HedgePolicy,
    RetryPolicy,
    RetryPolicyRetryBackOff,
    RetryPolicyRetryHostPredicate,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import (
    HeaderMutation as HeaderMutationFilter,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import Mutations
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher
from envoy_data_plane.envoy.type.v3 import Int64Range, Percent

from fleet.names import (
    HEADER_IDEMPOTENCY,
    METADATA_FIRST_BYTE,
    METADATA_IDEMPOTENCY,
    METADATA_RETRY_ON,
)
from fleet.settings.probes import probe
from fleet.settings.sla_policy import UNSENT, derive
from xds_server.envoy.extension import metadata, overwriting, packed, seconds

if TYPE_CHECKING:
    from fleet.settings import ListenerSettings, PoolSettings, Settings
    from fleet.settings.sla_policy import Derived

LIMITS_FILTER: Final = "envoy.filters.http.header_mutation"
# Past the end of a pick a retry draws by weight until it meets a host that was not tried. A few draws would
# often meet the one that has just failed, the more so the heavier it is; a draw takes 0.1 microseconds.
_HOST_SELECTION_ATTEMPTS: Final = 256
_LEAST_ERROR_HOSTS: Final = 2
_EVERY_STATUS: Final = (100, 600)
_PROBE_JITTER_PERCENT: Final = 20
_BY_STATUS: Final = "retriable-status-codes"
_OF_A_REFUSAL: Final = "content-type|retry-after"


def retry_policy(pool: PoolSettings, settings: Settings) -> RetryPolicy | None:
    """Which requests are retried, and after which pauses; None: none.

    Nothing here repeats what an engine may have begun. With an SLA, requests that may be repeated ask for
    more by themselves, by headers that `filters` makes of ext_proc's metadata; before that, the SLA's status
    codes mean nothing.
    """
    derived = _derived(pool, settings)
    retry_on, retries = (pool.retry_on, pool.retries) if derived is None else (UNSENT, derived.attempts - 1)
    if not retries or not (retry_on or pool.retry_statuses):
        return None
    previous_hosts = RetryPolicyRetryHostPredicate(
        name="envoy.retry_host_predicates.previous_hosts", typed_config=packed(PreviousHostsPredicate())
    )
    policy = RetryPolicy(
        retry_on=retry_on,
        num_retries=retries,
        retry_host_predicate=[previous_hosts],
        host_selection_retry_max_attempts=_HOST_SELECTION_ATTEMPTS,
    )
    if derived is not None:
        policy.retry_back_off = RetryPolicyRetryBackOff(
            base_interval=_milliseconds(derived.back_off_ms),
            max_interval=_milliseconds(derived.most_back_off_ms),
        )
        policy.retriable_status_codes = list(derived.retriable_status_codes)
        return policy
    return retried_after(policy, pool.retry_statuses)


def retried_after(policy: RetryPolicy | None, statuses: tuple[int, ...]) -> RetryPolicy | None:
    """Add these statuses, in place of others, to the conditions of a policy."""
    if policy is not None and statuses:
        conditions = {*policy.retry_on.split(","), _BY_STATUS} - {""}
        policy.retry_on = ",".join(sorted(conditions))
        policy.retriable_status_codes = list(statuses)
    return policy


def hedge_policy(pool: PoolSettings, settings: Settings) -> HedgePolicy | None:
    """Hedge a late request on the next engine, without ending the first try: no request may fail by time."""
    derived = _derived(pool, settings)
    return HedgePolicy(hedge_on_per_try_timeout=True) if derived is not None and derived.hedged else None


def circuit_breakers(pool: PoolSettings, default: CircuitBreakers) -> CircuitBreakers:
    """Limits of concurrent requests and retries; `default` without an SLA."""
    derived = derive(pool)
    if derived is None:
        return default
    return CircuitBreakers(
        thresholds=[
            CircuitBreakersThresholds(
                max_connections=derived.most_requests,
                max_pending_requests=derived.most_requests,
                max_requests=derived.most_requests,
                retry_budget=CircuitBreakersThresholdsRetryBudget(
                    budget_percent=Percent(value=float(derived.retry_percent)),
                    min_retry_concurrency=derived.retry_concurrency,
                ),
            )
        ]
    )


def outlier_detection(pool: PoolSettings, default: OutlierDetection) -> OutlierDetection:
    """Which endpoints are ejected: as in `default`, and for more errors than the SLA tolerates.

    Only engines' own answers count for these; connections have their own rule in `default`.
    """
    if pool.health_check is not None:
        # A probe of /health shows nothing about engines whose answers are errors.
        default.successful_active_health_check_uneject_host = False
    derived = derive(pool)
    if derived is None:
        return default
    default.interval = seconds(derived.error_window_seconds)
    default.consecutive_5xx = derived.consecutive_errors
    default.enforcing_consecutive_5xx = 100
    default.failure_percentage_threshold = derived.error_percent
    default.enforcing_failure_percentage = 100
    default.failure_percentage_request_volume = derived.error_requests
    default.failure_percentage_minimum_hosts = _LEAST_ERROR_HOSTS
    return default


def common_lb_config(pool: PoolSettings, default: ClusterCommonLbConfig) -> ClusterCommonLbConfig:
    """The cap on engines that probes may exclude; `default` without probes."""
    health_check = probe(pool)
    if health_check is not None:
        default.healthy_panic_threshold = Percent(value=health_check.panic_percent)
    return default


def health_checks(pool: PoolSettings) -> list[HealthCheck]:
    """Envoy's own probes of the pool's engines; none by default."""
    health_check = probe(pool)
    if health_check is None:
        return []
    interval = seconds(health_check.interval_seconds)
    return [
        HealthCheck(
            timeout=seconds(health_check.timeout_seconds),
            interval=interval,
            # Its default of 60 s is in force until a cluster has had its first request.
            no_traffic_interval=interval,
            # Many Envoys that start together do not probe together for ever.
            interval_jitter_percent=_PROBE_JITTER_PERCENT,
            unhealthy_threshold=health_check.failures,
            healthy_threshold=health_check.successes,
            # An engine's keep-alive may end just when a probe is sent, which would count as a failure.
            reuse_connection=False,
            http_health_check=HealthCheckHttpHealthCheck(
                path=health_check.path,
                # Without it one answer other than 200 takes an engine out, whatever the threshold.
                retriable_statuses=[Int64Range(start=_EVERY_STATUS[0], end=_EVERY_STATUS[1])],
            ),
        )
    ]


def filters(listener: ListenerSettings, settings: Settings) -> list[HttpFilter]:
    """Between the buffer and the router: ext_proc's decision on a request becomes Envoy's own headers.

    A client's key of our name goes. Metadata that is not there adds no header.
    """
    if not settings.ext_proc.idempotency.enabled:
        return []
    made = [
        HeaderMutation(remove=HEADER_IDEMPOTENCY),
        HeaderMutation(append=overwriting(HEADER_IDEMPOTENCY, metadata(METADATA_IDEMPOTENCY))),
    ]
    # ext_proc sends the metadata only where the request's own pool permits it.
    all_derived = [_derived(pool, settings) for pool in settings.pools if pool.name in listener.pools]
    if any(derived is not None and derived.repeats_keyed for derived in all_derived):
        made.append(HeaderMutation(append=overwriting("x-envoy-retry-on", metadata(METADATA_RETRY_ON))))
    if any(derived is not None and derived.hedged for derived in all_derived):
        made.append(
            HeaderMutation(
                append=overwriting("x-envoy-upstream-rq-per-try-timeout-ms", metadata(METADATA_FIRST_BYTE))
            )
        )
    return [
        HttpFilter(
            name=LIMITS_FILTER,
            typed_config=packed(HeaderMutationFilter(mutations=Mutations(request_mutations=made))),
        )
    ]


def refuses_duplicates(settings: Settings) -> bool:
    """Whether ext_proc may answer in an engine's place, because a request's twin is in flight."""
    keys = settings.ext_proc.idempotency
    return keys.enabled and keys.duplicates != "pass"


def may_answer(listener: ListenerSettings, settings: Settings) -> bool:
    """Whether ext_proc may answer in an engine's place at all."""
    refuses_models = listener.unknown_models == "refuse"
    return refuses_duplicates(settings) or refuses_models or settings.ext_proc.pick.admission.enabled


def mutation_rules(
    listener: ListenerSettings, settings: Settings, default: HeaderMutationRules
) -> HeaderMutationRules:
    """They apply to the headers of such an answer too, so those of a refusal may be set."""
    if not may_answer(listener, settings):
        return default
    default.allow_expression = RegexMatcher(regex=_OF_A_REFUSAL)
    return default


def _derived(pool: PoolSettings, settings: Settings) -> Derived | None:
    keys = settings.ext_proc.idempotency
    return derive(pool, streaming_keys=keys.enabled and keys.streaming)


def _milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)
