"""Staples of the certificates in force: one task per certificate fetches the next staple in good time.

Rule
    The next staple is fetched when half of the current one's lifetime is over. A failed fetch is repeated
    with a back-off. The current staple stays until it ends, and then there is none: no handshake waits for a
    responder, or fails because of one. A revoked certificate loses its staple at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import CollectorRegistry

from fleet.cause import cause_of
from xds_server.tls.ocsp import store
from xds_server.tls.ocsp.client import OcspClient
from xds_server.tls.ocsp.metrics import StapleMetrics
from xds_server.tls.ocsp.response import OcspRequest, Staple, StapleError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS: Final = 5.0
MAX_BACKOFF_SECONDS: Final = 600.0
MOST_SECONDS: Final = 86_400.0
"""Longest time between fetches: a certificate may be revoked long before its staple ends."""
LEAST_SECONDS: Final = 60.0
"""Least time between fetches from a responder whose answers do not change."""
LOAD_SECONDS: Final = 3.0
"""Longest time that a start waits for the disk."""
_STEP_SECONDS: Final = 60.0
"""Interval of looks at the wall clock: it may be set, and a host may have slept."""


class Fetcher(Protocol):
    """Sends requests to responders."""

    def fetch(self, request: OcspRequest) -> Awaitable[bytes]:
        """Return a response in DER, or raise `StapleError`."""

    def close(self) -> Awaitable[None]:
        """Close its connections."""


@dataclass(frozen=True, slots=True)
class StapleTarget:
    """A chain in PEM whose first certificate needs a staple; `url` None: of the responder that it names."""

    chain: bytes
    url: str | None = None


@dataclass(slots=True)
class _Renewal:
    target: StapleTarget
    key: str = ""
    """Of the certificate; empty until it is read."""
    staple: Staple | None = None
    task: asyncio.Task[None] | None = None


class Staples:
    """The newest staple of each use. All calls come from one event loop; `of` works before `start`."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        path: Path | None = None,
        *,
        make_client: Callable[[], Fetcher] = OcspClient,
        wall: Callable[[], float] = time.time,
        least_seconds: float = LEAST_SECONDS,
        first_backoff_seconds: float = FIRST_BACKOFF_SECONDS,
    ) -> None:
        """`path` is the file that keeps staples; None: no file."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a staple changes or goes."""
        self._path = path
        self._wall = wall
        self._make_client = make_client
        self._client: Fetcher | None = None
        self._least_seconds = least_seconds
        self._first_backoff_seconds = first_backoff_seconds
        self._renewals: dict[str, _Renewal] = {}
        self._from_before: Mapping[str, bytes] = {}
        self._writing = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._metrics = StapleMetrics.of(registry or CollectorRegistry())

    async def start(self) -> None:
        """Load the saved staples and begin to fetch newer ones."""
        if self._path is None and self._renewals:
            logger.warning("staples are not saved, so each start has to fetch them; set xds.state_path")
        if self._path is not None:
            try:
                async with asyncio.timeout(LOAD_SECONDS):
                    self._from_before = await asyncio.to_thread(store.read, self._path)
            except TimeoutError:
                logger.warning("%s: not read within %g s", self._path, LOAD_SECONDS)
        self._client = self._make_client()
        for use, renewal in self._renewals.items():
            self._begin(use, renewal)

    async def close(self) -> None:
        """Stop fetching."""
        for renewal in self._renewals.values():
            self._end(renewal)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
            self._client = None

    def update(self, targets: Mapping[str, StapleTarget]) -> None:
        """Replace the targets, by use; a use with another certificate or responder starts over."""
        for use in list(self._renewals):
            if targets.get(use) != self._renewals[use].target:
                self._end(self._renewals.pop(use))
                self._metrics.end(use)
        for use, target in targets.items():
            if use not in self._renewals:
                renewal = self._renewals[use] = _Renewal(target)
                self._metrics.begin(use, lambda use=use: self.of(use) is not None)  # type: ignore[misc]
                if self._client is not None:
                    self._begin(use, renewal)

    def of(self, use: str) -> Staple | None:
        """The staple in force; None: there is none."""
        renewal = self._renewals.get(use)
        staple = None if renewal is None else renewal.staple
        return staple if staple is not None and staple.valid(self._wall()) else None

    def _begin(self, use: str, renewal: _Renewal) -> None:
        renewal.task = asyncio.create_task(self._run(use, renewal), name=f"staple {use}")

    def _end(self, renewal: _Renewal) -> None:
        task = renewal.task
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _run(self, use: str, renewal: _Renewal) -> None:
        while True:
            try:
                await self._renew_for_ever(use, renewal)
            except StapleError as error:
                self._metrics.fetches.labels(use, error.outcome).inc()
                logger.warning("the certificate of %s is served without a staple: %s", use, error)
                return
            except Exception:  # the one edge: a fault of ours must not end what keeps staples new
                self._metrics.fetches.labels(use, "failed").inc()
                logger.exception("fetching the staple of %s failed by a fault of ours", use)
            await self._sleep(MAX_BACKOFF_SECONDS)

    async def _renew_for_ever(self, use: str, renewal: _Renewal) -> None:
        """Keep the staple fresh.

        Raises:
            StapleError: there is no responder.
        """
        request = OcspRequest.of(renewal.target.chain, renewal.target.url)
        renewal.key = request.key
        failures = 0
        if self._recall(use, renewal, request):
            assert renewal.staple is not None
            await self._sleep(self._pause(renewal.staple))
        while True:
            failures = 0 if await self._renew(use, renewal, request) else failures + 1
            if failures or renewal.staple is None:
                backoff = self._first_backoff_seconds * 2 ** min(failures - 1, 20)
                await self._sleep(min(backoff, MAX_BACKOFF_SECONDS) * random.uniform(0.5, 1.0))  # noqa: S311
            else:
                await self._sleep(self._pause(renewal.staple))

    def _recall(self, use: str, renewal: _Renewal, request: OcspRequest) -> bool:
        """Take the saved staple; returns whether it is still good."""
        saved = self._from_before.get(request.key)
        if saved is None:
            return False
        try:
            renewal.staple = request.read(saved, self._wall())
        except StapleError as error:
            logger.info("the saved staple of %s is not used: %s", use, error)
            return False
        self._metrics.show(use, renewal.staple)
        self.on_change()
        return True

    def _pause(self, staple: Staple) -> float:
        """Seconds until the next fetch: at half of the lifetime, then after each quarter of the rest."""
        now = self._wall()
        left = staple.refresh_at - now
        if left <= 0:
            left = (staple.next_update - now) / 4
        # Servers that share a certificate fetch at different times.
        return max(self._least_seconds, min(left, MOST_SECONDS) * random.uniform(0.9, 1.0))  # noqa: S311

    async def _sleep(self, seconds: float) -> None:
        until = self._wall() + seconds
        while (left := until - self._wall()) > 0:  # noqa: ASYNC110 (time passes without an event)
            await asyncio.sleep(min(left, _STEP_SECONDS))

    async def _renew(self, use: str, renewal: _Renewal, request: OcspRequest) -> bool:
        """Fetch once; returns whether it succeeded."""
        assert self._client is not None
        try:
            staple = request.read(await self._client.fetch(request), self._wall())
        except StapleError as error:
            self._metrics.fetches.labels(use, error.outcome).inc()
            logger.warning("no new staple of %s: %s", use, error)
            if error.outcome == "revoked":
                await self._take(use, renewal, None)
            return False
        self._metrics.fetches.labels(use, "fetched").inc()
        current = renewal.staple
        # A cache between us and the responder may have an older one.
        if current is None or staple.this_update > current.this_update:
            await self._take(use, renewal, staple)
        return True

    async def _take(self, use: str, renewal: _Renewal, staple: Staple | None) -> None:
        if staple is None and renewal.staple is None:
            return
        renewal.staple = staple
        self._metrics.show(use, staple)
        self.on_change()
        await self._save()

    async def _save(self) -> None:
        if self._path is None:
            return
        staples = {entry.key: entry.staple.der for entry in self._renewals.values() if entry.staple}
        try:
            async with self._writing:
                await asyncio.to_thread(store.write, self._path, staples)
        except OSError as error:
            logger.warning("%s: staples are not saved: %s", self._path, cause_of(error))
