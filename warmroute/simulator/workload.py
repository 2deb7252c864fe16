"""A seeded workload: tenants with shared system prompts, growing conversations, open-loop arrivals.

Pure: the same settings give the same bytes in every run and on every host. Earlier answers in a
conversation are synthetic and not taken from any response, so that two systems under comparison
receive the same requests whatever they answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTES_PER_TOKEN: Final = 4
"""English text in the byte-pair vocabularies of current models: about four bytes a token."""

_TEXT: Final = (
    "able about account after again agent allow answer apply april archive argue array aside assign audit "
    "away base batch before below between bill block book both branch brief bring budget build button cache "
    "call carry case change charge check city claim class clear client close cloud code column come commit "
    "common copy cost count course cover create credit customer daily data date deal debt default delay "
    "deliver deny depend detail device direct document done draft each early edit email empty enter entry "
    "error event every exact example expect export extra fact fail false field figure file final first flag "
    "follow form found frame free from full future gain give good grant group guide half hand header help "
    "high history hold host hour house idea image index inform input invoice issue item join keep label "
    "large last late lead learn legal less letter level limit line link list local long lower mail main "
    "major make manual many mark market match measure member memory merge message method minor minute "
    "model month more most move name near need never next note number offer office once only open option "
    "order other over owner page paid part pass past path payment people period person phone place plan "
    "point policy prefer price print prior process product prompt proof public question queue quick quote "
    "range rate reach read reason record refund region reject relate remain remove reply report request "
    "reset result return review right role route rule safe sales same save scale scope score search second "
    "section select send serve session share ship short show side sign simple since single size small some "
    "sort source space speak staff stage start state status step still stock stop store style sum summary "
    "supply support table take task team tell term test text than thank their then these thing think ticket "
    "time title today tool topic total track trade train true trust turn type under unit until update use "
    "user valid value verify version view visit voice wait want week well what when where which while whole "
    "with word work write year zone"
)
_WORDS: Final = tuple(_TEXT.split(" "))


class Message(msgspec.Struct, frozen=True):
    """One chat message in OpenAI's form."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Span:
    """A range that a whole number is drawn from, evenly, both ends included."""

    low: int
    high: int

    def draw(self, random: Random) -> int:
        """Draw one number."""
        return random.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """What the workload is made of. Lengths are in tokens of `BYTES_PER_TOKEN` bytes."""

    seed: int = 7
    duration_seconds: float = 20.0
    rate_per_second: float = 20.0
    """Turns that arrive in a second, in the mean."""
    tenants: int = 16
    tenant_skew: float = 0.5
    """Exponent of Zipf's law over the tenants; 0 makes them equally busy."""
    system_prompt_tokens: Span = Span(2500, 4500)
    user_tokens: Span = Span(20, 120)
    answer_tokens: Span = Span(40, 120)
    """Length of the synthetic answers that later turns carry as history."""
    turns: Span = Span(2, 8)
    think_seconds: float = 4.0
    """Mean time from one turn of a conversation to the next, exponential."""
    max_tokens: Span = Span(16, 64)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: its session, its prompt, its time."""

    at_seconds: float
    """From the start of the run."""
    tenant: int
    session: str
    messages: tuple[Message, ...]
    max_tokens: int

    def body(self, model: str) -> bytes:
        """Return the JSON body of a streaming chat request that asks for usage."""
        return msgspec.json.encode(
            {
                "model": model,
                "stream": True,
                "stream_options": {"include_usage": True},
                "max_tokens": self.max_tokens,
                "messages": self.messages,
            }
        )


def workload(settings: WorkloadSettings) -> tuple[Turn, ...]:
    """Return every turn of the run in the order of arrival.

    Conversations begin by a Poisson process whose rate makes turns arrive at `rate_per_second`. Those
    that began before the run enter it with the history they have by then, so that the rate is level from
    the first second on and early requests look like later ones.
    """
    random = Random(f"{settings.seed}/arrivals")
    prompts = _system_prompts(settings)
    popularity = list(accumulate((rank + 1) ** -settings.tenant_skew for rank in range(settings.tenants)))
    mean_turns = (settings.turns.low + settings.turns.high) / 2
    began = -settings.turns.high * settings.think_seconds * 2
    turns: list[Turn] = []
    number = 0
    while True:
        began += random.expovariate(settings.rate_per_second / mean_turns)
        if began >= settings.duration_seconds:
            break
        tenant = random.choices(range(settings.tenants), cum_weights=popularity)[0]
        turns.extend(_conversation(settings, f"s{number}", began, tenant, prompts[tenant]))
        number += 1
    return tuple(sorted(turns, key=lambda turn: (turn.at_seconds, turn.session)))


def _conversation(
    settings: WorkloadSettings, session: str, began: float, tenant: int, system_prompt: str
) -> Iterator[Turn]:
    """Yield the turns of one conversation that fall into the run."""
    random = Random(f"{settings.seed}/{session}")
    history = [Message("system", system_prompt)]
    at = began
    for _ in range(settings.turns.draw(random)):
        history.append(Message("user", words(random, settings.user_tokens.draw(random))))
        max_tokens = settings.max_tokens.draw(random)
        if 0 <= at < settings.duration_seconds:
            yield Turn(at, tenant, session, tuple(history), max_tokens)
        history.append(Message("assistant", words(random, settings.answer_tokens.draw(random))))
        at += random.expovariate(1 / settings.think_seconds)


def _system_prompts(settings: WorkloadSettings) -> list[str]:
    prompts = []
    for tenant in range(settings.tenants):
        random = Random(f"{settings.seed}/tenant/{tenant}")
        length = settings.system_prompt_tokens.draw(random)
        prompts.append(words(random, length))
    return prompts


def words(random: Random, tokens: int) -> str:
    """Return words of exactly `tokens * BYTES_PER_TOKEN` bytes."""
    size = tokens * BYTES_PER_TOKEN
    shortest = min(map(len, _WORDS)) + 1
    words = random.choices(_WORDS, k=math.ceil(size / shortest))
    return " ".join(words)[:size]
