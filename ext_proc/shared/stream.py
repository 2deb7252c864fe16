"""The stream itself: what is asked of the Redis or Valkey server, and nothing about what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from ext_proc.shared.replies import bounded_parser
from fleet.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.settings.shared import SharedSettings

FROM_START: Final = b"0-0"
MOST_REPLY_BYTES: Final = 8 * 1024 * 1024
"""Of one answer: four times what `share` asks for at once, of ordinary batches."""
_MOST_NUMBER_BYTES: Final = 32
_MOST_ID_BYTES: Final = 41
"""Two numbers of 64 bits."""
_EXHAUSTED: Final = "exhausted"
"""In the server's error where an entry has the highest id there can be: no other could follow it."""
_WORKER: Final = b"w"
_DATA: Final = b"d"
_SENT: Final = b"t"


class Entry(NamedTuple):
    """One entry of the stream."""

    id: bytes
    worker: bytes
    """Who wrote it; empty where something else did."""
    data: bytes
    sent_at: float
    """On the writer's own clock."""

    @property
    def order(self) -> tuple[int, int]:
        """What rises from entry to entry."""
        return order(self.id)

    @property
    def milliseconds(self) -> int:
        """When it was written, by the server's clock."""
        return order(self.id)[0]


def order(entry_id: bytes) -> tuple[int, int]:
    """Return the time in an entry's id and its number within that; 0 for what is none."""
    parts = [int(part) if part.isdigit() else 0 for part in entry_id[:_MOST_ID_BYTES].split(b"-", 1)]
    return parts[0], parts[1] if len(parts) > 1 else 0


def place_of(url: str) -> str:
    """Where a server is, without user, password and options: what may be logged."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix:{parts.path}"
    return f"{parts.hostname}:{parts.port or 6379}"


class Stream:
    """One stream. Two exchanges may run at a time, each on a connection of its own.

    Every method raises what the client library raises when the server cannot be asked.
    """

    def __init__(self, settings: SharedSettings) -> None:
        """Connect lazily.

        Raises:
            SettingsError: the extra `redis` is not installed.
        """
        try:
            import redis.asyncio as redis  # noqa: PLC0415 - only where it is configured
            from redis.asyncio.retry import Retry  # noqa: PLC0415
            from redis.backoff import NoBackoff  # noqa: PLC0415
        except ImportError as error:
            raise SettingsError(
                ["ext_proc.shared.url needs the extra `redis`: pip install 'warmroute[redis]'"]
            ) from error
        url = settings.url.get_secret_value()
        self.place = place_of(url)
        self._name = settings.stream
        self._max_length = settings.max_length
        self._client: Any = redis.Redis.from_url(
            url,
            socket_timeout=settings.timeout_seconds,
            socket_connect_timeout=settings.timeout_seconds,
            # We wait and try again ourselves, and nobody waits for us.
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
            protocol=2,
            parser_class=bounded_parser(MOST_REPLY_BYTES),
        )
        self._error = redis.ResponseError
        self._block_milliseconds = max(1, int(settings.timeout_seconds * 500))

    async def add(self, worker: bytes, data: bytes, now: float) -> bytes:
        """Append an entry, let the oldest go, and return its id.

        `now` is for the worker itself, on whatever clock it has. A stream whose ids are used up begins anew.
        """
        try:
            return await self._add(worker, data, now)
        except self._error as error:
            if _EXHAUSTED not in str(error):
                raise
            await self._client.delete(self._name)
            return await self._add(worker, data, now)

    async def _add(self, worker: bytes, data: bytes, now: float) -> bytes:
        fields = {_WORKER: worker, _DATA: data, _SENT: repr(now)}
        entry_id: bytes = await self._client.xadd(
            self._name, fields, maxlen=self._max_length, approximate=True
        )
        return entry_id

    async def after(self, entry_id: bytes, most: int) -> list[Entry]:
        """Return the entries after one, oldest first; wait half a timeout for the first of them."""
        told = await self._client.xread({self._name: entry_id}, count=most, block=self._block_milliseconds)
        return [entry for _, raw in told for entry in _entries(raw)]

    async def newest(self, most: int, before: bytes = b"+") -> list[Entry]:
        """Return the newest entries at or before an id, newest first."""
        return _entries(await self._client.xrevrange(self._name, max=before, min=b"-", count=most))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _entries(raw: Sequence[Any]) -> list[Entry]:
    return [
        Entry(entry_id, fields.get(_WORKER, b""), fields.get(_DATA, b""), _number(fields.get(_SENT, b"")))
        for entry_id, fields in raw
        if fields is not None
    ]


def _number(text: bytes) -> float:
    try:
        return float(text) if len(text) <= _MOST_NUMBER_BYTES else 0.0
    except ValueError:
        return 0.0
