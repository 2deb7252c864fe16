"""Keys in flight at all workers, on one Redis or Valkey server. Requests wait for it for a moment at most.

A claim there is a short lease that its worker renews, so the claims of a killed worker end with their leases.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ext_proc.shared.redis_client import address_of, client_library

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fleet.settings import IdempotencySettings

logger = logging.getLogger(__name__)

_PREFIX: Final = "warmroute:idempotency:"
_CONNECTIONS: Final = 32
_PAUSE_SECONDS: Final = 1.0
"""No requests to the server for this time after a fault: each would wait for its timeout."""
_MOST_REPLY_BYTES: Final = 4096
"""Every reply is a word or a number."""
_MOST_RELEASES: Final = 1000
_LEASE_SECONDS: Final = 10.0
_RENEWALS: Final = 3
"""In the time of a lease, so that two may fail."""
_RENEWALS_PER_COMMAND: Final = 500
_DELETE_OWN: Final = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


class SharedClaims:
    """Claims by `SET NX` with expiry; only the worker with the claim renews and deletes it."""

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
        self._paused_until = clock()
        self._failing = False
        url = settings.url.get_secret_value()
        self._address = address_of(url)
        library, options = client_library(
            "ext_proc.idempotency.url",
            timeout_seconds=settings.timeout_seconds,
            reply_bytes=_MOST_REPLY_BYTES,
        )
        pool = library.BlockingConnectionPool.from_url(
            url, max_connections=_CONNECTIONS, timeout=settings.timeout_seconds, **options
        )
        self._client: Any = library.Redis.from_pool(pool)
        self._releases: set[asyncio.Task[None]] = set()

    async def claim(self, key: str, token: int) -> bool | None:
        """Return whether the key was free and is this request's now; None without an answer in time."""
        if self._clock() < self._paused_until:
            return None
        reply = await self._attempt(
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
        """Delete the claim in the background; if that fails, its lease ends."""
        self._claims.pop(key, None)
        if self._clock() < self._paused_until or len(self._releases) >= _MOST_RELEASES:
            return
        task = asyncio.create_task(self._release(key, token), name="idempotency release")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Finish releases and disconnect."""
        self._claims.clear()
        if self._renewal is not None:
            self._renewal.cancel()
            # The client library may turn a cancellation into an error; then the task ends without claims.
            await asyncio.wait((self._renewal,), timeout=2 * self._timeout)
        if self._releases:
            await asyncio.wait(tuple(self._releases), timeout=2 * self._timeout)
        await self._attempt(self._client.aclose)

    async def _release(self, key: str, token: int) -> None:
        await self._attempt(lambda: self._client.eval(_DELETE_OWN, 1, _PREFIX + key, self._value(token)))

    async def _renew(self) -> None:
        """Renew all claims, until there are none."""
        while self._claims:
            await asyncio.sleep(self._lease_seconds / _RENEWALS)
            now = self._clock()
            self._claims = {key: until for key, until in self._claims.items() if now < until}
            keys = list(self._claims)
            for start in range(0, len(keys), _RENEWALS_PER_COMMAND):
                await self._attempt(partial(self._renew_some, keys[start : start + _RENEWALS_PER_COMMAND]))

    async def _renew_some(self, keys: list[str]) -> None:
        # If another worker has the key by now, its lease becomes longer, which does no harm.
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            if key in self._claims:
                pipeline.pexpire(_PREFIX + key, self._lease_ms)
        await pipeline.execute()

    async def _attempt(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Return the reply, or `_UNKNOWN`. The one edge for faults, which let requests through."""
        try:
            async with asyncio.timeout(self._timeout):
                reply = await work()
        except Exception as error:  # noqa: BLE001
            self._on_fault()
            self._paused_until = self._clock() + _PAUSE_SECONDS
            if not self._failing:
                self._failing = True
                # Only the type: the text may contain the password of the URL.
                logger.warning("duplicates are not detected: %s from %s", type(error).__name__, self._address)
            return _UNKNOWN
        self._failing = False
        return reply

    def _value(self, token: int) -> str:
        return f"{self._worker}/{token}"


_UNKNOWN: Final = object()
