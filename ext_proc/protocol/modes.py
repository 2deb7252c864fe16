"""The transitions of an exchange: what each event of a request leads to, by Envoy's body mode."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from ext_proc.pick.result import Reason
from ext_proc.protocol.attributes import CONTENT_TYPE, METHOD, UPGRADE
from fleet.envoy_api.extensions.filters.http.ext_proc.v3 import processing_mode_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

_Mode = processing_mode_pb2.ProcessingMode
NONE: Final[int] = _Mode.NONE
STREAMED: Final[int] = _Mode.STREAMED
BUFFERED: Final[int] = _Mode.BUFFERED
BUFFERED_PARTIAL: Final[int] = _Mode.BUFFERED_PARTIAL
FULL_DUPLEX: Final[int] = _Mode.FULL_DUPLEX_STREAMED
GRPC: Final[int] = _Mode.GRPC
UNDECLARED: Final = -1
"""Envoys before `protocol_config` do not declare it."""

_NEVER_JSON: Final = (
    "multipart/",
    "audio/",
    "video/",
    "image/",
    "application/octet-stream",
    "application/grpc",
)


class State(Enum):
    """Where an exchange stands; see `ext_proc.protocol.exchange`."""

    START = "start"
    OPEN = "open"
    HOLDING = "holding"
    PICKING = "picking"
    PICKED = "picked"
    REFUSED = "refused"
    OBSERVING = "observing"


class Upload(Enum):
    """How much of the request is still to come."""

    OPEN = "open"
    ENDED = "ended"
    BODILESS = "bodiless"
    """It ended with its headers."""


class Event(Enum):
    """What a message of an undecided request brings."""

    HEADERS = "headers"
    LAST_HEADERS = "last headers"
    """Nothing that could be read follows: end_of_stream, an upgrade, or a body that is never JSON."""
    BODY = "body"
    FULL_BODY = "full body"
    """More of it than is inspected, or than may be buffered, without its end."""
    LAST_BODY = "last body"
    TRAILERS = "trailers"
    BODY_TRAILERS = "trailers behind a buffered body"


class Step(Enum):
    """What an event leads to."""

    WAIT = "wait"
    """Answer the message unchanged; a later one decides."""
    HOLD = "hold"
    """Keep it back without an answer; a later one decides."""
    BY_HEADERS = "by headers"
    """Pick by the headers alone."""
    BY_BODY = "by body"
    """Pick by the whole body."""
    BY_PART = "by part"
    """Pick by the leading part of the body."""
    LATE = "late"
    """The headers have left: nothing can be chosen any more."""


_E, _S = Event, Step
TRANSITIONS: Final[Mapping[int, Mapping[Event, Step]]] = {
    NONE: {
        _E.HEADERS: _S.BY_HEADERS, _E.LAST_HEADERS: _S.BY_HEADERS,
        _E.BODY: _S.LATE, _E.LAST_BODY: _S.BY_BODY, _E.TRAILERS: _S.BY_HEADERS,
    },
    # The one body message is the whole body, even if trailers keep end_of_stream false.
    BUFFERED: {
        _E.HEADERS: _S.WAIT, _E.LAST_HEADERS: _S.BY_HEADERS,
        _E.BODY: _S.BY_BODY, _E.LAST_BODY: _S.BY_BODY, _E.TRAILERS: _S.BY_HEADERS,
    },
    # Without end_of_stream it is a leading part, read as cut off.
    BUFFERED_PARTIAL: {
        _E.HEADERS: _S.WAIT, _E.LAST_HEADERS: _S.BY_HEADERS,
        _E.BODY: _S.BY_PART, _E.LAST_BODY: _S.BY_BODY, _E.TRAILERS: _S.BY_HEADERS,
    },
    # Headers leave before the body is read.
    STREAMED: {
        _E.HEADERS: _S.BY_HEADERS, _E.LAST_HEADERS: _S.BY_HEADERS,
        _E.BODY: _S.LATE, _E.LAST_BODY: _S.LATE, _E.TRAILERS: _S.LATE,
    },
    GRPC: {
        _E.HEADERS: _S.BY_HEADERS, _E.LAST_HEADERS: _S.BY_HEADERS,
        _E.BODY: _S.LATE, _E.LAST_BODY: _S.LATE, _E.TRAILERS: _S.LATE,
    },
    FULL_DUPLEX: {
        _E.HEADERS: _S.HOLD, _E.LAST_HEADERS: _S.BY_HEADERS,
        _E.BODY: _S.HOLD, _E.FULL_BODY: _S.BY_PART, _E.LAST_BODY: _S.BY_BODY,
        _E.TRAILERS: _S.BY_HEADERS, _E.BODY_TRAILERS: _S.BY_BODY,
    },
    # As BUFFERED when a body message ends the stream, otherwise as STREAMED.
    UNDECLARED: {
        _E.HEADERS: _S.WAIT, _E.LAST_HEADERS: _S.BY_HEADERS,
        _E.BODY: _S.LATE, _E.LAST_BODY: _S.BY_BODY, _E.TRAILERS: _S.BY_HEADERS,
    },
}  # fmt: skip


def upgrades(attributes: Mapping[str, str]) -> bool:
    """Whether a request turns its connection into something else, whose body does not end."""
    return UPGRADE in attributes or attributes.get(METHOD) == "CONNECT"


def headers_event(attributes: Mapping[str, str], *, ends: bool) -> Event:
    """Return which event a request's headers are; `ends` is their end_of_stream."""
    last = ends or upgrades(attributes) or attributes.get(CONTENT_TYPE, "").lower().startswith(_NEVER_JSON)
    return Event.LAST_HEADERS if last else Event.HEADERS


def no_body_reason(mode: int, attributes: Mapping[str, str], *, ends: bool) -> Reason:
    """Return why headers decide."""
    if upgrades(attributes):
        return Reason.NO_SESSION
    if ends or mode == NONE:
        return Reason.NO_BODY
    return Reason.STREAMED if mode in (STREAMED, GRPC) else Reason.NOT_JSON
