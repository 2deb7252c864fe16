"""The result of a pick, and its reason."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ext_proc.pick.first_token import Expected
    from ext_proc.pick.request import PickRequest


class Reason(StrEnum):
    """The reason of a pick. Every reason but the first four and the last ones means: weights decide."""

    WARM = "warm"
    """The first endpoint holds a leading part of the prompt."""
    COLD = "cold"
    """The first endpoint holds nothing of it and is the cheapest all the same."""

    STORED = "stored"
    """The first endpoint has the response, conversation or file that the request names."""
    SESSION = "session"
    """The first endpoint is that of the request's hard session."""

    NOT_JSON = "not_json"
    NO_PROMPT = "no_prompt"
    WRONG_SHAPE = "wrong_shape"
    AMBIGUOUS = "ambiguous"
    TOO_DEEP = "too_deep"
    COMPRESSED = "compressed"
    NO_BODY = "no_body"
    """The request has no body, or Envoy does not send it."""
    NO_SESSION = "no_session"
    """An upgrade: only its headers are there, and they name neither a session nor a model."""
    STREAMED = "streamed"
    """The headers have left before the body is read."""

    NO_FLEET = "no_fleet"
    """No view of the fleet has arrived yet."""
    NO_POOL = "no_pool"
    """The cluster is not ours, or several pools could be meant."""
    NO_ENDPOINT = "no_endpoint"
    UNKNOWN_MODEL = "unknown_model"
    """Weights decide, or the request is refused, by the settings."""
    OVER_LIMIT = "over_limit"
    FAULT = "fault"

    NAMED = "named"
    """Chosen by weights alone, because Envoy must get an endpoint: no pick, and no choice of Envoy's."""
    NOT_READY = "not_ready"
    """Refused: none of the permitted endpoints is there."""
    HEADERS = "headers"
    """Picked by its session and by load: the body cannot be read before the headers have to leave."""
    SHED = "shed"
    """Refused: every endpoint is past its limit, and the request's priority is low."""
    DUPLICATE = "duplicate"
    """Refused: the same request is in flight."""


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """An answer in the engines' place, if the settings or the gateway require such answers."""

    status: int
    """404: there is no such model. 429: later, with less load. 503: none of the endpoints that are allowed is
    ready."""
    message: str
    """For the client: it names no endpoint and repeats nothing that a client wrote."""
    retry_after_seconds: float | None = None


class PickResult(msgspec.Struct, frozen=True, gc=False):
    """The part for Envoy of one request's pick. Without endpoints there is no pick, and weights decide."""

    endpoints: tuple[str, ...]
    """Best first; retries walk on."""
    reason: Reason
    matched_share: float = 0.0
    """Share of the prompt's blocks that the first endpoint holds, 0 to 1."""
    prefix: str = ""
    """Digest of the leading block, 16 hex digits; empty where no prompt was read."""
    expected_seconds: float | None = None
    """Predicted time to first token on the first endpoint, the median."""
    refusal: Refusal | None = None
    """The answer that the client gets instead; there are no endpoints then."""
    prompt: int = 0
    """64-bit digest of the prompt as far as it fills blocks; 0: no prompt was read."""
    request: int = 0
    """64-bit digest of the whole request."""
    serial: int = 0
    """Identifies the pick when its outcome is reported: unique over all workers, and unknown to clients."""
    rank: str = ""
    """Of the first endpoint, for its engine; empty: the engine chooses among its ranks."""
    rank_name: str = ""
    """Name of the rank where the pick counts for later requests; empty: its first endpoint has none."""

    @classmethod
    def none(cls, reason: Reason) -> PickResult:
        """No pick, and why."""
        return cls((), reason)

    @classmethod
    def refuse(cls, reason: Reason, refusal: Refusal, prefix: str = "") -> PickResult:
        """No pick, and the answer that the client gets."""
        return cls((), reason, prefix=prefix, refusal=refusal)


class Considered(msgspec.Struct, frozen=True, gc=False):
    """One endpoint that was compared, with the parts of its cost."""

    address: str
    cost: float
    """What was compared, lower is better: the weighted sum of all cost terms, cold work at its price."""
    wait_seconds: float
    """Prefill ahead, and the delay by requests in flight."""
    cold_seconds: float
    """Prefill of the part of the prompt that it does not hold."""
    price_seconds: float
    """What the price of cold work adds to that, for the requests that it delays."""
    penalty_seconds: float
    """The part of the cost that is the same for every prompt: a weighted sum of cost terms."""
    matched_blocks: int
    terms: Mapping[str, float] | None = None
    """The seconds of each cost term by its name, weighted: they sum up to the cost. None: not traced."""


class Decision(msgspec.Struct, frozen=True):
    """A result with its explanation, and with its effects on later requests once it is final."""

    result: PickResult
    request: PickRequest | None = None
    """The prompt; None: the result changes nothing for later requests."""
    candidates: int = 0
    """Endpoints that were compared."""
    considered: Sequence[Considered] = ()
    """The endpoints of the result, best first; of a request that is traced, the next best ones too."""
    cold_seconds: float = 0.0
    """Prefill on the first endpoint of what is not warm there."""
    expected: Expected | None = None
    """Of the first token there; None: unknown."""
    trial: bool = False
    """The first endpoint is not trusted, and is tried to see whether it has recovered."""
