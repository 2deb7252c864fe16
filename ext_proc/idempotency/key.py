"""Which requests may be repeated, and the key by which a repetition is known. Pure.

In doubt a request gets no key, and goes on without one.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Container

MOST_BODY_BYTES: Final = 1024 * 1024
"""Of a body that gets a key. Digest and reading take some three milliseconds for that much, and all other
requests of the worker wait for them."""
_DIGEST_BYTES: Final = 16
_LENGTH_BYTES: Final = 8


class Asked(NamedTuple):
    """A request that may be repeated."""

    key: str
    """32 hex digits."""
    streams: bool
    """Whether it asks for a token stream."""


class _Body(msgspec.Struct, gc=False):
    """What of a body decides. Anything but these types is not understood."""

    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


def idempotency_key(method: str, path: str, body: bytes, tenant: str = "", client_key: str = "") -> str:
    """Return the digest of what makes two requests the same: BLAKE2b with 128 bits, as hex.

    Each part is preceded by its length, so that no two requests spell the same text. A digest that cannot be
    forged, because engines may answer by it: a tenant must not reach another one's answer.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in (method, path, tenant, client_key):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(_LENGTH_BYTES, "big"))
        digest.update(encoded)
    digest.update(body)
    return digest.hexdigest()


def asked(
    method: str,
    path: str,
    body: bytes,
    paths: Container[str],
    *,
    complete: bool,
    tenant: str = "",
    client_key: str = "",
) -> Asked | None:
    """Return the key of a request that may be repeated; None for any other.

    It may if it only computes: a POST to one of `paths` (without the query), whose body came whole and asks
    for nothing to be kept or to go on in the background. A coded body cannot be read and has no key, and one
    of more than `MOST_BODY_BYTES` has none either.
    """
    if (
        not complete
        or not 0 < len(body) <= MOST_BODY_BYTES
        or method != "POST"
        or path.partition("?")[0] not in paths
    ):
        return None
    try:
        told = _BODY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if told.store or told.background:
        return None
    return Asked(idempotency_key(method, path, body, tenant, client_key), bool(told.stream))
