"""Generated traces: tenants, conversations, unrelated and very long prompts, in bursts or not.

A trace is drawn from a `Mix`. `TENANTS` is one by hand; `drawn(number)` draws one at random, for a
check on workloads that nobody chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import exp, log
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from warmroute.replay.trace import Trace, TraceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_TOKENS: Final = 64
MOST_PROMPT_TOKENS: Final = 110_000
MOST_OUTPUT_TOKENS: Final = 4_000
REQUESTS_PER_SECOND: Final = 10.0
"""At rate 1, about: turns that wait for answers come when they can."""
_LONG_TOKENS: Final = (30_000, 100_000)


class Lengths(NamedTuple):
    """A distribution of lengths in tokens: log-normal, or Pareto with the same median."""

    median: float
    spread: float
    """Sigma of the log-normal; 1 / alpha of the Pareto."""
    pareto: bool = False

    def draw(self, random: Random, most: int) -> int:
        """Draw a length of 1 to `most`."""
        length: float
        if self.pareto:
            length = self.median * 0.5**self.spread * random.paretovariate(1 / self.spread)
        else:
            length = random.lognormvariate(log(self.median), self.spread)
        return max(1, round(min(most, length)))


@dataclass(frozen=True, slots=True)
class Mix:
    """What a generated trace is made of. Shares are of the sessions; a session has one turn or more."""

    prompt: Lengths
    """What a turn adds."""
    output: Lengths
    system: Lengths
    """A tenant's system prompt."""
    tenants: int
    zipf: float
    """Exponent of the tenants' popularity; 0: all alike."""
    tenant_share: float
    """Sessions that begin with a tenant's system prompt; the others share nothing."""
    long_share: float
    """Sessions with a first prompt of 30,000 to 100,000 tokens more, log-uniform."""
    turns_share: float
    """Sessions with several turns; each turn waits for the answer to the one before."""
    turns: float
    """Their mean number, geometric, 2 at least."""
    think_seconds: float
    """Mean from an answer to the next turn, exponential, at rate 1."""
    on_share: float = 1.0
    """Of the time: the share of bursts, in which sessions begin at a higher rate."""
    on_ratio: float = 1.0
    """Their rate in bursts over the rate between bursts."""
    on_seconds: float = 10.0
    """Mean length of a burst, exponential, at rate 1."""
    replicas: int = 8


TENANTS: Final = Mix(
    prompt=Lengths(300, 1.1),
    output=Lengths(120, 0.9),
    system=Lengths(2_000, 0.7),
    tenants=200,
    zipf=0.9,
    tenant_share=0.4,
    long_share=0.02,
    turns_share=0.2,
    turns=4.0,
    think_seconds=10.0,
)
"""Many tenants and many unrelated, mostly short prompts, few very long ones."""


def drawn(number: int) -> Mix:
    """Draw the mix with this number: each constant independently, uniform or log-uniform in its range."""
    random = Random(f"mix/{number}")

    def log_uniform(low: float, high: float) -> float:
        return exp(random.uniform(log(low), log(high)))

    def lengths(low: float, high: float) -> Lengths:
        pareto = random.random() < 0.5
        spread = random.uniform(0.4, 0.8) if pareto else random.uniform(0.5, 1.5)
        return Lengths(log_uniform(low, high), spread, pareto)

    return Mix(
        prompt=lengths(100, 4_000),
        output=lengths(30, 400),
        system=lengths(200, 8_000),
        tenants=round(log_uniform(1, 200)),
        zipf=random.uniform(0.0, 1.5),
        tenant_share=random.random(),
        long_share=random.choice((0.0, log_uniform(0.002, 0.03))),
        turns_share=random.random(),
        turns=random.uniform(2.5, 10.0),
        think_seconds=log_uniform(2, 60),
        on_share=random.uniform(0.2, 1.0),
        on_ratio=random.uniform(1.0, 5.0),
        on_seconds=log_uniform(3, 60),
        replicas=random.choice((4, 8, 16)),
    )


def generate(mix: Mix, requests: int, seed: str) -> Trace:
    """Draw a trace of at least `requests` requests, by whole sessions."""
    random = Random(seed)
    sessions = _Sessions(mix, random)
    turns = 1 + mix.turns_share * (mix.turns - 1)
    begins = _begins(mix, REQUESTS_PER_SECOND / turns, random)
    while len(sessions.requests) < requests:
        sessions.add(next(begins))
    return Trace(seed, BLOCK_TOKENS, tuple(sessions.requests)).at_rate(1.0, 0)


def _begins(mix: Mix, rate: float, random: Random) -> Iterator[float]:
    """Yield when sessions begin: a Poisson process with two rates, `rate` in the mean."""
    off_rate = rate / (mix.on_share * mix.on_ratio + 1 - mix.on_share)
    off_seconds = mix.on_seconds * (1 - mix.on_share) / mix.on_share
    at, bursts = 0.0, True
    while True:
        mean = mix.on_seconds if bursts else off_seconds
        end = at + (random.expovariate(1 / mean) if mean else 0.0)
        while (at := at + random.expovariate(off_rate * (mix.on_ratio if bursts else 1.0))) < end:
            yield at
        # A Poisson process has no memory: what would come after the end is drawn again.
        at, bursts = end, not bursts


class _Sessions:
    """The sessions drawn so far."""

    def __init__(self, mix: Mix, random: Random) -> None:
        self.requests: list[TraceRequest] = []
        self._mix = mix
        self._random = random
        self._blocks = 0
        self._count = 0
        most = MOST_PROMPT_TOKENS // 4
        self._systems = [
            (tokens, self._new_blocks(tokens // BLOCK_TOKENS))
            for tokens in (mix.system.draw(random, most) for _ in range(mix.tenants))
        ]
        self._popularity = list(accumulate((rank + 1) ** -mix.zipf for rank in range(mix.tenants)))

    def add(self, at: float) -> None:
        """Draw a session that begins at `at`."""
        mix, random = self._mix, self._random
        tokens, blocks = 0, tuple[int, ...]()
        if random.random() < mix.tenant_share:
            tokens, blocks = random.choices(self._systems, cum_weights=self._popularity)[0]
        if random.random() < mix.long_share:
            low, high = _LONG_TOKENS
            tokens += round(exp(random.uniform(log(low), log(high))))
        after, gap, session = -1, 0.0, f"s{self._count}"
        self._count += 1
        while True:
            tokens += mix.prompt.draw(random, MOST_PROMPT_TOKENS)
            if tokens > MOST_PROMPT_TOKENS:
                if after >= 0:
                    return
                tokens = MOST_PROMPT_TOKENS
            blocks += self._new_blocks(tokens // BLOCK_TOKENS - len(blocks))
            output = mix.output.draw(random, MOST_OUTPUT_TOKENS)
            self.requests.append(
                TraceRequest(at, tokens, output, blocks, session=session, after=after, gap=gap)
            )
            if after < 0 and random.random() >= mix.turns_share:
                return
            if after >= 0 and random.random() < 1 / (mix.turns - 1):
                return
            after, gap = len(self.requests) - 1, random.expovariate(1 / mix.think_seconds)
            tokens, at = tokens + output, at + gap

    def _new_blocks(self, count: int) -> tuple[int, ...]:
        self._blocks += count
        return tuple(range(self._blocks - count + 1, self._blocks + 1))
