"""Idempotency keys."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from fleet.names import CLIENT_KEY_HEADER
from fleet.settings.shared import StoreUrl
from fleet.settings.strict import Seconds, Strict, UrlPath


class IdempotencySettings(Strict):
    """Keys of requests that may be repeated, and the handling of duplicates in flight."""

    enabled: bool = False
    streaming: bool = False
    """Whether requests for token streams get a key too."""
    paths: tuple[UrlPath, ...] = (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
    )
    """Paths of requests that have no effect but their response. Only those get a key."""
    duplicates: Literal["pass", "named", "reject"] = "pass"
    """While a request is in flight, a duplicate is answered 409: `named`, if its client has sent an
    `idempotency-key`; `reject`, in any case."""
    entries: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000
    """The most keys in flight that a worker remembers; beyond that, no duplicate is rejected."""
    expiry_seconds: Seconds = 600.0
    """A key is forgotten after this time, even while its request is in flight."""
    url: StoreUrl = SecretStr("")
    """A Redis or Valkey server for the keys of all workers; empty: each worker has its own. No message shows
    it."""
    timeout_seconds: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.05
    """The longest wait of a request for that server; then the request goes on."""

    @property
    def headers(self) -> tuple[str, ...]:
        """Headers with keys of clients."""
        return (CLIENT_KEY_HEADER,) if self.enabled else ()
