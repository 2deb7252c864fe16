"""A body field that names a session, by a name that the operator chooses."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
from xxhash import xxh3_128_hexdigest

MAX_SESSION_CHARS: Final = 256
"""A longer name of a session stands as its digest."""


def session_of(body: bytes, field: str) -> str:
    """Return a string at `field` (`user`, `metadata.user_id`); "" where there is none."""
    try:
        found: object = _decoder(field).decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    for _ in field.split("."):
        found = getattr(found, "value", None)
    if not isinstance(found, str):
        return ""
    return found if len(found) <= MAX_SESSION_CHARS else xxh3_128_hexdigest(found.encode())


@lru_cache(maxsize=16)
def _decoder(field: str) -> msgspec.json.Decoder[object]:
    """Return a decoder that builds nothing of a body but the field. Fields come from the settings: few."""
    held: type = str
    for name in reversed(field.split(".")):
        held = msgspec.defstruct("Holder", [("value", held | None, None)], rename=_renamed(name), gc=False)
    return msgspec.json.Decoder(held)


def _renamed(name: str) -> dict[str, str]:
    return {"value": name}
