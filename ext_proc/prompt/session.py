"""A body field that names a session, by a name that the operator chooses."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, cast

import msgspec
from xxhash import xxh3_128_hexdigest

from ext_proc.prompt.envelope import Envelope, Seen
from ext_proc.prompt.text import ABSENT

MAX_SESSION_CHARS: Final = 256
"""A longer name of a session stands as its digest."""
_MEMBER: Final = "session_member"


@lru_cache(maxsize=16)
def envelope_with(field: str) -> type[Envelope]:
    """Return the kind of envelope in which `session_of` finds a field. Fields come from the settings: few."""
    name = field.partition(".")[0]
    if not name or name in Envelope.__struct_fields__:
        return Envelope
    more = [(_MEMBER, msgspec.Raw, ABSENT)]
    made = msgspec.defstruct("Envelope", more, bases=(Envelope,), rename={_MEMBER: name}, gc=False)
    return cast("type[Envelope]", made)


def session_of(envelope: Envelope, field: str) -> str:
    """Return a string at `field` (`user`, `metadata.user_id`); "" where there is none."""
    name, _, inner = field.partition(".")
    raw = getattr(envelope, name if name in Envelope.__struct_fields__ else _MEMBER, ABSENT)
    if isinstance(raw, msgspec.UnsetType):
        return ""
    if isinstance(raw, Seen):
        found: object = raw.value
    else:
        try:
            found = _decoder(inner).decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return ""
    for _ in inner.split(".") if inner else ():
        found = getattr(found, "value", None)
    if not isinstance(found, str):
        return ""
    return found if len(found) <= MAX_SESSION_CHARS else xxh3_128_hexdigest(found.encode())


@lru_cache(maxsize=16)
def _decoder(inner: str) -> msgspec.json.Decoder[object]:
    """Return a decoder that builds nothing of a member but the string in it, at `inner` or itself."""
    held: type = str
    for name in reversed(inner.split(".") if inner else ()):
        held = msgspec.defstruct("Holder", [("value", held | None, None)], rename={"value": name}, gc=False)
    return msgspec.json.Decoder(held)
