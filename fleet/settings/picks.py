"""How an endpoint is chosen for a request: filter, score, choose; and which requests may be refused."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from fleet.settings.agents import AGENTS, AgentName
from fleet.settings.headers import HeaderName, OptionalHeaderName
from fleet.settings.pools import LocalitySettings
from fleet.settings.strict import NotNegative, Positive, Seconds, Share, Strict, Unique

FilterName = Literal["model", "subset", "healthy", "working", "trusted", "memory"]
ScorerName = Literal[
    "first_token",
    "decode_load",
    "spare",
    "memory",
    "trust",
    "pace",
    "topology",
    "adapter",
    "session",
    "leading",
]
PickerName = Literal["rendezvous", "cheapest"]
StrippedLine = Annotated[str, Field(min_length=4, max_length=256, pattern=r"^[!#-\[\]-~][ !#-\[\]-~]*$")]
"""In ASCII, without quotes and backslashes: bodies spell other characters in several ways."""
BodyField = Annotated[str, Field(min_length=1, max_length=256)]
Priority = Annotated[int, Field(ge=-1000, le=1000)]

_MUST: Final = frozenset({"model", "subset"})


class CostSettings(Strict):
    """Constants of the scorers, which add up seconds."""

    cold_price: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Cold work counts at least this many times its own time, because it delays later requests."""
    prefill_tokens_per_second: Positive = 20_000.0
    """Of tokens with little context before them; used until engines' counts show the pool's own."""
    bytes_per_token: Positive = 4.0
    attention_per_token: NotNegative = 2e-5
    """A prompt token takes this share longer for each token before it: 4 * layers * hidden size / (2 *
    parameters), 1.9e-5 for Llama 70B, 3.3e-5 for 8B, 1e-5 for 405B."""
    in_flight_seconds: NotNegative = 0.01
    """Added to the cost by each request in flight."""
    memory_pressure_from: Share = 0.85
    """Memory in use, the prompt included, above this share adds to the cost. `weights.memory` chooses it."""
    memory_pressure_full: Share = 0.92
    """From this share on, memory adds `memory_pressure_seconds`: the engine is about to preempt or to
    fail."""
    memory_pressure_seconds: NotNegative = 3.0
    distrust_seconds: NotNegative = 2.0
    """Added for an endpoint whose responses are all errors; otherwise in proportion to trust and errors."""
    slow_from_ratio: Annotated[float, Field(ge=1, le=1000)] = 2.0
    """An endpoint slower than this many times the pool's usual time costs the time beyond that."""
    slow_most_seconds: NotNegative = 30.0
    """The most that slowness costs; 0 switches it off."""
    other_zone_seconds: NotNegative = 0.002
    """Added for an endpoint in another zone than `locality`."""
    other_region_seconds: NotNegative = 0.05
    adapter_seconds: NotNegative = 0.2
    """For loading a LoRA adapter that no recent request has used."""
    adapter_memory_seconds: Seconds = 300.0
    """How long an engine is assumed to keep an adapter."""

    @model_validator(mode="after")
    def _pressure_rises(self) -> Self:
        if self.memory_pressure_full < self.memory_pressure_from:
            raise ValueError("allowed: memory_pressure_full at least memory_pressure_from")
        return self


class ScorerSettings(Strict):
    """One scorer of the composition."""

    name: ScorerName
    weight: NotNegative = 1.0
    """Factor of its seconds."""


class SessionSettings(Strict):
    """Sessions that stay on their endpoint.

    A session's name is the first that a request has of: the listener's `session_header`, `headers`, the
    agents' headers, `field`, `fields`, the agents' fields.
    """

    headers: Annotated[tuple[HeaderName, ...], Field(max_length=16), Unique] = ()
    field: Annotated[str, Field(max_length=256)] = ""
    """Of the body, nested ones with dots (`metadata.user_id`); empty: none."""
    fields: Annotated[tuple[BodyField, ...], Field(max_length=16), Unique] = ()
    """Further ones."""
    agents: Annotated[tuple[AgentName, ...], Unique] = tuple(AGENTS)
    """Agents whose headers and fields count, see `fleet.settings.agents`."""
    mode: Literal["soft", "hard"] = "soft"
    """`soft`: `bonus_seconds` are taken off the cost. `hard`: a session's requests go to its endpoint as long
    as that is admitted and well, and all workers know its endpoint."""
    bonus_seconds: NotNegative = 0.05
    """Taken off the cost of the endpoint of the session's last request; 0 switches sessions off."""
    expiry_seconds: Seconds = 600.0
    entries: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000

    @property
    def every_header(self) -> tuple[str, ...]:
        """The headers behind the listener's own, in order."""
        of_agents = (header for agent in self.agents for header in AGENTS[agent].headers)
        return tuple(dict.fromkeys((*self.headers, *of_agents)))

    @property
    def every_field(self) -> tuple[str, ...]:
        """The body fields, in order."""
        own = (self.field, *self.fields) if self.field else self.fields
        return tuple(
            dict.fromkeys((*own, *(field for agent in self.agents for field in AGENTS[agent].fields)))
        )


class AdmissionSettings(Strict):
    """Which requests are refused when every endpoint is past its limit. Without a limit, none is."""

    most_wait_seconds: Seconds | None = None
    """An endpoint with a longer predicted wait is past its limit."""
    most_queue: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """An endpoint with more requests waiting in its engine is past its limit too."""
    shed_below: Priority = 0
    """Requests of a lower priority are refused. A request without a priority has 0."""
    priority_header: OptionalHeaderName = ""
    """Header with a request's priority, a whole number; empty: none."""
    tenant_priorities: dict[str, Priority] = Field(default_factory=dict)
    """By the value of `tenant_header`, for requests without a priority of their own."""

    @property
    def enabled(self) -> bool:
        """Whether any request may be refused."""
        return self.most_wait_seconds is not None or self.most_queue is not None


class PickSettings(Strict):
    """How an endpoint is chosen for a request."""

    filters: tuple[FilterName, ...] = ("model", "subset", "healthy", "working", "trusted")
    """Filters of the candidates, in this order."""
    scorers: tuple[ScorerSettings, ...] = (
        ScorerSettings(name="first_token"),
        # A request in flight delays all that run with it, not only the next one.
        ScorerSettings(name="decode_load", weight=2.0),
        ScorerSettings(name="spare"),
        # A full cache is normal under load: more would send prompts away from where they are warm.
        ScorerSettings(name="memory", weight=0.1),
        ScorerSettings(name="trust"),
        ScorerSettings(name="pace"),
        ScorerSettings(name="topology"),
        ScorerSettings(name="adapter"),
        ScorerSettings(name="session"),
        ScorerSettings(name="leading"),
    )
    """An endpoint's cost in seconds is the sum over these."""
    picker: PickerName = "rendezvous"
    """How to choose among endpoints of almost equal cost."""
    cost: CostSettings = CostSettings()
    sessions: SessionSettings = SessionSettings()
    admission: AdmissionSettings = AdmissionSettings()
    locality: LocalitySettings = LocalitySettings()
    """Place of the Envoys that use this worker; empty: no place."""
    tenant_header: OptionalHeaderName = ""
    """Header with a request's tenant; empty: none."""
    tenants_apart: bool = False
    """Engines keep tenants' prefixes apart, so one tenant's prefix is not warm for another."""
    stored_names: Annotated[int, Field(ge=0, le=10_000_000)] = 65_536
    """Names of stored responses, conversations and files whose endpoint is remembered; 0: none, and no answer
    is looked at."""
    stripped_lines: Annotated[tuple[StrippedLine, ...], Field(max_length=64), Unique] = ()
    """Beginnings of lines at the start of a system prompt that engines strip, in addition to those of
    `ext_proc.prompt.lines`: the whole line does not count."""
    block_bytes: Annotated[int, Field(ge=16, le=65_536)] = 256
    fallbacks: Annotated[int, Field(ge=0, le=16)] = 2
    """Endpoints named after the first, for retries."""
    other_domain_seconds: NotNegative = 1.0
    """A fallback from another fault domain precedes cheaper ones, up to this far above the cheapest."""
    trial_interval_seconds: Seconds = 0.7
    """An untrusted endpoint gets at most one request of each worker in this time."""
    forget_after_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """How long the state of an endpoint that left is kept, in case it returns."""

    @property
    def headers(self) -> tuple[str, ...]:
        """Headers that picks read, apart from a listener's session header."""
        return tuple(name for name in (self.tenant_header, self.admission.priority_header) if name)

    @model_validator(mode="after")
    def _composes(self) -> Self:
        if len(set(self.filters)) < len(self.filters) or not _MUST.issubset(self.filters):
            raise ValueError("allowed: each of filters once, `model` and `subset` always among them")
        if len({scorer.name for scorer in self.scorers}) < len(self.scorers):
            raise ValueError("allowed: each of scorers once")
        return self
