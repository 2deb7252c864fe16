"""Staples of the certificates in force: one task a certificate asks for the next one in good time.

Rule
    A newer staple is wanted when half of the time of the one in force is over. What fails is tried again
    with a back-off; the one in force stays until it ends, and then there is none: no handshake waits for a
    responder, or fails because of one. A certificate that is told to be revoked has no staple at once.
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
from xds_server.tls.ocsp.ask import Responders
from xds_server.tls.ocsp.metrics import StapleMetrics
from xds_server.tls.ocsp.response import Question, Staple, StapleError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS: Final = 5.0
MAX_BACKOFF_SECONDS: Final = 600.0
MOST_SECONDS: Final = 86_400.0
"""A certificate is asked for at least this often: it may be revoked long before a staple ends."""
LEAST_SECONDS: Final = 60.0
"""A responder whose answers do not change is asked at most this often."""
LOAD_SECONDS: Final = 3.0
"""Most that a start waits for the disk."""
_STEP_SECONDS: Final = 60.0
"""The wall clock is looked at this often: it may be set, and a host may have slept."""


class Asking(Protocol):
    """Who asks responders."""

    def ask(self, question: Question) -> Awaitable[bytes]:
        """Return a response in DER, or raise `StapleError`."""

    def close(self) -> Awaitable[None]:
        """Close what is open."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A chain in PEM whose first certificate wants a staple; `url` None: from the responder it names."""

    chain: bytes
    url: str | None = None


@dataclass(slots=True)
class _Followed:
    wanted: Wanted
    key: str = ""
    """Of the certificate; empty while it is not read."""
    staple: Staple | None = None
    task: asyncio.Task[None] | None = None


class Staples:
    """The newest staple of each use. All calls come from one event loop; `of` may be asked before `start`."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        path: Path | None = None,
        *,
        asking: Callable[[], Asking] = Responders,
        wall: Callable[[], float] = time.time,
        least_seconds: float = LEAST_SECONDS,
        first_backoff_seconds: float = FIRST_BACKOFF_SECONDS,
    ) -> None:
        """`path` is where staples are kept; None: nowhere."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when there is another staple, or one less."""
        self._path = path
        self._wall = wall
        self._make_asking = asking
        self._asking: Asking | None = None
        self._least_seconds = least_seconds
        self._first_backoff_seconds = first_backoff_seconds
        self._followed: dict[str, _Followed] = {}
        self._from_before: Mapping[str, bytes] = {}
        self._writing = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._metrics = StapleMetrics.of(registry or CollectorRegistry())

    async def start(self) -> None:
        """Read what is on disk and begin to ask."""
        if self._path is None and self._followed:
            logger.warning("staples are kept nowhere: xds.state_path says where; a start has to fetch them")
        if self._path is not None:
            try:
                async with asyncio.timeout(LOAD_SECONDS):
                    self._from_before = await asyncio.to_thread(store.read, self._path)
            except TimeoutError:
                logger.warning("%s: not read within %g s", self._path, LOAD_SECONDS)
        self._asking = self._make_asking()
        for use, followed in self._followed.items():
            self._begin(use, followed)

    async def close(self) -> None:
        """Ask no more."""
        for followed in self._followed.values():
            self._end(followed)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._asking is not None:
            await self._asking.close()
            self._asking = None

    def update(self, wanted: Mapping[str, Wanted]) -> None:
        """Say which uses want staples; a use whose certificate or responder is another one starts anew."""
        for use in list(self._followed):
            if wanted.get(use) != self._followed[use].wanted:
                self._end(self._followed.pop(use))
                self._metrics.end(use)
        for use, entry in wanted.items():
            if use not in self._followed:
                followed = self._followed[use] = _Followed(entry)
                self._metrics.begin(use, lambda use=use: self.of(use) is not None)  # type: ignore[misc]
                if self._asking is not None:
                    self._begin(use, followed)

    def of(self, use: str) -> Staple | None:
        """The staple in force; None: there is none now."""
        followed = self._followed.get(use)
        staple = None if followed is None else followed.staple
        return staple if staple is not None and staple.valid(self._wall()) else None

    def _begin(self, use: str, followed: _Followed) -> None:
        followed.task = asyncio.create_task(self._run(use, followed), name=f"staple {use}")

    def _end(self, followed: _Followed) -> None:
        task = followed.task
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _run(self, use: str, followed: _Followed) -> None:
        while True:
            try:
                await self._follow(use, followed)
            except StapleError as error:
                self._metrics.fetches.labels(use, error.outcome).inc()
                logger.warning("the certificate of %s is served without a staple: %s", use, error)
                return
            except Exception:  # the one edge: a fault of ours must not end what keeps staples new
                self._metrics.fetches.labels(use, "failed").inc()
                logger.exception("asking for the staple of %s failed by a fault of ours", use)
            await self._sleep(MAX_BACKOFF_SECONDS)

    async def _follow(self, use: str, followed: _Followed) -> None:
        """Keep the staple new.

        Raises:
            StapleError: nobody can be asked.
        """
        question = Question.of(followed.wanted.chain, followed.wanted.url)
        followed.key = question.key
        failures = 0
        if self._recall(use, followed, question):
            assert followed.staple is not None
            await self._sleep(self._pause(followed.staple))
        while True:
            failures = 0 if await self._renew(use, followed, question) else failures + 1
            if failures or followed.staple is None:
                backoff = self._first_backoff_seconds * 2 ** min(failures - 1, 20)
                await self._sleep(min(backoff, MAX_BACKOFF_SECONDS) * random.uniform(0.5, 1.0))  # noqa: S311
            else:
                await self._sleep(self._pause(followed.staple))

    def _recall(self, use: str, followed: _Followed, question: Question) -> bool:
        """Take what was on disk; returns whether that is still good."""
        known = self._from_before.get(question.key)
        if known is None:
            return False
        try:
            followed.staple = question.read(known, self._wall())
        except StapleError as error:
            logger.info("the staple of %s from before is not used: %s", use, error)
            return False
        self._metrics.show(use, followed.staple)
        self.on_change()
        return True

    def _pause(self, staple: Staple) -> float:
        """Seconds until the next question: at half-time, and from then on after a quarter of what is left."""
        now = self._wall()
        left = staple.refresh_at - now
        if left <= 0:
            left = (staple.next_update - now) / 4
        # Servers that share a certificate ask at different times.
        return max(self._least_seconds, min(left, MOST_SECONDS) * random.uniform(0.9, 1.0))  # noqa: S311

    async def _sleep(self, seconds: float) -> None:
        until = self._wall() + seconds
        while (left := until - self._wall()) > 0:  # noqa: ASYNC110 (time passes without an event)
            await asyncio.sleep(min(left, _STEP_SECONDS))

    async def _renew(self, use: str, followed: _Followed, question: Question) -> bool:
        """Ask once; returns whether that went well."""
        assert self._asking is not None
        try:
            told = question.read(await self._asking.ask(question), self._wall())
        except StapleError as error:
            self._metrics.fetches.labels(use, error.outcome).inc()
            logger.warning("no new staple of %s: %s", use, error)
            if error.outcome == "revoked":
                await self._take(use, followed, None)
            return False
        self._metrics.fetches.labels(use, "fetched").inc()
        held = followed.staple
        # A cache between us and the responder may be behind what we have.
        if held is None or told.this_update > held.this_update:
            await self._take(use, followed, told)
        return True

    async def _take(self, use: str, followed: _Followed, staple: Staple | None) -> None:
        if staple is None and followed.staple is None:
            return
        followed.staple = staple
        self._metrics.show(use, staple)
        self.on_change()
        await self._keep()

    async def _keep(self) -> None:
        if self._path is None:
            return
        staples = {entry.key: entry.staple.der for entry in self._followed.values() if entry.staple}
        try:
            async with self._writing:
                await asyncio.to_thread(store.write, self._path, staples)
        except OSError as error:
            logger.warning("%s: staples are not kept: %s", self._path, cause_of(error))
