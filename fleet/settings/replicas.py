"""Several ext_proc workers behind one Envoy cluster, and what they tell each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from fleet.settings.address import MAX_SOCKET_PATH_BYTES, is_local, split_host_port
from fleet.settings.strict import Seconds, Strict

if TYPE_CHECKING:
    from fleet.settings.model import ExtProcSettings

MOST_WORKERS: Final = 64
_MAX_PORT: Final = 65_535
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


def worker_address(address: str, number: int) -> str:
    """Where worker `number` listens: worker 0 at the address itself, others beside it.

    A Unix socket's path gets the number as its suffix; a port is counted up.

    Raises:
        ValueError: there is no such port, or the path is too long.
    """
    if number == 0:
        return address
    if not address.startswith("unix:"):
        return _next_port(address, number)
    if len(address.removeprefix("unix:").encode()) + len(f".{number}") >= MAX_SOCKET_PATH_BYTES:
        raise ValueError("allowed: a shorter path, for the workers' sockets have a number behind it")
    return f"{address}.{number}"


def worker_addresses(settings: ExtProcSettings) -> tuple[str, ...]:
    """Where all workers listen, and where Envoys find them."""
    return tuple(worker_address(settings.address, number) for number in range(settings.workers))


def worker_admin_address(address: str, number: int) -> str:
    """Where worker `number` of several has its admin server: behind their parent's. Empty stays empty.

    Raises:
        ValueError: there is no such port.
    """
    return _next_port(address, number + 1) if address else ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _next_port(address: str, step: int) -> str:
    _, port = split_host_port(address)
    if port + step > _MAX_PORT:
        raise ValueError(f"allowed: a port of at most {_MAX_PORT - step}, for the workers' ports follow it")
    return f"{address.rpartition(':')[0]}:{port + step}"
