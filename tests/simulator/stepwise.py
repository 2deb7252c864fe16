"""The engine model's scheduler without its short cuts: one step at a time, one request at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.simulator.cache import BlockCache
from warmroute.simulator.fits import pairs
from warmroute.simulator.model import Handle, State

if TYPE_CHECKING:
    from warmroute.simulator.model import EngineConfig, Request


class Stepwise:
    """Same rules as EngineModel, no jitter; `steps` has seconds, prefill tokens and decodes of each step."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.cache = BlockCache(config.num_blocks)
        self.slowdown = 1.0
        self.waiting: list[Handle] = []
        self.running: list[Handle] = []
        self.work: list[tuple[Handle, int]] = []
        self.starts_at = 0.0
        self.ends_at: float | None = None
        self.steps: list[tuple[float, int, int]] = []

    def submit(self, request: Request, now: float) -> Handle:
        """Queue a request."""
        self.run_until(now)
        handle = Handle(request, now)
        self.waiting.append(handle)
        self._start(now, now)
        return handle

    def abort(self, handle: Handle, now: float) -> None:
        """End a request early."""
        self.run_until(now)
        if handle in self.waiting:
            self.waiting.remove(handle)
        elif handle in self.running:
            self.running.remove(handle)
            self._release(handle)
        else:
            return
        handle.state = State.ABORTED
        self._start(now, now)

    def run_until(self, now: float) -> None:
        """Finish the steps that end by `now`."""
        while self.ends_at is not None and self.ends_at <= now:
            at, self.ends_at = self.ends_at, None
            for handle, tokens in self.work:
                if handle.state is State.RUNNING:
                    self._finish(handle, tokens, at)
            self._start(at, self.starts_at)

    def _finish(self, handle: Handle, tokens: int, at: float) -> None:
        handle.computed += tokens
        if handle.computed == handle.request.prompt_tokens + handle.emitted:
            handle.emitted += 1
            handle.since = 0
            if handle.emitted == 1:
                handle.first_token_at = at
            if handle.emitted == handle.request.output_tokens:
                handle.state, handle.finished_at = State.FINISHED, at
                self.running.remove(handle)
                self._release(handle)

    def _start(self, at: float, arrived_by: float) -> None:
        if self.ends_at is not None:
            return
        self.work = []
        arrived_by = arrived_by if self.running else at
        budget, preempted, index = self.config.max_batched_tokens, False, 0
        while index < len(self.running) and budget:
            handle = self.running[index]
            tokens = min(budget, handle.request.prompt_tokens + handle.emitted - handle.computed)
            if self._grow(handle, tokens):
                self.work.append((handle, tokens))
                budget -= tokens
                index += 1
            else:
                preempted = True
                self._preempt(self.running.pop())
        while self.waiting and budget and not preempted and len(self.running) < self.config.max_num_seqs:
            handle, block = self.waiting[0], self.config.block_tokens
            if handle.arrived_at > arrived_by:
                break
            total = handle.request.prompt_tokens + handle.emitted
            matched = self.cache.match(handle.request.chain, (total - 1) // block)
            if not self.cache.admit(handle.request.chain, matched, -(-total // block) - matched):
                break
            self.running.append(self.waiting.pop(0))
            handle.state, handle.named, handle.computed = State.RUNNING, matched, matched * block
            if handle.scheduled_at is None:
                handle.scheduled_at, handle.cached_tokens = at, handle.computed
            tokens = min(total - handle.computed, budget)
            assert self._grow(handle, tokens)
            self.work.append((handle, tokens))
            budget -= tokens
        if self.work:
            self._time(at)

    def _time(self, at: float) -> None:
        prefills = [(h, n) for h, n in self.work if h.since is None]
        tokens = sum(n for _, n in prefills)
        read = sum(h.computed for h, _ in self.work if h.since is not None)
        attention = sum(pairs(h.computed, n) for h, n in prefills)
        seconds = self.config.timing.step(len(self.work), read, tokens, attention) * self.slowdown
        self.steps.append((seconds, tokens, len(self.work) - len(prefills)))
        self.starts_at, self.ends_at = at, at + seconds

    def _grow(self, handle: Handle, tokens: int) -> bool:
        total = handle.computed + tokens
        lacking = -(-total // self.config.block_tokens) - handle.named - handle.unnamed
        if lacking > 0:
            if not self.cache.take(lacking):
                return False
            handle.unnamed += lacking
            self._name(handle, total)
        return True

    def _name(self, handle: Handle, tokens: int) -> None:
        while handle.named < min(tokens // self.config.block_tokens, len(handle.request.chain)):
            self.cache.name(handle.request.chain[handle.named])
            handle.named += 1
            handle.unnamed -= 1

    def _release(self, handle: Handle) -> None:
        self._name(handle, handle.computed)
        self.cache.release(handle.request.chain[: handle.named], handle.unnamed)
        handle.named = handle.unnamed = handle.computed = 0
        handle.since = None

    def _preempt(self, handle: Handle) -> None:
        self._release(handle)
        handle.state = State.WAITING
        handle.preemptions += 1
        self.waiting.insert(0, handle)
