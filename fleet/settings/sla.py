"""What operators promise and tolerate, and what `fleet.settings.sla_policy` derives Envoy's numbers from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fleet.settings.strict import Seconds, Strict

Repeats = Literal["unsent", "keyed"]


class SlaSettings(Strict):
    """A pool's SLA. Retries, back-off, limits of connecting, budget, breakers and ejection follow from it."""

    first_token_p95_seconds: Seconds
    """Within this 95 % of the requests have their first token, as their clients see it."""
    tolerated_error_ratio: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)]
    """Such a share of attempts may fail, for ever, without anything being wrong."""
    base_round_trip_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
    """What client, network, Envoy and pick take together for a request that waits for nothing."""
    engine_first_token_seconds: Seconds | None = None
    """What a well engine needs to answer, as measured under load; None: not known."""
    attempts: Annotated[int, Field(ge=1, le=8)] | None = None
    """The first one counts; None: derived from `tolerated_error_ratio`."""
    back_off_seconds: Annotated[float, Field(ge=0.001, le=60, allow_inf_nan=False)] = 0.1
    """The longest pause before the first retry; it doubles with each further one."""
    most_back_off_seconds: Annotated[float, Field(ge=0.001, le=60, allow_inf_nan=False)] = 0.4
    requests_per_endpoint: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """As many requests at once keep an engine within the SLA; None: not known, and nothing is refused."""
    repeats: Repeats = "unsent"
    """What may be tried again: what no engine has begun; or also what has a key and no answer."""

    @model_validator(mode="after")
    def _back_off_grows(self) -> Self:
        if self.most_back_off_seconds < self.back_off_seconds:
            raise ValueError("allowed: most_back_off_seconds at least back_off_seconds")
        return self


class HealthCheckSettings(Strict):
    """Envoy's own probes of a pool's engines. What is None is derived so that slow engines stay in."""

    path: Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$", max_length=2048)] = "/health"
    measured_p99_seconds: Seconds | None = None
    """How long the path, or else a first token, takes under full load (P99); None: not known."""
    timeout_seconds: Seconds | None = None
    interval_seconds: Seconds | None = None
    """Between the end of one probe and the next one."""
    failures: Annotated[int, Field(ge=2, le=100)] = 3
    """So many in a row, and the engine is out. Never one alone."""
    successes: Annotated[int, Field(ge=1, le=100)] = 2
    """So many in a row, and it is in again."""
    most_out_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    """With a larger share of the pool out, Envoy believes no probe and uses everybody."""
