"""SLAs and health checks of pools, from which `sla_policy` and `probes` derive Envoy's numbers."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fleet.settings.strict import Seconds, Strict, UrlPath

Repeats = Literal["unsent", "keyed"]


class SlaSettings(Strict):
    """A pool's SLA. Retries, back-off, connect limits, retry budget, breakers and ejection follow from it."""

    first_token_p95_seconds: Seconds
    """Time in which 95 % of the requests have their first token, as their clients see it."""
    tolerated_error_ratio: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)]
    """The share of attempts that may fail at any time."""
    base_round_trip_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
    """Time of client, network, Envoy and pick together for a request that waits for nothing."""
    engine_first_token_seconds: Seconds | None = None
    """A healthy engine's time to answer, as measured under load; None: unknown."""
    attempts: Annotated[int, Field(ge=1, le=8)] | None = None
    """The first one counts; None: derived from `tolerated_error_ratio`."""
    back_off_seconds: Annotated[float, Field(ge=0.001, le=60, allow_inf_nan=False)] = 0.1
    """The longest pause before the first retry; it doubles with each further one."""
    most_back_off_seconds: Annotated[float, Field(ge=0.001, le=60, allow_inf_nan=False)] = 0.4
    requests_per_endpoint: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The most concurrent requests that keep an engine within the SLA; None: unknown, and no limit."""
    repeats: Repeats = "unsent"
    """Requests to retry: those that no engine has begun (`unsent`), or also those with a key and no
    answer."""

    @model_validator(mode="after")
    def _back_off_grows(self) -> Self:
        if self.most_back_off_seconds < self.back_off_seconds:
            raise ValueError("allowed: most_back_off_seconds at least back_off_seconds")
        return self


class HealthCheckSettings(Strict):
    """Envoy's active health checks of a pool. None: derived, so that slow engines stay healthy."""

    path: UrlPath = "/health"
    measured_p99_seconds: Seconds | None = None
    """P99 of the path under full load, or of a first token; None: unknown."""
    timeout_seconds: Seconds | None = None
    interval_seconds: Seconds | None = None
    """Between the end of one probe and the next one."""
    failures: Annotated[int, Field(ge=2, le=100)] = 3
    """Failures in a row that make an engine unhealthy. Never one alone."""
    successes: Annotated[int, Field(ge=1, le=100)] = 2
    """Successes in a row that make it healthy again."""
    most_out_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    """With a larger share of the pool unhealthy, Envoy ignores the checks and uses all engines."""
