"""Prefix index that ext_proc workers share through Redis or Valkey."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from fleet.settings.address import is_local
from fleet.settings.strict import Seconds, Strict

_SCHEMES: Final = ("redis", "rediss", "unix")


def _store_url(url: SecretStr) -> SecretStr:
    text = url.get_secret_value()
    if not text:
        return url
    allowed = "allowed: redis://, rediss:// (TLS) or unix://, with a host or a path, or empty for none"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(allowed) from None
    if parts.scheme not in _SCHEMES or not (parts.path if parts.scheme == "unix" else parts.hostname):
        raise ValueError(allowed)
    if port == 0:
        raise ValueError(allowed)
    return url


StoreUrl = Annotated[SecretStr, Field(max_length=2048), AfterValidator(_store_url)]


class SharedSettings(Strict):
    """Index additions that workers exchange through a stream of a Redis or Valkey server."""

    url: StoreUrl = SecretStr("")
    """Empty: nothing is shared. It may contain user and password, and no message shows it."""
    stream: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:{}-]*$", max_length=200)] = (
        "warmroute:prefixes"
    )
    """The stream's name: one for each fleet."""
    max_length: Annotated[int, Field(ge=10, le=10_000_000)] = 10_000
    """Approximate number of batches that the server keeps, for workers that start."""
    flush_seconds: Seconds = 0.05
    """Additions wait this long to share a batch."""
    pending_blocks: Annotated[int, Field(ge=64, le=100_000_000)] = 100_000
    """The most blocks that wait to be sent; the oldest are dropped."""
    blocks_per_second: Annotated[int, Field(ge=64, le=100_000_000)] = 100_000
    """The most blocks of other workers to add in a second; the oldest of the rest are skipped."""
    tail_blocks: Annotated[int, Field(ge=0, le=100_000_000)] = 200_000
    """Approximate number of the newest blocks that a worker adds at its start."""
    timeout_seconds: Seconds = 1.0
    """For one exchange with the server; no request waits for it."""


def is_guarded(url: str) -> bool:
    """Whether the connection cannot be read on the network: TLS, a Unix socket, or loopback."""
    parts = urlsplit(url)
    return parts.scheme in {"rediss", "unix"} or is_local(f"{_bracketed(parts.hostname or '')}:1")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
