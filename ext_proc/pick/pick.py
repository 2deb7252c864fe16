"""The words of a pick: what is asked, what is answered, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray


class Reason(StrEnum):
    """Why a pick is what it is. Every reason but `warm`, `cold` and the last ones means: weights decide."""

    WARM = "warm"
    """The first endpoint holds a leading part of the prompt."""
    COLD = "cold"
    """The first endpoint holds nothing of it and is the cheapest all the same."""

    NOT_JSON = "not_json"
    NO_PROMPT = "no_prompt"
    WRONG_SHAPE = "wrong_shape"
    AMBIGUOUS = "ambiguous"
    TOO_DEEP = "too_deep"
    COMPRESSED = "compressed"
    NO_BODY = "no_body"
    """The request has none, or Envoy does not send it."""
    NO_SESSION = "no_session"
    """An upgrade, of which the headers alone are there, and they name neither a session nor a model."""
    STREAMED = "streamed"
    """The headers have left before the body is read."""

    NO_FLEET = "no_fleet"
    """No view of the fleet has arrived yet."""
    NO_POOL = "no_pool"
    """The cluster is not ours, or several pools could be meant."""
    NO_ENDPOINT = "no_endpoint"
    UNKNOWN_MODEL = "unknown_model"
    OVER_LIMIT = "over_limit"
    FAULT = "fault"

    NAMED = "named"
    """Named by weights alone, because Envoy must be told somebody: no pick, and no choice of Envoy's."""
    NOT_READY = "not_ready"
    """Refused: none of the endpoints that may be named is there."""
    HEADERS = "headers"
    """Picked by its session and by load: the body cannot be read before the headers have to leave."""
    SHED = "shed"
    """Refused: every endpoint is past its limit, and the request is not of those that go first."""
    DUPLICATE = "duplicate"
    """Refused: the same request is in flight."""


class Considered(NamedTuple):
    """One endpoint that was compared, with the parts of its cost."""

    address: str
    cost: float
    """What was compared, lower is better: all that scorers say of it, weighted, cold work at its price."""
    wait_seconds: float
    """Until its work ahead is done."""
    cold_seconds: float
    """Prefill of the part of the prompt that it does not hold."""
    penalty_seconds: float
    """The part of the cost that is the same for every prompt: memory, trust, pace and distance, weighted."""
    matched_blocks: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer in the engines' place, where whoever runs Envoy has asked for such answers."""

    status: int
    """429: later, with less load. 503: none of the endpoints that are allowed is ready."""
    message: str
    """For the client: it names no endpoint and repeats nothing that a client wrote."""
    retry_after_seconds: float | None = None


class Meant(NamedTuple):
    """Whose engines a request is for, as far as that is known."""

    pool: str = ""
    """Empty: unknown."""
    model: str | None = None
    """Empty: the request names none; None: unknown."""


@dataclass(frozen=True, slots=True)
class Pick:
    """What was decided for one request. Without endpoints there is no pick, and weights decide."""

    endpoints: tuple[str, ...]
    """Best first; retries walk on."""
    reason: Reason
    matched_share: float = 0.0
    """Share of the prompt's blocks that the first endpoint holds, 0 to 1."""
    prefix: str = ""
    """Digest of the leading block, 16 hex digits; empty where no prompt was read."""
    expected_seconds: float | None = None
    """Predicted time to first token on the first endpoint."""
    cold_seconds: float = 0.0
    """The part of it that is prefill of what is not warm."""
    candidates: int = 0
    """Endpoints that were compared."""
    trial: bool = False
    """The first endpoint is not trusted, and is tried to see whether it has recovered."""
    considered: Sequence[Considered] = ()
    """The endpoints of the pick, best first; of a request that is traced, the next best ones too."""
    trace: str = ""
    """W3C traceparent of the span of a request that is traced."""
    refusal: Refusal | None = None
    """The answer that the client gets instead; there are no endpoints then."""
    told: tuple[tuple[str, str], ...] = ()
    """What else Envoy is told of the request: key to text of our metadata namespace."""
    prompt: int = 0
    """64-bit digest of the prompt as far as it fills blocks; 0: no prompt was read."""
    request: int = 0
    """64-bit digest of the whole request."""
    serial: int = 0
    """By which its outcome is told: no other pick has it, of whichever worker, and no client can know it."""
    meant: Meant | None = None
    """Without endpoints: for whoever has to name one all the same. None: nobody has looked."""

    @classmethod
    def none(cls, reason: Reason, prefix: str = "", meant: Meant | None = None) -> Pick:
        """No pick, and why."""
        return cls((), reason, prefix=prefix, meant=meant)

    @classmethod
    def refuse(cls, reason: Reason, refusal: Refusal, prefix: str = "") -> Pick:
        """No pick, and the client is told so."""
        return cls((), reason, prefix=prefix, refusal=refusal)


class Counts(Protocol):
    """How often runs of leading blocks were asked for lately."""

    def at(self, blocks: Sequence[int], depth: int, total: float) -> tuple[float, float]:
        """Return how many requests shared the run up to the block at `depth`, from 0, and of how many.

        The second is what of `total`, of all requests, came in the time over which the first is counted.
        """
        ...

    def runs(
        self, blocks: Sequence[int], also: Collection[int], total: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return both for each block, the first at depths `also` exactly: where what is held changes."""
        ...


class Question(NamedTuple):
    """One prompt, as filters, scorers and pickers see it."""

    leading_hash: int
    """64-bit hash of the leading block (of the whole text when it is shorter than a block)."""
    blocks: Sequence[int]
    """Chained hashes of the prompt's full blocks."""
    text_bytes: int
    matched: NDArray[np.int64]
    """How many of the blocks each endpoint of the pool holds, in the pool's order; at most all."""
    now: float
    explain: bool = False
    """Whether the pick should tell of more endpoints than it names."""
    counts: Counts | None = None
    session: str = ""
    """The endpoint of the session's last request; empty: none is known."""
    adapter: str = ""
    """What an engine may have to load first; empty: nothing."""
    leading_key: bytes = b""
    """Digest of the leading part of a prompt of a block or more that nobody is known to hold; else empty."""
    had: Sequence[str] = ()
    """Endpoints that had that part some time ago."""
    edges: tuple[int, int] | None = None
    """The least and the most of `matched`; None: not worked out yet."""
    prompt: int = 0
    """64-bit digest of the whole prompt, as far as it fills blocks."""
    refused_by: Collection[str] = ()
    """Endpoints that have refused this very request within the last seconds."""
    request: int = 0
    """64-bit digest of the whole request."""
    serial: int = 0
    """Of the pick; see `Pick`."""

    @property
    def prefix(self) -> str:
        """The leading hash, as metadata carries it: fixed length, whatever the prompt holds."""
        return f"{self.leading_hash & 0xFFFF_FFFF_FFFF_FFFF:016x}"

    def next_hash(self, held: int) -> int:
        """Hash of the first block behind `held` leading ones: what is to be computed, and kept, next."""
        if not self.blocks:
            return self.leading_hash
        return self.blocks[min(held, len(self.blocks) - 1)]
