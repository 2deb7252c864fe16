"""How an endpoint is chosen for a request: filter, score, choose; and who may be refused."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from fleet.settings.headers import OptionalHeaderName
from fleet.settings.pools import LocalitySettings
from fleet.settings.strict import NotNegative, Positive, Seconds, Share, Strict

FilterName = Literal["model", "subset", "healthy", "working", "trusted", "memory"]
ScorerName = Literal[
    "first_token", "decode_load", "memory", "trust", "pace", "topology", "adapter", "session", "leading"
]
PickerName = Literal["rendezvous", "cheapest"]
Priority = Annotated[int, Field(ge=-1000, le=1000)]

_MUST: Final = frozenset({"model", "subset"})


class CostSettings(Strict):
    """Constants of the scorers. What they add up is in seconds."""

    cold_price: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Cold work counts this many times its own time, because it delays those who come later."""
    prefill_tokens_per_second: Positive = 20_000.0
    """Used as long as the pool's own rate is not evident."""
    bytes_per_token: Positive = 4.0
    in_flight_seconds: NotNegative = 0.01
    """What each request in flight adds to the wait."""
    memory_pressure_from: Share = 0.85
    """Memory in use above this adds to the cost: the memory that `weights.memory` chooses."""
    memory_pressure_full: Share = 0.92
    """From here on it adds `memory_pressure_seconds`: the engine is about to preempt or to fail."""
    memory_pressure_seconds: NotNegative = 3.0
    distrust_seconds: NotNegative = 2.0
    """What an endpoint whose answers are all bad would cost more; in proportion to trust and errors."""
    slow_from_ratio: Annotated[float, Field(ge=1, le=1000)] = 2.0
    """An endpoint that takes so many times the pool's usual time for our requests costs what is beyond it."""
    slow_most_seconds: NotNegative = 30.0
    """At most so much; 0 switches it off."""
    other_zone_seconds: NotNegative = 0.002
    """What an endpoint in another zone costs more, where `locality` says where we are."""
    other_region_seconds: NotNegative = 0.05
    adapter_seconds: NotNegative = 0.2
    """Loading a LoRA adapter, where we have sent nothing for it lately."""
    adapter_memory_seconds: Seconds = 300.0
    """Lately: an engine is taken to keep an adapter this long."""

    @model_validator(mode="after")
    def _pressure_rises(self) -> Self:
        if self.memory_pressure_full < self.memory_pressure_from:
            raise ValueError("allowed: memory_pressure_full at least memory_pressure_from")
        return self


class ScorerSettings(Strict):
    """One scorer of the composition."""

    name: ScorerName
    weight: NotNegative = 1.0
    """Its seconds count this many times."""


class SessionSettings(Strict):
    """Sessions that stay where they are, as long as that costs little.

    They are told by the listener's `session_header`, else by a field of the body.
    """

    field: Annotated[str, Field(max_length=256)] = ""
    """Of the body, inner ones with dots (`metadata.user_id`); empty: none."""
    bonus_seconds: NotNegative = 0.05
    """What the endpoint of the session's last request costs less; 0 switches sessions off."""
    expiry_seconds: Seconds = 600.0
    entries: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000


class AdmissionSettings(Strict):
    """Who is refused when every endpoint is past its limit. Without a limit nobody is, ever."""

    most_wait_seconds: Seconds | None = None
    """An endpoint with a longer predicted wait is past its limit."""
    most_queue: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """One with more requests waiting in the engine is, too."""
    shed_below: Priority = 0
    """Requests of a lower priority are refused. Who names none has priority 0."""
    priority_header: OptionalHeaderName = ""
    """Carries a request's priority, a whole number; empty: none does."""
    tenant_priorities: dict[str, Priority] = Field(default_factory=dict)
    """By what `tenant_header` says, for requests without a priority of their own."""

    @property
    def enabled(self) -> bool:
        """Whether anybody may be refused."""
        return self.most_wait_seconds is not None or self.most_queue is not None


class PickSettings(Strict):
    """How an endpoint is chosen for a request."""

    filters: tuple[FilterName, ...] = ("model", "subset", "healthy", "working", "trusted", "memory")
    """Who may be chosen at all, in this order."""
    scorers: tuple[ScorerSettings, ...] = (
        ScorerSettings(name="first_token"),
        # A request in flight delays all those that run beside it, not only the one that comes.
        ScorerSettings(name="decode_load", weight=2.0),
        ScorerSettings(name="memory"),
        ScorerSettings(name="trust"),
        ScorerSettings(name="pace"),
        ScorerSettings(name="topology"),
        ScorerSettings(name="adapter"),
        ScorerSettings(name="session"),
        ScorerSettings(name="leading"),
    )
    """What an endpoint costs, in seconds: the sum over these."""
    picker: PickerName = "rendezvous"
    """Who is chosen among endpoints of almost equal cost."""
    cost: CostSettings = CostSettings()
    sessions: SessionSettings = SessionSettings()
    admission: AdmissionSettings = AdmissionSettings()
    locality: LocalitySettings = LocalitySettings()
    """Where the Envoys stand that ask this worker; empty: everywhere alike."""
    tenant_header: OptionalHeaderName = ""
    """Names the tenant that a request is from; empty: none does."""
    tenants_apart: bool = False
    """Engines keep tenants' prefixes apart, so they are not warm for each other."""
    block_bytes: Annotated[int, Field(ge=16, le=65_536)] = 256
    fallbacks: Annotated[int, Field(ge=0, le=16)] = 2
    """Endpoints named after the first, for retries."""
    other_domain_seconds: NotNegative = 1.0
    """A fallback from another fault domain goes before cheaper ones, up to so much above the cheapest."""
    trial_interval_seconds: Seconds = 0.7
    """An endpoint that is not trusted gets at most one request in this time, of each worker."""
    forget_after_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """What is known of an endpoint that left is kept this long, in case it returns."""

    @property
    def headers(self) -> tuple[str, ...]:
        """Headers that are read for picks, beside a listener's session header."""
        return tuple(name for name in (self.tenant_header, self.admission.priority_header) if name)

    @model_validator(mode="after")
    def _composes(self) -> Self:
        if len(set(self.filters)) < len(self.filters) or not _MUST.issubset(self.filters):
            raise ValueError("allowed: each of filters once, `model` and `subset` always among them")
        if len({scorer.name for scorer in self.scorers}) < len(self.scorers):
            raise ValueError("allowed: each of scorers once")
        return self
