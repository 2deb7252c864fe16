"""Inputs and outputs of the engine model."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from fleet.errors import WarmrouteError
from warmroute.simulator.fits import Timing, timing

if TYPE_CHECKING:
    from collections.abc import Sequence


class RequestTooLongError(WarmrouteError):
    """Prompt and output together exceed the engine's KV cache."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What one engine replica is."""

    timing: Timing = field(default_factory=timing)
    num_blocks: int = 43_750
    """KV blocks: 0.7 million tokens, an H100 TP4 replica of a 70B model with FP8 weights."""
    block_tokens: int = 16
    max_num_seqs: int = 256
    """Requests in a batch."""
    max_batched_tokens: int = 8192
    """Tokens of one step, prefill and decode together."""
    max_model_tokens: int = 131_072
    """Prompt and output of one request."""
    jitter_ratio: float = 0.0
    """Each step takes up to this share more or less, drawn from `seed`."""
    seed: int = 0
    report_tokens: bool = True
    """Without it only first tokens and ends are reported: replays need no more."""

    @property
    def limit_tokens(self) -> int:
        """Prompt and output of one request: never more than the cache holds."""
        return min(self.max_model_tokens, self.num_blocks * self.block_tokens)


@dataclass(frozen=True, slots=True)
class Request:
    """What the model needs to know of a request."""

    prompt_tokens: int
    output_tokens: int
    chain: Sequence[int] = ()
    """Chained hashes of its full blocks: the prompt's, then, if available, the output's."""


class State(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Handle:
    """A submitted request and its progress. Times are on the caller's clock; None: not yet."""

    request: Request
    arrived_at: float
    state: State = State.WAITING
    scheduled_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    cached_tokens: int = 0
    """Prompt tokens cached at the first admission."""
    emitted: int = 0
    preemptions: int = 0
    # The scheduler's own:
    computed: int = 0
    named: int = 0  # of the chain's blocks, how many it uses
    unnamed: int = 0
    reported: int = 0


class EventKind(Enum):
    """What happened."""

    FIRST_TOKEN = "first_token"  # noqa: S105 - the word for a piece of text
    TOKENS = "tokens"
    FINISHED = "finished"


class Event(NamedTuple):
    """`tokens` are those not reported before: 1 with the first token, 0 with the end."""

    kind: EventKind
    handle: Handle
    at: float
    tokens: int


@dataclass(slots=True)
class Counters:
    """Sums since the start, in tokens unless the name says otherwise."""

    submitted_requests: int = 0
    finished_requests: int = 0
    aborted_requests: int = 0
    preempted_requests: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prompt: int = 0
    """Prompts with a first token."""
    prompt_cached: int = 0
    generated: int = 0
