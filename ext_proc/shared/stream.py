"""The stream's commands to the Redis or Valkey server, apart from the meaning of its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ext_proc.shared.redis_client import address_of, client_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.settings.shared import SharedSettings

FROM_START: Final = b"0-0"
MOST_REPLY_BYTES: Final = 8 * 1024 * 1024
"""Of one reply: four times the ordinary batches that the index reads at once."""
_MOST_NUMBER_BYTES: Final = 32
_MOST_ID_BYTES: Final = 41
"""Two numbers of 64 bits."""
_EXHAUSTED: Final = "exhausted"
"""In the server's error where an entry has the highest possible id, so that no other can follow."""
_WORKER: Final = b"w"
_DATA: Final = b"d"
_SENT: Final = b"t"


class Entry(NamedTuple):
    """One entry of the stream."""

    id: bytes
    worker: bytes
    """The worker that wrote it; empty for other writers."""
    data: bytes
    sent_at: float
    """On the writer's clock."""

    @property
    def order(self) -> tuple[int, int]:
        """A key that rises from entry to entry."""
        return order(self.id)

    @property
    def milliseconds(self) -> int:
        """The time of writing, by the server's clock."""
        return order(self.id)[0]


def order(entry_id: bytes) -> tuple[int, int]:
    """Return the milliseconds in an entry's id and the number within them; 0 for malformed parts."""
    parts = [int(part) if part.isdigit() else 0 for part in entry_id[:_MOST_ID_BYTES].split(b"-", 1)]
    return parts[0], parts[1] if len(parts) > 1 else 0


class RedisStream:
    """One stream. Two commands may run at a time, each on a connection of its own.

    Every method raises the client library's exceptions when the server does not answer.
    """

    def __init__(self, settings: SharedSettings) -> None:
        """Connect lazily.

        Raises:
            SettingsError: the extra `redis` is not installed.
        """
        url = settings.url.get_secret_value()
        self.address = address_of(url)
        self._name = settings.stream
        self._max_length = settings.max_length
        library, options = client_library(
            "ext_proc.shared.url", timeout_seconds=settings.timeout_seconds, reply_bytes=MOST_REPLY_BYTES
        )
        self._client: Any = library.Redis.from_url(url, decode_responses=False, **options)
        self._error = library.ResponseError
        self._block_milliseconds = max(1, int(settings.timeout_seconds * 500))

    async def add(self, worker: bytes, data: bytes, now: float) -> bytes:
        """Append an entry, trim the oldest, and return the new id. A stream whose ids are used up is deleted.

        `now` is on the worker's clock, and for the worker itself.
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
        streams = await self._client.xread({self._name: entry_id}, count=most, block=self._block_milliseconds)
        return [entry for _, raw in streams for entry in _entries(raw)]

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
