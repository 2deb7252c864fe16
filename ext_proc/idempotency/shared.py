"""Keys in flight at all workers: one Redis or Valkey server, asked for a moment and never waited for.

A claim there is a short lease that its worker renews: what a worker leaves behind when it is killed stands in
nobody's way for longer than that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ext_proc.shared.replies import bounded_parser
from ext_proc.shared.stream import place_of
from fleet.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fleet.settings import IdempotencySettings

logger = logging.getLogger(__name__)

_PREFIX: Final = "warmroute:idempotency:"
_CONNECTIONS: Final = 32
_PAUSE_SECONDS: Final = 1.0
"""After a fault nobody asks for so long: requests must not wait for a server that is away, one by one."""
_MOST_REPLY_BYTES: Final = 4096
"""Every answer is a word or a number."""
_MOST_RELEASES: Final = 1000
_LEASE_SECONDS: Final = 10.0
_RENEWALS: Final = 3
"""Of a lease, so that two may fail."""
_RENEWED_AT_ONCE: Final = 500
_DELETE_OWN: Final = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


class SharedClaims:
    """`SET NX` with expiry for a claim; who claimed renews and deletes it, and nobody else."""

    def __init__(
        self,
        settings: IdempotencySettings,
        worker: str,
        on_fault: Callable[[], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect lazily. `worker` is unique among all workers; `on_fault` counts.

        Raises:
            SettingsError: the extra `redis` is not installed.
        """
        try:
            import redis.asyncio as redis  # noqa: PLC0415 - only where it is configured
            from redis.asyncio.retry import Retry  # noqa: PLC0415
            from redis.backoff import NoBackoff  # noqa: PLC0415
        except ImportError as error:
            raise SettingsError(
                ["ext_proc.idempotency.url needs the extra `redis`: pip install 'warmroute[redis]'"]
            ) from error
        self._timeout = settings.timeout_seconds
        self._expiry_seconds = settings.expiry_seconds
        self._lease_seconds = min(_LEASE_SECONDS, settings.expiry_seconds)
        self._lease_ms = max(1, round(self._lease_seconds * 1000))
        self._claims: dict[str, float] = {}
        """Key to when its request expires."""
        self._renewal: asyncio.Task[None] | None = None
        self._worker = worker
        self._on_fault = on_fault
        self._clock = clock
        self._asks_from = clock()
        self._in_trouble = False
        url = settings.url.get_secret_value()
        self.place = place_of(url)
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=settings.timeout_seconds,
            socket_timeout=settings.timeout_seconds,
            socket_connect_timeout=settings.timeout_seconds,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            parser_class=bounded_parser(_MOST_REPLY_BYTES),
        )
        self._client: Any = redis.Redis.from_pool(pool)
        self._releases: set[asyncio.Task[None]] = set()

    async def claim(self, key: str, token: int) -> bool | None:
        """Whether the key was free and is this request's now; None: not known, in time."""
        if self._clock() < self._asks_from:
            return None
        reply = await self._tried(
            lambda: self._client.set(_PREFIX + key, self._value(token), nx=True, px=self._lease_ms)
        )
        if reply is _UNKNOWN:
            return None
        if reply:
            self._claims[key] = self._clock() + self._expiry_seconds
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.create_task(self._renew(), name="idempotency renewal")
        return bool(reply)

    def release(self, key: str, token: int) -> None:
        """Give the key back, in the background; if that fails its lease ends."""
        self._claims.pop(key, None)
        if self._clock() < self._asks_from or len(self._releases) >= _MOST_RELEASES:
            return
        task = asyncio.create_task(self._release(key, token), name="idempotency release")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Let releases end and disconnect."""
        self._claims.clear()
        if self._renewal is not None:
            self._renewal.cancel()
            # The client library may make an error of a cancellation; then it ends for want of keys.
            await asyncio.wait((self._renewal,), timeout=2 * self._timeout)
        if self._releases:
            await asyncio.wait(tuple(self._releases), timeout=2 * self._timeout)
        await self._tried(self._client.aclose)

    async def _release(self, key: str, token: int) -> None:
        await self._tried(lambda: self._client.eval(_DELETE_OWN, 1, _PREFIX + key, self._value(token)))

    async def _renew(self) -> None:
        """Renew all claims, until there are none."""
        while self._claims:
            await asyncio.sleep(self._lease_seconds / _RENEWALS)
            now = self._clock()
            self._claims = {key: until for key, until in self._claims.items() if now < until}
            keys = list(self._claims)
            for start in range(0, len(keys), _RENEWED_AT_ONCE):
                await self._tried(partial(self._renew_some, keys[start : start + _RENEWED_AT_ONCE]))

    async def _renew_some(self, keys: list[str]) -> None:
        # Of a key that is another's by now, this one lease becomes longer, which harms nobody.
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            if key in self._claims:
                pipeline.pexpire(_PREFIX + key, self._lease_ms)
        await pipeline.execute()

    async def _tried(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer, or `_UNKNOWN`. The one edge: whatever fails here lets requests through."""
        try:
            async with asyncio.timeout(self._timeout):
                reply = await work()
        except Exception as error:  # noqa: BLE001
            self._on_fault()
            self._asks_from = self._clock() + _PAUSE_SECONDS
            if not self._in_trouble:
                self._in_trouble = True
                # By its type: its text may hold what the URL hides.
                logger.warning("duplicates are not seen now: %s from %s", type(error).__name__, self.place)
            return _UNKNOWN
        self._in_trouble = False
        return reply

    def _value(self, token: int) -> str:
        return f"{self._worker}/{token}"


_UNKNOWN: Final = object()
