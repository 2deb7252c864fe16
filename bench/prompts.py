"""Three workloads of real prompts and lengths: conversations, one shared system prompt, nothing in common.

`data/affinity/NOTICE` says where they come from. Seeded and pure: the same settings give the same bytes.
"""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

from warmroute.simulator.tokens import BYTES_PER_TOKEN, block_chain, count_tokens, render_chat
from warmroute.simulator.workload import Message, Span, Turn, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

WorkloadName = Literal["multi_turn", "shared_system_prompt", "no_reuse"]
WORKLOADS: Final[tuple[WorkloadName, ...]] = ("multi_turn", "shared_system_prompt", "no_reuse")

_DATA: Final = Path(__file__).parent / "data" / "affinity"
_THINK_SECONDS: Final = 1.5
"""Mean time between two turns, beyond the least: an agent's tool calls, hurried."""
_LEAST_THINK_SECONDS: Final = 0.5
_MOST_ANSWER_TOKENS: Final = 256
_QUESTION_TOKENS: Final = Span(20, 120)
_ANSWER_TOKENS: Final = Span(64, 192)


@dataclass(frozen=True, slots=True)
class Ideal:
    """Cache hits of one engine with an endless cache that serves one request after the other."""

    prompt_tokens: int
    cached_tokens: int

    @property
    def hit_ratio(self) -> float:
        """Of all prompt tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def prompts(name: WorkloadName, *, seed: int, seconds: float, rate: float) -> tuple[Turn, ...]:
    """Return every request of a run, `rate` a second in the mean, in the order of arrival."""
    random = Random(f"{seed}/{name}")
    make = {"multi_turn": _multi_turn, "shared_system_prompt": _shared, "no_reuse": _no_reuse}[name]
    return tuple(sorted(make(random, seconds, rate), key=lambda turn: (turn.at_seconds, turn.session)))


def ideal(turns: Iterable[Turn], block_tokens: int) -> Ideal:
    """Count which leading blocks of each prompt stood in one before it."""
    computed: set[int] = set()
    prompt_tokens = cached_tokens = 0
    for turn in turns:
        text = render_chat((message.role, message.content) for message in turn.messages)
        tokens = count_tokens(text)
        chain = block_chain(text, block_tokens)
        cached = sum(1 for _ in itertools.takewhile(computed.__contains__, chain))
        prompt_tokens += tokens
        # An engine computes at least a prompt's last token.
        cached_tokens += min(cached, (tokens - 1) // block_tokens) * block_tokens
        computed.update(chain)
    return Ideal(prompt_tokens, cached_tokens)


def _multi_turn(random: Random, seconds: float, rate: float) -> Iterator[Turn]:
    """Agent sessions, each a conversation of its own; those that began before the run are in its middle."""
    sessions = _sessions()
    mean_turns = sum(map(len, sessions)) / len(sessions)
    longest = max(map(len, sessions)) * (_LEAST_THINK_SECONDS + _THINK_SECONDS)
    for number, began in enumerate(_arrivals(random, -longest, seconds, rate / mean_turns)):
        at, session = began, random.choice(sessions)
        for text, answer_tokens in session:
            if 0 <= at < seconds:
                # Its first line distinguishes this user's conversation from others about the same task.
                content = f"Ticket {number:05d}.\n{text}"
                yield Turn(at, number, f"s{number}", (Message("user", content),), answer_tokens)
            at += _LEAST_THINK_SECONDS + random.expovariate(1 / _THINK_SECONDS)


def _shared(random: Random, seconds: float, rate: float) -> Iterator[Turn]:
    """One long system prompt, before a question of its own in each request."""
    system = Message("system", (_DATA / "system_prompt.txt").read_text(encoding="utf-8"))
    for number, at in enumerate(_arrivals(random, 0.0, seconds, rate)):
        question = Message("user", words(random, _QUESTION_TOKENS.draw(random)))
        yield Turn(at, 0, f"s{number}", (system, question), _ANSWER_TOKENS.draw(random))


def _no_reuse(random: Random, seconds: float, rate: float) -> Iterator[Turn]:
    """Real lengths, every text different from its beginning."""
    lengths = itertools.cycle(_lengths())
    for number, at in enumerate(_arrivals(random, 0.0, seconds, rate)):
        tokens, answer_tokens = next(lengths)
        text = f"{number:06d} {words(random, tokens)}"[: tokens * BYTES_PER_TOKEN]
        yield Turn(at, number, f"s{number}", (Message("user", text),), answer_tokens)


def _arrivals(random: Random, begin: float, end: float, rate: float) -> Iterator[float]:
    at = begin
    while (at := at + random.expovariate(rate)) < end:
        yield at


@cache
def _sessions() -> tuple[Sequence[tuple[str, int]], ...]:
    """By session: prompt and length of the answer in tokens, by turn."""
    sessions = []
    for line in (_DATA / "agent_sessions.jsonl").read_text(encoding="utf-8").splitlines():
        text, turns = "", []
        entry: dict[str, Any] = json.loads(line)
        for turn in entry["turns"]:
            text = text[: turn["kept"]] + turn["text"]
            turns.append((text, min(turn["answer_tokens"], _MOST_ANSWER_TOKENS)))
        sessions.append(tuple(turns))
    return tuple(sessions)


@cache
def _lengths() -> tuple[tuple[int, int], ...]:
    with (_DATA / "conversation_lengths.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            (max(2, int(row["context_tokens"])), min(int(row["generated_tokens"]), _MOST_ANSWER_TOKENS))
            for row in csv.DictReader(file)
        )
