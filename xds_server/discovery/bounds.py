"""The size of a discovery request, looked at before Protobuf makes objects of it. Pure.

An empty field takes two bytes in a request, and an object many times as large once it is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.errors import PeerError
from fleet.wire_fields import fields

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_REST_BYTES: Final = 256 * 1024
"""Of a request without its resource names. The node of Envoy 1.40 takes 60 KB, and Envoy cuts the text of a
NACK after 4 KiB."""
MAX_REST_FIELDS: Final = 64
"""The same; clients send fewer than ten."""


def check_size(message: bytes, name_tags: Collection[int], max_names: int) -> None:
    """Look at the fields of a request of more than `MAX_REST_BYTES`.

    Fields with `name_tags` are resource names, at most `max_names` for each tag.

    Raises:
        PeerError: there are too many names, or too many other fields or bytes of them.
        DecodeError: the bytes are no message.
    """
    if len(message) <= MAX_REST_BYTES:
        return
    most_names, names, others, rest, at = max_names * len(name_tags), 0, 0, 0, 0
    for tag, _, end in fields(message, 0, len(message)):
        if tag in name_tags:
            names += 1
        else:
            others, rest = others + 1, rest + end - at
        at = end
        if names > most_names or others > MAX_REST_FIELDS or rest > MAX_REST_BYTES:
            raise PeerError(
                f"a request with {names} resource names, {others} other fields and {rest} bytes of those so "
                f"far; allowed: {most_names}, {MAX_REST_FIELDS} and {MAX_REST_BYTES}"
            )
