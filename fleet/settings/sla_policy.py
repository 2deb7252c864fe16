"""From an SLA to Envoy's numbers, each with its reason. Pure: the settings are the only input.

The limits of Envoy 1.40 decide what is derived (tests/envoy/test_sla.py shows each):

- `per_try_timeout` runs until the *response headers*. It never cuts a token stream, however long, and it
  does not cover the time between headers and the first token. A response that is not streamed has its headers
  at its end, so the limit would cut it: only requests for streams can have one.
- When it expires and the request may not be repeated, the client gets a 504 that Envoy without the limit
  would not have sent. With `hedge_on_per_try_timeout` the slow attempt goes on in parallel with the next one,
  and the first good response wins: the limit fails no request.
- The time to connect, TLS handshake included, is the same for all attempts: a short one fails requests where
  all engines are late. So it is Envoy's own 5 s unless the operator sets it.
- The back-off before retry k is drawn from [0, min(base * 2^(k-1), most)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleet.settings.probes import ImpossibleError, probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.settings.model import Settings
    from fleet.settings.pools import PoolSettings
    from fleet.settings.sla import SlaSettings
    from fleet.settings.strict import FieldPath

UNSENT: Final = "connect-failure,refused-stream,reset-before-request"
"""Requests that no engine has begun: repeating them is always safe."""
KEYED: Final = "reset,retriable-status-codes"
"""Added to `UNSENT` for each request with a key."""
KEYED_STATUS_CODES: Final = (503,)
"""The status by which an engine refuses work for now."""
HEDGED_STATUS_CODES: Final = (409, 429, 500, 502, 503, 504)
"""Responses of a second engine that must not win over a first one that still works. 409 comes from an engine
that knows the key of the first attempt."""

_MISSED_SHARE: Final = 0.05
"""The share of requests that may miss a P95."""
_LEAST_CONNECT_MS: Final = 50
_CONNECT_ROUND_TRIPS: Final = 4
_LEAST_RETRY_PERCENT: Final = 20
_RETRY_CONCURRENCY: Final = 10
_ENVOY_MOST_REQUESTS: Final = 1024
_SPARE: Final = 1.5
UNLIMITED_REQUESTS: Final = 1_000_000
_FALSE_ALARM: Final = 1e-6
_SIGMAS: Final = 3
_LEAST_MARGIN: Final = 0.1
_ERROR_REQUESTS: Final = 50
_ERROR_WINDOW_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Derived:
    """Envoy's numbers for one pool. Times are whole milliseconds, as Envoy takes them."""

    attempts: int
    connect_ms: int
    """For connecting, in each attempt."""
    connect_bounded: bool
    """Whether `connect_ms` is Envoy's limit, because the operator set it. Otherwise it is only planned."""
    answer_ms: int
    """The rest of each attempt, for the engine to begin its response."""
    hedged: bool
    """Whether `answer_ms` is Envoy's limit, for requests for streams that have a key."""
    repeats_keyed: bool
    back_off_ms: int
    most_back_off_ms: int
    within_ms: int
    """The SLA without the base round trip."""
    retry_percent: int
    """The percentage of requests in flight that may be retries."""
    retry_concurrency: int
    """The number of retries that is always allowed."""
    most_requests: int
    """Limit of requests in flight, of requests that wait for a connection, and of connections; above it:
    503."""
    consecutive_errors: int
    """The run of 5xx responses that ejects an engine."""
    error_percent: int
    """A larger percentage of 5xx responses within a window ejects it too, ..."""
    error_requests: int
    """... if it had at least this many requests in the window."""
    error_window_seconds: float

    @property
    def back_offs_ms(self) -> tuple[int, ...]:
        """The longest pause before each retry."""
        return back_offs(self.attempts, self.back_off_ms, self.most_back_off_ms)

    @property
    def worst_ms(self) -> int:
        """The longest time to the end of the last attempt: all attempts and pauses, limited or planned."""
        answers = self.attempts if self.hedged else 1
        return self.attempts * self.connect_ms + answers * self.answer_ms + sum(self.back_offs_ms)

    @property
    def retriable_status_codes(self) -> tuple[int, ...]:
        """The codes of `retriable-status-codes` in `KEYED`."""
        if not self.repeats_keyed:
            return ()
        return HEDGED_STATUS_CODES if self.hedged else KEYED_STATUS_CODES


def back_offs(attempts: int, base_ms: int, most_ms: int) -> tuple[int, ...]:
    """Return the longest pause before each retry: the base, doubled each time, up to the most.

    Envoy draws each pause evenly from 0 to that, so the mean is half. (Its documentation has (2^k - 1) times
    the base; 1.40 doubles.)
    """
    return tuple(min(base_ms << retry, most_ms) for retry in range(attempts - 1))


def attempts_for(error_ratio: float) -> int:
    """Return the fewest attempts, at least two, that all fail in at most 5 % of the requests.

    Attempts go to different engines and are taken to fail independently: e^n <= 1 - 0.95, because a request
    whose attempts all fail has no first token within any limit. Two even without tolerated errors: an engine
    that restarts refuses connections, which needs one retry.
    """
    attempts = 2
    while error_ratio**attempts > _MISSED_SHARE:
        attempts += 1
    return attempts


def derive(pool: PoolSettings, *, streaming_keys: bool = False) -> Derived | None:
    """Derive a pool's numbers; None without an SLA.

    Time. Attempts and pauses always fit into the SLA without the base round trip:
    n * connect + pauses + (n or 1) * answer <= first_token_p95 - base_round_trip. n times `answer` where
    Envoy tries the next engine when one is late (`hedged`). Otherwise once: only connecting is retried, and
    `answer` is the rest for the engine that accepts.

    `streaming_keys` is whether requests for streams get idempotency keys.

    Raises:
        ImpossibleError: the attempts do not fit.
    """
    sla = pool.sla
    if sla is None:
        return None
    attempts = sla.attempts or attempts_for(sla.tolerated_error_ratio)
    keyed = sla.repeats == "keyed"
    hedged = keyed and streaming_keys and attempts > 1
    bounded = "connect_timeout_seconds" in pool.model_fields_set
    connect_ms = _connect_ms(pool, sla, bounded=bounded)
    base_ms, most_ms = _up(sla.back_off_seconds), _up(sla.most_back_off_seconds)
    within_ms = _down(sla.first_token_p95_seconds - sla.base_round_trip_seconds)
    rest = within_ms - attempts * connect_ms - sum(back_offs(attempts, base_ms, most_ms))
    answer_ms = rest // (attempts if hedged else 1)
    _possible(sla, attempts, connect_ms, answer_ms, rest, hedged=hedged, bounded=bounded)
    return Derived(
        attempts,
        connect_ms,
        bounded,
        answer_ms,
        hedged,
        keyed,
        base_ms,
        most_ms,
        within_ms,
        retry_percent(sla.tolerated_error_ratio, None if pool.discovery else len(pool.endpoints)),
        _RETRY_CONCURRENCY,
        most_requests(sla.requests_per_endpoint, len(pool.endpoints)),
        consecutive_errors(sla.tolerated_error_ratio),
        error_percent(sla.tolerated_error_ratio),
        _ERROR_REQUESTS,
        _ERROR_WINDOW_SECONDS,
    )


def retry_percent(error_ratio: float, endpoints: int | None) -> int:
    """Return the percentage of requests in flight that may be in a retry.

    Enough for the tolerated errors (e + e^2 + ... = e / (1 - e) retries a request), and for the loss of one
    engine: it had 1/k of the requests, half of them where k is two or unknown (None). At least 20, Envoy's
    own default; more retries would only add to an overload.
    """
    lost_ratio = 0.5 if endpoints is None else 1 / max(2, endpoints)
    return min(
        100, max(_LEAST_RETRY_PERCENT, _percent(error_ratio / (1 - error_ratio)), _percent(lost_ratio))
    )


def most_requests(requests_per_endpoint: int | None, endpoints: int) -> int:
    """Return how many requests a pool may have in flight before Envoy answers 503 by itself.

    1.5 times the capacity of the engines within the SLA, because an engine's own queue is better than a
    refusal; never less than Envoy's default of 1,024. None (unknown): no limit.
    """
    if requests_per_endpoint is None:
        return UNLIMITED_REQUESTS
    return max(_ENVOY_MOST_REQUESTS, math.ceil(_SPARE * requests_per_endpoint * endpoints))


def consecutive_errors(error_ratio: float) -> int:
    """Return the run of 5xx responses that ejects an engine.

    An engine at the tolerated ratio e has k errors in a row with probability e^k: the smallest k, at least 5
    (Envoy's default), for which that is below one in a million. It works at any rate of requests.
    """
    if error_ratio <= 0:
        return 5
    return max(5, math.ceil(math.log(_FALSE_ALARM) / math.log(error_ratio)))


def error_percent(error_ratio: float) -> int:
    """Return the percentage of 5xx responses in a window that ejects an engine: tolerance plus margin.

    A window of v requests at the true ratio e shows e with a deviation of sqrt(e (1 - e) / v). Three of them,
    and at least ten points: an engine exactly at the tolerance is hardly ever ejected.
    """
    deviation = math.sqrt(error_ratio * (1 - error_ratio) / _ERROR_REQUESTS)
    return _percent(error_ratio + max(_LEAST_MARGIN, _SIGMAS * deviation))


def contradictions(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    """Return path and text of each SLA or health check that no numbers can meet."""
    idempotency = settings.ext_proc.idempotency
    for i, pool in enumerate(settings.pools):
        try:
            probe(pool)
        except ImpossibleError as error:
            yield ("pools", i, "health_check", error.field), str(error)
        if pool.sla is None:
            continue
        yield from ((("pools", i, *path), text) for path, text in _excluded(pool, pool.sla))
        if pool.sla.repeats == "keyed" and not idempotency.enabled:
            yield (
                ("pools", i, "sla", "repeats"),
                "'keyed'; allowed: with ext_proc.idempotency.enabled, for without it no request has a key",
            )
        try:
            derive(pool, streaming_keys=idempotency.enabled and idempotency.streaming)
        except ImpossibleError as error:
            yield ("pools", i, "sla", error.field), str(error)


def _excluded(pool: PoolSettings, sla: SlaSettings) -> Iterator[tuple[FieldPath, str]]:
    for name in ("retries", "retry_on", "retry_statuses"):
        if name in pool.model_fields_set:
            yield (name,), f"{getattr(pool, name)!r}; allowed: this or an sla, from which it follows"
    if sla.requests_per_endpoint is not None and (pool.discovery or not pool.endpoints):
        yield (
            ("sla", "requests_per_endpoint"),
            f"{sla.requests_per_endpoint}; allowed: where all endpoints are listed and can be counted",
        )


def _connect_ms(pool: PoolSettings, sla: SlaSettings, *, bounded: bool) -> int:
    """Return the time to connect: the operator's limit, otherwise a plan that is no limit.

    The plan is four round trips, at least 50 ms: connecting takes one, three with TLS; the fourth is a
    margin. It suits idle engines. A kernel accepts for its engine only while the queue of connections has
    room, a lost packet is sent again after a second, and the engine's own process makes TLS handshakes. None
    of that may fail a request that waiting would have served.
    """
    if bounded:
        return max(1, _up(pool.connect_timeout_seconds))
    return max(_LEAST_CONNECT_MS, _up(_CONNECT_ROUND_TRIPS * sla.base_round_trip_seconds))


def _possible(
    sla: SlaSettings,
    attempts: int,
    connect_ms: int,
    answer_ms: int,
    rest_ms: int,
    *,
    hedged: bool,
    bounded: bool,
) -> None:
    least = max(1, _up(sla.base_round_trip_seconds), _up(sla.engine_first_token_seconds or 0))
    if answer_ms >= least:
        return
    missing = least * (attempts if hedged else 1) - rest_ms
    enough = (_up(sla.first_token_p95_seconds) + missing) / 1000
    needs = "the base round trip" if not sla.engine_first_token_seconds else "engine_first_token_seconds"
    shorter = "back_off_seconds or connect_timeout_seconds" if bounded else "back_off_seconds"
    raise ImpossibleError(
        "first_token_p95_seconds",
        f"{sla.first_token_p95_seconds:g}; allowed: at least {enough:g}, or fewer attempts, or a shorter"
        f" {shorter}: {attempts} attempts with {connect_ms} ms to connect and their back-off leave"
        f" {answer_ms} ms to answer, and {needs} takes {least} ms",
    )


def _up(seconds: float) -> int:
    return math.ceil(round(seconds * 1000, 6))


def _down(seconds: float) -> int:
    return math.floor(round(seconds * 1000, 6))


def _percent(ratio: float) -> int:
    return math.ceil(round(100 * ratio, 6))
