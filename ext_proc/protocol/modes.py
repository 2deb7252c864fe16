"""Envoy's body modes, and what of a request can be read in each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ext_proc.pick import Reason
from ext_proc.protocol.request import CONTENT_TYPE, METHOD, UPGRADE
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
UNTOLD: Final = -1
"""Envoys before `protocol_config` do not say."""

_NEVER_JSON: Final = (
    "multipart/",
    "audio/",
    "video/",
    "image/",
    "application/octet-stream",
    "application/grpc",
)


def upgrades(facts: Mapping[str, str]) -> bool:
    """Whether a request turns its connection into something else, whose body does not end."""
    return UPGRADE in facts or facts.get(METHOD) == "CONNECT"


def nothing_to_read(mode: int, facts: Mapping[str, str], *, ends: bool) -> Reason | None:
    """Why the headers have to decide; None: a body follows that can be read in time.

    `facts` are headers by name; `ends` is whether they end the stream.
    """
    if upgrades(facts):
        return Reason.NO_SESSION
    if ends or mode == NONE:
        return Reason.NO_BODY
    if mode in (STREAMED, GRPC):
        return Reason.STREAMED
    if facts.get(CONTENT_TYPE, "").lower().startswith(_NEVER_JSON):
        return Reason.NOT_JSON
    return None
