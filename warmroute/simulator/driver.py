"""Runs the engine model in real time on an asyncio loop and hands its tokens to waiting coroutines."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from warmroute.simulator.metrics import EngineMetrics, Gauges
from warmroute.simulator.model import EngineConfig, EngineModel, EventKind, Handle, Request, State

if TYPE_CHECKING:
    from collections.abc import Callable

COALESCE_SECONDS: Final = 0.01
"""Tokens that no first token or end depends on wait so long for company: one write carries several."""


class DroppedError(Exception):
    """The engine restarted under the request."""


@dataclass(slots=True, eq=False)
class Stream:
    """The stream of one request's tokens."""

    handle: Handle
    model: EngineModel
    ready: int = 0
    """Tokens that came and were not fetched."""
    done: bool = False
    dropped: bool = False
    _waiter: asyncio.Future[None] | None = None

    async def more(self) -> int:
        """Wait for tokens or the end, and take all available ones; DroppedError when the engine lost it."""
        while not (self.ready or self.done or self.dropped):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.dropped:
            raise DroppedError
        tokens, self.ready = self.ready, 0
        return tokens

    def wake(self) -> None:
        """Let `more` look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._waiter = None


class EngineDriver:
    """One rank of an engine in real time, on the loop's clock. Freezing stops it; its requests wait."""

    def __init__(
        self,
        config: EngineConfig,
        loop: asyncio.AbstractEventLoop,
        wall: Callable[[], float],
        rank: int = 0,
    ) -> None:
        """`rank` is the engine's data-parallel rank: the label of its metrics."""
        self._config = config
        self._rank = rank
        self._loop = loop
        self._wall = wall
        self._behind = 0.0  # seconds by which the engine's clock is behind the loop's: time spent frozen
        self._frozen_at: float | None = None
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._pumped_at = 0.0
        self._streams: dict[Handle, Stream] = {}
        self.distort: Callable[[Gauges], Gauges] | None = None
        """Turns the gauges into the ones that the page shows."""
        self._start()

    def _start(self) -> None:
        self.metrics = EngineMetrics(self._config.limit_tokens)
        self.model = EngineModel(self._config, self.metrics.on_steps)
        self.started_at = self._wall()

    def now(self) -> float:
        """The engine's clock, in seconds."""
        at = self._loop.time() if self._frozen_at is None else self._frozen_at
        return at - self._behind

    @property
    def frozen(self) -> bool:
        """Whether the engine's clock stands still."""
        return self._frozen_at is not None

    def submit(self, request: Request) -> Stream:
        """Start a request; raise the errors of the model's `submit`."""
        handle = self.model.submit(request, self.now())
        stream = Stream(handle, self.model)
        self._streams[handle] = stream
        self._arm()
        return stream

    def release(self, stream: Stream) -> bool:
        """End a request, in whatever state it is; True when that cut it short."""
        self._streams.pop(stream.handle, None)
        if stream.done or stream.model is not self.model:
            return False
        stream.model.abort(stream.handle, self.now())
        self._arm()
        if stream.handle.state is State.FINISHED:
            return False
        self.metrics.on_aborted()
        return True

    async def thawed(self) -> None:
        """Wait until the engine is not frozen."""
        await self._thawed.wait()

    def freeze(self) -> None:
        """Stop the engine's clock."""
        if self._frozen_at is None:
            self._frozen_at = self._loop.time()
            self._thawed.clear()
            self._disarm()

    def thaw(self) -> None:
        """Let the engine's clock go on from where it stood."""
        if self._frozen_at is not None:
            self._behind += self._loop.time() - self._frozen_at
            self._frozen_at = None
            self._thawed.set()
            self._arm()

    def set_slowdown(self, factor: float) -> None:
        """Multiply the duration of new steps by `factor`."""
        self.model.slowdown = factor

    def set_out_of_memory(self, *, out: bool) -> None:
        """Let every allocation of blocks fail, or heal that."""
        self.model.set_failing(failing=out, now=self.now())
        self._arm()

    def reset_cache(self) -> None:
        """Forget the warm blocks."""
        self.model.reset_cache(self.now())
        self._arm()

    def restart(self) -> None:
        """Lose requests, cache and counters, like a restarted process."""
        self._disarm()
        self._start()
        lost, self._streams = list(self._streams.values()), {}
        for stream in lost:
            stream.dropped = True
            stream.wake()

    def page(self, model_name: str) -> bytes:
        """The metrics page of this moment."""
        self._pump()
        gauges = Gauges.of(self.model)
        shown = gauges if self.distort is None else self.distort(gauges)
        return self.metrics.page(self.model, model_name, self.started_at, shown, rank=self._rank)

    def close(self) -> None:
        """Stop the timer."""
        self._disarm()

    def _pump(self) -> None:
        self._disarm()
        now = self._pumped_at = self.now()
        for kind, handle, _, tokens in self.model.advance(now):
            if kind is EventKind.FIRST_TOKEN:
                self.metrics.on_first_token(handle)
            elif kind is EventKind.FINISHED:
                self.metrics.on_finished(handle)
            stream = self._streams.get(handle)
            if stream is None:
                continue
            stream.ready += tokens
            stream.done = kind is EventKind.FINISHED
            stream.wake()
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the next moment that someone waits for."""
        soonest, milestone = self.model.next_event_at(), self.model.next_milestone_at()
        if soonest is None or milestone is None or self.frozen:
            return
        quiet = max(soonest, self._pumped_at + COALESCE_SECONDS)
        at = milestone if milestone < quiet + COALESCE_SECONDS / 2 else quiet
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at + self._behind, self._pump)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
