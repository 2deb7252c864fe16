"""The reason of each number that is derived from an SLA, for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fleet.settings import probes
from fleet.settings.sla_policy import KEYED, UNLIMITED_REQUESTS, UNSENT, derive

if TYPE_CHECKING:
    from fleet.settings import PoolSettings, Settings
    from fleet.settings.probes import Probe
    from fleet.settings.sla import SlaSettings
    from fleet.settings.sla_policy import Derived


class Number(NamedTuple):
    """One number: its name in Envoy, its value with its unit, and its reason."""

    name: str
    value: str
    why: str


def numbers(pool: PoolSettings, settings: Settings) -> tuple[Number, ...]:
    """Explain all numbers that follow from a pool's `sla` and `health_check`; empty without either."""
    keys = settings.ext_proc.idempotency
    derived = derive(pool, streaming_keys=keys.enabled and keys.streaming)
    probe = probes.probe(pool)
    explained: list[Number] = []
    if derived is not None and pool.sla is not None:
        explained += [
            *_tries(derived, pool.sla),
            *_times(derived, pool.sla, pool),
            *_limits(derived, pool.sla, pool),
        ]
    if probe is not None:
        explained += _probing(probe, pool)
    return tuple(explained)


def _tries(derived: Derived, sla: SlaSettings) -> list[Number]:
    ratio, n = sla.tolerated_error_ratio, derived.attempts
    if sla.attempts is not None:
        why = "sla.attempts"
    elif n == 2:
        why = f"two, and all fail in {ratio:g}^2 = {ratio**2:.2%} of requests: P95 allows 5 %"
    else:
        why = f"the fewest that all fail in at most 5 %: {ratio:g}^{n} = {ratio**n:.2%}"
    keyed = (
        "; with an idempotency key also what was sent and has no answer, and "
        + ", ".join(str(code) for code in derived.retriable_status_codes)
        if derived.repeats_keyed
        else ""
    )
    return [
        Number("attempts", str(n), why),
        Number("retry_policy.num_retries", str(n - 1), "the attempts after the first"),
        Number(
            "retry_policy.retry_on",
            f"{UNSENT},{KEYED}" if derived.repeats_keyed else UNSENT,
            f"what no engine has begun may be repeated{keyed}",
        ),
    ]


def _times(derived: Derived, sla: SlaSettings, pool: PoolSettings) -> list[Number]:
    n, pauses = derived.attempts, derived.back_offs_ms
    answers = n if derived.hedged else 1
    answer = Number(
        "retry_policy.per_try_timeout" if derived.hedged else "left to answer",
        f"{derived.answer_ms} ms",
        f"({derived.within_ms} - {n}*{derived.connect_ms} - {sum(pauses)}) / {answers}; "
        + (
            "to the response headers, for streams with a key: then the next engine gets it too, and the"
            " first good answer wins"
            if derived.hedged
            else "for the engine that accepts. Envoy has no limit: a late answer is better than a 504"
        ),
    )
    return [
        Number(
            "time for all attempts",
            f"{derived.within_ms} ms",
            f"first_token_p95_seconds {sla.first_token_p95_seconds:g} - base_round_trip_seconds"
            f" {sla.base_round_trip_seconds:g}",
        ),
        *_connecting(derived, pool),
        Number(
            "retry_back_off",
            f"{derived.back_off_ms} ms, at most {derived.most_back_off_ms} ms",
            f"doubling; the pauses are drawn from 0 to {', '.join(map(str, pauses)) or 'nothing'} ms",
        ),
        answer,
        Number(
            "worst case",
            f"{derived.worst_ms} ms",
            f"{n}*{derived.connect_ms} to connect + {sum(pauses)} of pauses + {answers}*{derived.answer_ms}"
            f" to answer, within {derived.within_ms} ms"
            + ("" if derived.connect_bounded else ", unless connecting takes longer than planned"),
        ),
    ]


def _connecting(derived: Derived, pool: PoolSettings) -> list[Number]:
    limit = f"{pool.connect_timeout_seconds:g} s"
    if derived.connect_bounded:
        why = (
            "connect_timeout_seconds, as set: with TLS the handshake included. Where all engines take longer,"
            " requests fail with 503"
        )
        return [Number("connect_timeout", limit, why)]
    return [
        Number(
            "left to connect",
            f"{derived.connect_ms} ms",
            "four base round trips, at least 50 ms: what engines with nothing else to do need. A plan, no"
            " limit",
        ),
        Number(
            "connect_timeout",
            limit,
            "Envoy's own: an engine that accepts or makes its handshake late is better than a 503. A host"
            " that drops packets costs an attempt all of it; connect_timeout_seconds sets another limit,"
            " which counts in each attempt",
        ),
    ]


def _limits(derived: Derived, sla: SlaSettings, pool: PoolSettings) -> list[Number]:
    ratio = sla.tolerated_error_ratio
    engines = "an unknown number of" if pool.discovery else str(len(pool.endpoints))
    unlimited = derived.most_requests == UNLIMITED_REQUESTS
    return [
        Number(
            "retry_budget.budget_percent",
            f"{derived.retry_percent} %",
            f"of requests in flight: the tolerated errors ({ratio:g} / (1 - {ratio:g})), or one of {engines}"
            " engines lost; at least 20",
        ),
        Number(
            "retry_budget.min_retry_concurrency",
            str(derived.retry_concurrency),
            "a percentage of few requests is 0, and this many retries do no harm",
        ),
        Number(
            "circuit_breakers",
            "none" if unlimited else f"{derived.most_requests} requests",
            "requests_per_endpoint is not given: an engine's queue is better than a refusal"
            if unlimited
            else f"1.5 * {sla.requests_per_endpoint} * {len(pool.endpoints)} engines, at least Envoy's 1024",
        ),
        Number(
            "outlier_detection.consecutive_5xx",
            str(derived.consecutive_errors),
            f"a run that an engine at the tolerance has once in a million requests ({ratio:g}^"
            f"{derived.consecutive_errors}); at least 5",
        ),
        Number(
            "outlier_detection.failure_percentage_threshold",
            f"{derived.error_percent} %",
            f"the tolerance of {ratio:.0%} and three deviations of {derived.error_requests} requests, at"
            f" least ten points; in windows of {derived.error_window_seconds:g} s",
        ),
    ]


def _probing(probe: Probe, pool: PoolSettings) -> list[Number]:
    check = pool.health_check
    assert check is not None
    usual, name = probes.usual_seconds(pool, check)
    if check.timeout_seconds is not None:
        why = "health_check.timeout_seconds"
    elif name:
        times = probes.FIRST_TOKENS if check.measured_p99_seconds is None else probes.P99S
        why = f"{times} * the {usual:g} s of {name}, at least {probes.LEAST_SECONDS:g} s"
    else:
        why = "nothing is measured: what no engine that works is known to exceed"
    return [
        Number("health_checks.timeout", f"{probe.timeout_seconds:g} s", why),
        Number(
            "health_checks.interval",
            f"{probe.interval_seconds:g} s",
            "half the time limit, after each probe's end" if check.interval_seconds is None else "as set",
        ),
        Number(
            "health_checks.unhealthy_threshold",
            str(probe.failures),
            f"in a row, whatever the answer: silent engines are out after {probe.silence_seconds:g} s,"
            f" refusing ones after {probe.refusal_seconds:g} s",
        ),
        Number("health_checks.healthy_threshold", str(probe.successes), "in a row, and it is in again"),
        Number(
            "healthy_panic_threshold",
            f"{probe.panic_percent:g} %",
            f"with more than {check.most_out_ratio:.0%} of the engines out, no probe is believed",
        ),
    ]
