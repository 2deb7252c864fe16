"""Idempotency keys."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from fleet.names import CLIENT_KEY_HEADER
from fleet.settings.shared import StoreUrl
from fleet.settings.strict import Seconds, Strict


class IdempotencySettings(Strict):
    """Keys of requests that may be repeated, and what becomes of a request whose twin is in flight."""

    enabled: bool = False
    streaming: bool = False
    """Requests for token streams get a key too."""
    paths: tuple[Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$", max_length=2048)], ...] = (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
    )
    """Only requests to these have no effect but their answer, and get a key."""
    duplicates: Literal["pass", "named", "reject"] = "pass"
    """While a request is in flight, another one with its key is answered 409: `named`, if its client has sent
    an `idempotency-key`; `reject`, whether or not."""
    entries: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000
    """Keys in flight that a worker remembers, at most; beyond that nothing is rejected."""
    expiry_seconds: Seconds = 600.0
    """A key is forgotten after this, whatever became of its request."""
    url: StoreUrl = SecretStr("")
    """A Redis or Valkey server where all workers look; empty: each looks at its own. It is never told."""
    timeout_seconds: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.05
    """A request waits so long for that server at most; then it is let through."""

    @property
    def headers(self) -> tuple[str, ...]:
        """Headers that are read for keys."""
        return (CLIENT_KEY_HEADER,) if self.enabled else ()
