"""The transitions of an exchange: each event of a request to a step, by Envoy's body mode."""

from __future__ import annotations

from enum import Enum, StrEnum
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
"""Of Envoys without `protocol_config`."""

_NEVER_JSON: Final = (
    "multipart/",
    "audio/",
    "video/",
    "image/",
    "application/octet-stream",
    "application/grpc",
)


class State(Enum):
    """The state of an exchange; see `ext_proc.protocol.exchange`."""

    START = "start"
    OPEN = "open"
    BUFFERING = "buffering"
    PICKING = "picking"
    PICKED = "picked"
    REFUSED = "refused"
    OBSERVING = "observing"


class Upload(Enum):
    """The state of the request's upload."""

    OPEN = "open"
    ENDED = "ended"
    BODILESS = "bodiless"
    """It ended with its headers."""


class Event(StrEnum):
    """A message of an undecided request. A string, because an Enum's own hash is a function in Python."""

    HEADERS = "headers"
    LAST_HEADERS = "last headers"
    """No readable body follows: end_of_stream, an upgrade, or a body that is never JSON."""
    BODY = "body"
    FULL_BODY = "full body"
    """As much of a body as may be read or buffered, without its end."""
    LAST_BODY = "last body"
    TRAILERS = "trailers"
    BODY_TRAILERS = "trailers behind a buffered body"


class Step(Enum):
    """The response to an event."""

    WAIT = "wait"
    """Answer the message unchanged; a later one decides."""
    BUFFER = "buffer"
    """Buffer the message without an answer; a later one decides."""
    BY_HEADERS = "by headers"
    """Pick by the headers alone."""
    BY_BODY = "by body"
    """Pick by the whole body."""
    BY_PART = "by part"
    """Pick by the leading part of the body."""
    LATE = "late"
    """Envoy has sent the headers on, so no endpoint can be picked."""


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
        _E.HEADERS: _S.BUFFER, _E.LAST_HEADERS: _S.BY_HEADERS,
        _E.BODY: _S.BUFFER, _E.FULL_BODY: _S.BY_PART, _E.LAST_BODY: _S.BY_BODY,
        _E.TRAILERS: _S.BY_HEADERS, _E.BODY_TRAILERS: _S.BY_BODY,
    },
    # As BUFFERED when a body message ends the stream, otherwise as STREAMED.
    UNDECLARED: {
        _E.HEADERS: _S.WAIT, _E.LAST_HEADERS: _S.BY_HEADERS,
        _E.BODY: _S.LATE, _E.LAST_BODY: _S.BY_BODY, _E.TRAILERS: _S.BY_HEADERS,
    },
}  # fmt: skip


def upgrades(attributes: Mapping[str, str]) -> bool:
    """Return whether a request upgrades its connection, so that its body does not end."""
    return UPGRADE in attributes or attributes.get(METHOD) == "CONNECT"


def headers_event(attributes: Mapping[str, str], *, ends: bool) -> Event:
    """Return the event of a request's headers; `ends` is their end_of_stream."""
    last = ends or upgrades(attributes) or attributes.get(CONTENT_TYPE, "").lower().startswith(_NEVER_JSON)
    return Event.LAST_HEADERS if last else Event.HEADERS


def no_body_reason(mode: int, attributes: Mapping[str, str], *, ends: bool) -> Reason:
    """Return the reason why headers decide."""
    if upgrades(attributes):
        return Reason.NO_SESSION
    if ends or mode == NONE:
        return Reason.NO_BODY
    return Reason.STREAMED if mode in (STREAMED, GRPC) else Reason.NOT_JSON
