"""The engine model: continuous batching with chunked prefill over a prefix cache, in any time.

Pure: time comes in as an argument, in seconds on the caller's clock, and never goes back. The same calls
give the same results. The scheduler follows vLLM's: running requests first, then the waiting ones in order of
arrival; one token budget a step for prefill chunks and decodes; when blocks run out the youngest running
request is preempted and computed again later. A request is admitted once its whole prompt could have blocks.
docs/engine-model.md compares it with vLLM, rule by rule, and with measured times.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush, heapreplace
from math import sqrt
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from fleet.errors import WarmrouteError
from warmroute.simulator.cache import BlockCache
from warmroute.simulator.fits import Timing, pairs, timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

OUT_OF_MEMORY_RATIO: Final = 0.97
"""What the use of the cache reads at least while allocations fail."""


class RequestTooLongError(WarmrouteError):
    """Prompt and output together exceed the engine's KV cache."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What one engine replica is."""

    timing: Timing = field(default_factory=timing)
    num_blocks: int = 43_750
    """KV blocks: 0.7 million tokens, an H100 TP4 replica of a 70B model with FP8 weights."""
    block_tokens: int = 16
    max_num_seqs: int = 1024
    """Requests in a batch. This and the next are vLLM's defaults on GPUs with 70 GiB and more, A100 aside."""
    max_batched_tokens: int = 8192
    """Tokens of one step, prefill and decode together; at least `max_num_seqs`, as in vLLM."""
    max_model_tokens: int = 131_072
    """Prompt and output of one request."""
    async_scheduling: bool = True
    """Each step's batch is chosen while the step before it runs, so requests that come meanwhile wait for
    the step after."""
    jitter_ratio: float = 0.0
    """Each step takes up to this share more or less, drawn from `seed`."""
    seed: int = 0
    report_tokens: bool = True
    """Without it only first tokens and ends are reported: replays need no more."""

    def __post_init__(self) -> None:
        if self.max_batched_tokens < self.max_num_seqs:
            raise WarmrouteError(
                f"max_batched_tokens is {self.max_batched_tokens}; allowed: at least max_num_seqs, which is"
                f" {self.max_num_seqs}"
            )

    @property
    def limit_tokens(self) -> int:
        """Prompt and output of one request: never more than the cache holds."""
        return min(self.max_model_tokens, self.num_blocks * self.block_tokens)


@dataclass(frozen=True, slots=True)
class Request:
    """What the model needs to know of a request."""

    prompt_tokens: int
    output_tokens: int
    chain: Sequence[int] = ()
    """Chained hashes of its full blocks: the prompt's, then, if available, the output's."""


class State(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"


_OPEN: Final = (State.WAITING, State.RUNNING)


@dataclass(slots=True, eq=False)
class Handle:
    """A submitted request and its progress. Times are on the caller's clock; None: not yet."""

    request: Request
    arrived_at: float
    state: State = State.WAITING
    scheduled_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    cached_tokens: int = 0
    """Prompt tokens cached at the first admission."""
    emitted: int = 0
    preemptions: int = 0
    # The scheduler's own. While a request decodes, `computed` and `emitted` are of its last report or block.
    number: int = 0  # in order of admission
    since: int | None = None  # step of its first token, had it decoded without a break; None: it does not
    computed: int = 0
    named: int = 0  # of the chain's blocks, how many it uses
    unnamed: int = 0
    reported: int = 0


class EventKind(Enum):
    """What happened."""

    FIRST_TOKEN = "first_token"  # noqa: S105 - the word for a piece of text
    TOKENS = "tokens"
    FINISHED = "finished"


class Event(NamedTuple):
    """`tokens` are those not reported before: 1 with the first token, 0 with the end."""

    kind: EventKind
    handle: Handle
    at: float
    tokens: int


@dataclass(slots=True)
class Counters:
    """Sums since the start, in tokens unless the name says otherwise."""

    submitted_requests: int = 0
    finished_requests: int = 0
    aborted_requests: int = 0
    preempted_requests: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prompt: int = 0
    """Prompts with a first token."""
    prompt_cached: int = 0
    generated: int = 0


class Steps(NamedTuple):
    """Steps in a row with one batch."""

    number: int
    first_seconds: float
    more_seconds: float
    """By which each step is longer than the one before it."""
    prefill_tokens: int
    """Of each step."""
    decodes: int
    """Tokens that a step gives to decoding requests."""

    @property
    def seconds(self) -> float:
        """Of all steps together."""
        return self.number * (self.first_seconds + self.more_seconds * (self.number - 1) / 2)

    def within(self, seconds: float) -> int:
        """Return how many of them end within so long, one or more."""
        if self.seconds <= seconds:
            return self.number
        # The root of first * n + more * n * (n - 1) / 2 = seconds, in the form without cancellation.
        linear = self.first_seconds - self.more_seconds / 2
        root = sqrt(linear * linear + 2 * self.more_seconds * seconds)
        number = max(1, int(2 * seconds / (linear + root)))
        while number > 1 and self._replace(number=number).seconds > seconds:
            number -= 1
        return number


class _Step(NamedTuple):
    starts_at: float
    ends_at: float
    prefills: list[tuple[Handle, int]]
    slowdown: float
    sums: Steps


class Decodes:
    """The decoding requests, counted together.

    Each of them gets one token in every step, so a step changes sums and no request. Only two things happen
    to a single request: it needs another block, or it ends. The steps of both can be foreseen, and wait in
    heaps. Steps are numbered from 0; `step` is the one under way or the next.
    """

    def __init__(self, block_tokens: int) -> None:
        self.step = 0
        self.count = 0
        self.kv_tokens = 0
        """Tokens that these requests have in the KV cache."""
        self._block_tokens = block_tokens
        # A handle's entry is void once its `since` differs.
        self._ends: list[tuple[int, int, int, Handle]] = []
        self._growths: list[tuple[int, int, int, Handle]] = []

    def join(self, handle: Handle) -> None:
        """Let a request decode from the next step on."""
        since = handle.since = self.step - handle.emitted
        handle.computed = handle.request.prompt_tokens + handle.emitted - 1
        self.count += 1
        self.kv_tokens += handle.computed
        end = since + handle.request.output_tokens - 1
        heappush(self._ends, (end, handle.number, since, handle))
        growth = self.step + -handle.computed % self._block_tokens
        if growth <= end:
            heappush(self._growths, (growth, handle.number, since, handle))

    def leave(self, handle: Handle) -> None:
        """Count a request no longer."""
        self.settle(handle)
        handle.since = None
        self.count -= 1
        self.kv_tokens -= handle.computed

    def settle(self, handle: Handle) -> None:
        """Write to a request what it has by now."""
        assert handle.since is not None
        handle.emitted = self.step - handle.since
        handle.computed = handle.request.prompt_tokens + handle.emitted - 1

    def advance(self, steps: int) -> None:
        """End `steps` steps."""
        self.step += steps
        self.kv_tokens += steps * self.count

    def growing(self) -> Iterator[Handle]:
        """Yield those that need a block for this step, in order of admission."""
        growths = self._growths
        while growths and growths[0][0] <= self.step:
            step, number, since, handle = growths[0]
            if handle.since == since:
                heapreplace(growths, (step + self._block_tokens, number, since, handle))
                self.settle(handle)
                yield handle
            else:
                heappop(growths)

    def ended(self) -> Iterator[Handle]:
        """Yield those with all their tokens, in order of admission."""
        ends = self._ends
        while ends and ends[0][0] < self.step:
            _, _, since, handle = heappop(ends)
            if handle.since == since:
                yield handle

    def quiet_steps(self) -> int:
        """Return how many steps, the one under way included, change sums only."""
        until = self._next_end()
        if self._growths and self._growths[0][0] < until:
            until = self._growths[0][0]
        return until - self.step

    def steps_to_end(self) -> int:
        """Return after how many steps, the one under way included, the first of them has all its tokens."""
        return self._next_end() - self.step + 1

    def _next_end(self) -> int:
        ends = self._ends
        while ends[0][3].since != ends[0][2]:
            heappop(ends)
        return ends[0][0]


class EngineModel:
    """One engine replica. `on_steps` is called with the steps that have ended."""

    def __init__(self, config: EngineConfig, on_steps: Callable[[Steps], None] | None = None) -> None:
        self.config = config
        self.cache = BlockCache(config.num_blocks)
        self.counters = Counters()
        self.slowdown = 1.0
        """Factor on the duration of the steps that start from now on."""
        self._on_steps = on_steps
        self._random = Random(config.seed)
        self._waiting: deque[Handle] = deque()
        self._running: list[Handle] = []
        self._decodes = Decodes(config.block_tokens)
        self._admitted = 0
        self._blocked = False
        """Whether the queue's head stays there until a request leaves or a block gets a name."""
        self._step: _Step | None = None
        self._last_end_at = 0.0
        self._frozen_until = 0.0
        self._events: list[Event] = []

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def kv_used_ratio(self) -> float:
        """Share of blocks in use by running requests, 0 to 1: warm idle blocks read as room."""
        ratio = self.cache.used / self.config.num_blocks
        return max(ratio, OUT_OF_MEMORY_RATIO) if self.cache.failing else ratio

    def prefill_left(self) -> Iterator[tuple[int, int]]:
        """Yield, for each prompt that is not computed yet, its tokens computed and left."""
        started = () if self._step is None else (handle for handle, _ in self._step.prefills)
        for handle in (*started, *self._waiting):
            left = handle.request.prompt_tokens - handle.computed
            if handle.first_token_at is None and handle.state in _OPEN and left > 0:
                yield handle.computed, left

    def submit(self, request: Request, now: float) -> Handle:
        """Queue a request; RequestTooLongError if it could never run, ValueError if it has no tokens."""
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError("a request has at least one prompt token and one output token")
        total = request.prompt_tokens + request.output_tokens
        if total > self.config.limit_tokens:
            raise RequestTooLongError(f"{total} tokens; the engine takes {self.config.limit_tokens}")
        self._run_until(now)
        handle = Handle(request, arrived_at=now)
        self.counters.submitted_requests += 1
        self._waiting.append(handle)
        self._start_step(now, now)
        return handle

    def abort(self, handle: Handle, now: float) -> None:
        """End a request early and free its blocks. Does nothing to one that has ended."""
        self._run_until(now)
        if handle.state is State.WAITING:
            self._waiting.remove(handle)
        elif handle.state is State.RUNNING:
            self._running.remove(handle)
            self._release(handle)
        else:
            return
        self._blocked = False
        handle.state = State.ABORTED
        handle.finished_at = now
        self.counters.aborted_requests += 1
        self._start_step(now, now)

    def next_event_at(self) -> float | None:
        """When the step under way ends; None when nothing is under way."""
        return None if self._step is None else self._step.ends_at

    def next_milestone_at(self) -> float | None:
        """Time of the next first token or end at the current step times; before it only more tokens come."""
        step = self._step
        if step is None or not self._settled(step):
            return self.next_event_at()
        count, decodes = self._decodes.steps_to_end(), self._decodes.count
        if self.cache.room < decodes * (count // self.config.block_tokens + 1):
            # A preemption may come first; it makes steps shorter.
            count = max(1, min(count, self._decodes.quiet_steps()))
        return step.starts_at + step.sums._replace(number=count).seconds

    def advance(self, now: float) -> list[Event]:
        """Run up to `now` and return the events since the last call, each with its own time."""
        self._run_until(now)
        if self.config.report_tokens:
            for handle in self._running:
                if handle.since is not None:
                    self._decodes.settle(handle)
                    self._report(handle, self._last_end_at)
        events, self._events = self._events, []
        return events

    def set_failing(self, *, failing: bool, now: float) -> None:
        """Let every allocation of blocks fail, or heal that."""
        self._run_until(now)
        self.cache.failing = failing
        self._blocked = False
        self._start_step(now, now)

    def freeze(self, now: float, until: float) -> None:
        """Make no progress in that time; the step under way goes on after it."""
        self._run_until(now)
        self._frozen_until = until
        if self._step is not None:
            step, later = self._step, until - now
            self._step = step._replace(starts_at=step.starts_at + later, ends_at=step.ends_at + later)

    def reset_cache(self, now: float) -> None:
        """Forget the warm blocks that no running request uses."""
        self._run_until(now)
        self.cache.drop_idle()
        self._blocked = False

    def _run_until(self, now: float) -> None:
        while self._step is not None and self._step.ends_at <= now:
            step = self._step
            if self._settled(step) and not self.config.jitter_ratio:
                step = self._longer(step, now)
            self._step = None
            self._finish_step(step)
            self._start_step(step.ends_at, step.starts_at if self.config.async_scheduling else step.ends_at)

    def _settled(self, step: _Step) -> bool:
        """Whether the steps after this one have the same work, until a decoding request needs something."""
        same = step.sums.decodes == self._decodes.count and step.slowdown == self.slowdown
        return same and not step.prefills and (self._blocked or not self._waiting)

    def _longer(self, step: _Step, now: float) -> _Step:
        """Return the step together with the quiet ones after it that end by `now`."""
        quiet = step.sums._replace(number=max(1, self._decodes.quiet_steps()))
        sums = quiet._replace(number=quiet.within(now - step.starts_at))
        return step._replace(ends_at=step.starts_at + sums.seconds, sums=sums)

    def _start_step(self, at: float, arrived_by: float) -> None:
        if self._step is not None or not (self._running or self._waiting):
            return
        at = max(at, self._frozen_until)
        if not self._running:
            arrived_by = at  # No batch is chosen ahead of an empty one.
        prefills: list[tuple[Handle, int]] = []
        budget = self._schedule_running(prefills)
        if budget > 0 and self._waiting and not self._blocked:
            self._schedule_waiting(prefills, budget, at, arrived_by)
        if prefills or self._decodes.count:
            self._step = self._timed(prefills, at)

    def _schedule_running(self, prefills: list[tuple[Handle, int]]) -> int:
        """Return the budget left, or -1 after a preemption: then no new request is admitted."""
        running, preempted = self._running, self.counters.preempted_requests
        for handle in self._decodes.growing():
            # The victim is the youngest, at last the handle itself; it has no work in this step yet.
            while handle.since is not None and not self._grow(handle, handle.computed + 1):
                self._preempt(running.pop())
        budget = self.config.max_batched_tokens - self._decodes.count
        # A prompt that is computed in part is the youngest: until it is complete it uses up the budget.
        if running and running[-1].since is None and budget > 0:
            handle = running[-1]
            tokens = min(handle.request.prompt_tokens + handle.emitted - handle.computed, budget)
            if self._grow(handle, handle.computed + tokens):
                prefills.append((handle, tokens))
                budget -= tokens
            else:
                self._preempt(running.pop())
        return budget if self.counters.preempted_requests == preempted else -1

    def _schedule_waiting(
        self, prefills: list[tuple[Handle, int]], budget: int, at: float, arrived_by: float
    ) -> None:
        config, cache = self.config, self.cache
        while self._waiting and budget > 0:
            handle = self._waiting[0]
            if handle.arrived_at > arrived_by:
                return
            request, total = handle.request, handle.request.prompt_tokens + handle.emitted
            # The last token is always computed: it yields the next one.
            matched = cache.match(request.chain, (total - 1) // config.block_tokens)
            reserve = -(-total // config.block_tokens) - matched
            full = len(self._running) == config.max_num_seqs
            if full or not cache.admit(request.chain, matched, reserve):
                self._blocked = True
                return
            self._waiting.popleft()
            self._running.append(handle)
            self._admitted += 1
            handle.number = self._admitted
            handle.state = State.RUNNING
            handle.named = matched
            handle.computed = matched * config.block_tokens
            if handle.scheduled_at is None:
                handle.scheduled_at = at
                handle.cached_tokens = handle.computed
                self.counters.prefix_queries += request.prompt_tokens
                self.counters.prefix_hits += handle.computed
            tokens = min(total - handle.computed, budget)
            if not self._grow(handle, handle.computed + tokens):
                raise AssertionError("admission reserved these blocks")
            prefills.append((handle, tokens))
            budget -= tokens

    def _grow(self, handle: Handle, tokens: int) -> bool:
        """Give the request blocks for `tokens` tokens in all, and name those that are full by then."""
        block_tokens = self.config.block_tokens
        lacking = -(-tokens // block_tokens) - handle.named - handle.unnamed
        if lacking <= 0:
            return True
        if not self.cache.take(lacking):
            return False
        handle.unnamed += lacking
        self._name_full(handle, tokens)
        return True

    def _name_full(self, handle: Handle, tokens: int) -> None:
        chain = handle.request.chain
        for index in range(handle.named, min(tokens // self.config.block_tokens, len(chain))):
            self.cache.name(chain[index])
            handle.named += 1
            handle.unnamed -= 1
            self._blocked = False

    def _release(self, handle: Handle) -> None:
        if handle.since is not None:
            self._decodes.leave(handle)
        self._name_full(handle, handle.computed)
        self.cache.release(handle.request.chain[: handle.named], handle.unnamed)
        handle.named = handle.unnamed = handle.computed = 0

    def _preempt(self, handle: Handle) -> None:
        self._release(handle)
        handle.state = State.WAITING
        handle.preemptions += 1
        self.counters.preempted_requests += 1
        self._blocked = False
        self._waiting.appendleft(handle)

    def _timed(self, prefills: list[tuple[Handle, int]], at: float) -> _Step:
        decodes, timing = self._decodes, self.config.timing
        tokens = sum(tokens for _, tokens in prefills)
        attention = sum(pairs(handle.computed, tokens) for handle, tokens in prefills)
        factor = slowdown = self.slowdown
        if self.config.jitter_ratio:
            factor *= 1 + self.config.jitter_ratio * self._random.uniform(-1, 1)
        seconds = timing.step(len(prefills) + decodes.count, decodes.kv_tokens, tokens, attention) * factor
        more_seconds = timing.kv_token_seconds * decodes.count * factor
        sums = Steps(1, seconds, more_seconds, tokens, decodes.count)
        return _Step(at, at + seconds, prefills, slowdown, sums)

    def _finish_step(self, step: _Step) -> None:
        at = self._last_end_at = step.ends_at
        decodes = self._decodes
        self.counters.generated += step.sums.number * decodes.count
        decodes.advance(step.sums.number)
        for handle in decodes.ended():
            self._finish(handle, at)
        for handle, tokens in step.prefills:
            if handle.state is not State.RUNNING:
                continue  # aborted meanwhile
            request = handle.request
            handle.computed += tokens
            if handle.computed < request.prompt_tokens + handle.emitted:
                continue
            handle.emitted += 1
            self.counters.generated += 1
            if handle.first_token_at is None:
                handle.first_token_at = at
                handle.reported = 1
                self.counters.prompt += request.prompt_tokens
                self.counters.prompt_cached += handle.cached_tokens
                self._events.append(Event(EventKind.FIRST_TOKEN, handle, at, 1))
            if handle.emitted == request.output_tokens:
                self._finish(handle, at)
            else:
                decodes.join(handle)
        if self._on_steps is not None:
            self._on_steps(step.sums)

    def _finish(self, handle: Handle, at: float) -> None:
        self._running.remove(handle)
        self._release(handle)
        self._blocked = False
        handle.state = State.FINISHED
        handle.finished_at = at
        self.counters.finished_requests += 1
        if self.config.report_tokens:
            self._report(handle, at)
        self._events.append(Event(EventKind.FINISHED, handle, at, 0))

    def _report(self, handle: Handle, at: float) -> None:
        fresh = handle.emitted - handle.reported
        if fresh:
            handle.reported = handle.emitted
            self._events.append(Event(EventKind.TOKENS, handle, at, fresh))
