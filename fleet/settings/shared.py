"""Several ext_proc workers behind one Envoy cluster, and what they tell each other."""

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
    """Index additions that workers tell each other through a stream of a Redis or Valkey server."""

    url: StoreUrl = SecretStr("")
    """Empty: nothing is shared. It may hold user and password, and is never told."""
    stream: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:{}-]*$", max_length=200)] = (
        "warmroute:prefixes"
    )
    """The stream's name: workers of one fleet share it, others have another one."""
    max_length: Annotated[int, Field(ge=10, le=10_000_000)] = 10_000
    """Batches that the server keeps, about: what a worker that starts can read."""
    flush_seconds: Seconds = 0.05
    """Additions wait so long for company."""
    pending_blocks: Annotated[int, Field(ge=64, le=100_000_000)] = 100_000
    """Blocks that wait to be sent, at most; the oldest are dropped."""
    blocks_per_second: Annotated[int, Field(ge=64, le=100_000_000)] = 100_000
    """Blocks of others that are taken over in a second, at most; what is late is skipped, oldest first."""
    tail_blocks: Annotated[int, Field(ge=0, le=100_000_000)] = 200_000
    """Blocks of the newest batches that a worker takes over at its start, about."""
    timeout_seconds: Seconds = 1.0
    """For one exchange with the server; no request waits for it."""


def is_guarded(url: str) -> bool:
    """Whether nobody on the network can read along: TLS, a Unix socket, or loopback."""
    parts = urlsplit(url)
    return parts.scheme in {"rediss", "unix"} or is_local(f"{_bracketed(parts.hostname or '')}:1")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
