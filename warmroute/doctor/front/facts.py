"""Facts about a proxy in front of an Envoy, frozen: its ways to upstreams, and the settings in force there.

The readers yield this model, whatever the proxy. Sizes are in bytes and times in seconds; `math.inf` is no
limit. A setting that nobody wrote is there with the proxy's default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Concern(Enum):
    """The meaning of a setting's value. Each has one rule."""

    HOLDS_ANSWERS = auto()
    """Whether pieces of an answer wait for later pieces."""
    PILES_ANSWERS = auto()
    """Whether answers pile up in the proxy while their client reads slowly."""
    BODY_BYTES = auto()
    """The longest request body."""
    HEADER_BYTES = auto()
    """The longest request header line."""
    SILENCE_SECONDS = auto()
    """How long the upstream may be silent."""
    ANSWER_SECONDS = auto()
    """How long an answer may take, to its end."""
    UPLOAD_SECONDS = auto()
    """How long a request may take to arrive."""
    OLD_HTTP = auto()
    """Whether the upstream gets HTTP/1.0."""
    IDLE_CONNECTIONS = auto()
    """How many idle connections to the upstream are kept; 0: each request opens its own."""
    IDLE_SECONDS = auto()
    """How long an idle connection to the upstream is kept."""
    REPEATS_POSTS = auto()
    """Whether a POST that the upstream has received may be sent again."""
    LATE_GUARD = auto()
    """Whether something that refuses requests stands behind something that works on them."""
    CLIENT_STREAMS = auto()
    """HTTP/2 streams on a client's connection."""
    WEBSOCKETS = auto()
    """Whether handshakes of WebSockets pass."""
    OUTLIVES_CLIENTS = auto()
    """Whether a request goes on after its client has left."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A kind of setting of a proxy: its meaning, the value for LLM traffic, and the source."""

    concern: Concern
    fix: str
    page: str
    """The page of the proxy's documentation that states meaning and default."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force on a way."""

    knob: Knob
    value: float
    where: str
    """File, line and name; where nothing is written, those of the way."""
    shown: str
    """As it is written, or what holds where nothing is written."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way of requests through the proxy: an nginx location, a Traefik router, a Kong route."""

    where: str
    upstream: str
    ports: frozenset[int] | None
    """The ports of the upstream's servers; None: unknown."""
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of the configuration that is named and not there."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that rules may ask about."""

    files: int
    ways: tuple[Way, ...]
    unread: tuple[Unread, ...] = ()
