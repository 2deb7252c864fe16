"""Names of request headers in settings."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

from fleet.names import REMOVED_REQUEST_HEADERS

_NAME: Final = re.compile(r"[a-z0-9._-]{1,128}")
_OF_THE_CONNECTION: Final = frozenset(
    {"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)


def _header(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("allowed: the name of a header, in lower case")
    if name == "host" or name.startswith("x-envoy"):
        raise ValueError("allowed: a header that Envoy keeps for nobody: neither host nor x-envoy-...")
    if name in _OF_THE_CONNECTION:
        raise ValueError("allowed: a header of the request, not of its connection")
    if name in REMOVED_REQUEST_HEADERS:
        raise ValueError("allowed: a header that clients may send: this one is removed from each request")
    return name


def _header_or_none(name: str) -> str:
    return _header(name) if name else name


HeaderName = Annotated[str, AfterValidator(_header)]
"""A header that clients send and that routing reads. Names that could never work are refused: Envoy ignores
changes to its own headers, and ours are removed from requests of clients."""
OptionalHeaderName = Annotated[str, AfterValidator(_header_or_none)]
"""The same, or empty: no header."""
