"""A hostile client of the access log service: entries without end in messages that are just taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.abuse import discovery
from bench.abuse.sending import field

if TYPE_CHECKING:
    from collections.abc import Callable

METHOD: Final = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
_HTTP_LOGS, _TCP_LOGS, _ENTRY, _COMMON, _REQUEST = 2, 3, 1, 1, 3
_BROKEN: Final = b"\xff"
"""Where a field should begin: the message as a whole cannot be read."""


def _logs(entry: bytes, size: int) -> bytes:
    """Return a batch of about `size` bytes, full of one entry."""
    written = field(_ENTRY, entry)
    return field(_HTTP_LOGS, written * (size // len(written)))


KINDS: Final[dict[str, Callable[[int], bytes]]] = {
    "empty": lambda size: _logs(b"", size),
    "common": lambda size: _logs(field(_COMMON, b""), size),
    "batches": lambda size: field(_HTTP_LOGS, b"") * (size // 2) + _BROKEN,
    "broken": lambda size: _logs(b"", size) + _BROKEN,
    "no_text": lambda size: _logs(field(_REQUEST, field(2, b"\xff")), size),
    "one_entry": lambda size: field(_HTTP_LOGS, field(_ENTRY, field(_REQUEST, field(13, b"") * (size // 2)))),
    "other_fields": lambda size: b"\x48\x01" * (size // 2),
    "plain": lambda size: _logs(field(_COMMON, field(15, b"chat")), size),
    "tcp": lambda size: field(_TCP_LOGS, field(_ENTRY, field(_COMMON, b"")) * (size // 4)),
}
"""A message by its approximate size in bytes."""


async def attack(address: str, kind: str, size: int = 2_000_000, *, streams: int = 12, **bounds: Any) -> int:
    """Send one of `KINDS` repeatedly, on several streams."""
    return await discovery.repeat(address, METHOD, KINDS[kind](size), streams=streams, **bounds)
