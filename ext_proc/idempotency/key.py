"""Requests that may be repeated, and the key that identifies a repetition. Pure.

In doubt a request continues without a key.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container

    from ext_proc.prompt.envelope import Members

MOST_BODY_BYTES: Final = 1024 * 1024
"""Of a body with a key. Digest and reading take some three milliseconds for this size, and all other requests
of the worker wait for them."""
_DIGEST_BYTES: Final = 16
_LENGTH_BYTES: Final = 8


_FLAGS: Final = {b"": None, b"null": None, b"true": True, b"false": False}
"""A flag as JSON spells it. Any other value is not understood."""


class Repeatable(NamedTuple):
    """A request that may be repeated."""

    key: str
    """32 hex digits."""
    streams: bool
    """Whether it asks for a token stream."""


def idempotency_key(method: str, path: str, body: bytes, tenant: str = "", client_key: str = "") -> str:
    """Return a request's digest, equal for equal requests: BLAKE2b with 128 bits, as hex.

    Each part follows its length, so that different requests never give the same text. The digest cannot be
    forged: engines may answer by it, and a tenant must not get another one's answer.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in (method, path, tenant, client_key):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(_LENGTH_BYTES, "big"))
        digest.update(encoded)
    digest.update(body)
    return digest.hexdigest()


def repeatable(
    method: str,
    path: str,
    body: bytes,
    envelope: Members | None,
    paths: Container[str],
    *,
    tenant: str = "",
    client_key: str = "",
) -> Repeatable | None:
    """Return the key of a request that may be repeated; None for any other.

    It may if it only computes: a POST to one of `paths` (without the query) with a whole body that requests
    neither storage nor work in the background. `envelope` has the top-level members of a whole body. A body
    of more than `MOST_BODY_BYTES` has no key.
    """
    if (
        envelope is None
        or not 0 < len(body) <= MOST_BODY_BYTES
        or method != "POST"
        or path.partition("?")[0] not in paths
    ):
        return None
    spelled = bytes(envelope.stream), bytes(envelope.store), bytes(envelope.background)
    if not _FLAGS.keys() >= {*spelled}:
        return None
    stream, store, background = (_FLAGS[flag] for flag in spelled)
    if store or background:
        return None
    return Repeatable(idempotency_key(method, path, body, tenant, client_key), bool(stream))
