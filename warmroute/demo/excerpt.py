"""The demo's workload: conversations of a real trace. `data/NOTICE` states where they come from.

Prompts, answers and KV cache are a quarter of the trace's, so that two cores can carry the bytes. Which
requests share how much of their prompts stays as it is.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from warmroute.replay.trace import MOONCAKE_STEP_SECONDS, Trace, block_texts, read_trace
from warmroute.simulator.tokens import BYTES_PER_TOKEN
from warmroute.simulator.workload import Message, Turn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warmroute.replay.trace import TraceRequest

SHORTER: Final = 4
"""Lengths of the trace over those of the demo."""
_TRACE_SECONDS: Final = 900.0


@cache
def _trace() -> Trace:
    trace = read_trace(Path(__file__).parent / "data" / "conversation_excerpt.jsonl")
    return trace._replace(
        block_tokens=trace.block_tokens // SHORTER, requests=tuple(map(_shorter, trace.requests))
    )


def _shorter(request: TraceRequest) -> TraceRequest:
    return request._replace(
        prompt_tokens=max(1, request.prompt_tokens // SHORTER),
        output_tokens=max(1, request.output_tokens // SHORTER),
    )


def excerpt(rate: float, seconds: float, seed: int) -> Trace:
    """Return `seconds` of it at `rate` requests a second; a long run repeats it with other prompts.

    The trace rounds its times to three seconds: `seed` draws a moment within them.
    """
    trace = _trace()
    laps = math.ceil(rate * seconds / len(trace.requests))
    lapped = trace._replace(requests=tuple(_laps(trace, laps)))
    faster = lapped.at_rate(rate * _TRACE_SECONDS / len(trace.requests), seed, MOONCAKE_STEP_SECONDS)
    return faster._replace(requests=tuple(one for one in faster.requests if one.at < seconds))


def _laps(trace: Trace, count: int) -> Iterable[TraceRequest]:
    for lap in range(count):
        for request in trace.requests:
            yield request._replace(
                at=request.at + lap * _TRACE_SECONDS,
                blocks=tuple(block ^ (lap << 48) for block in request.blocks),
            )


def turns(trace: Trace) -> tuple[Turn, ...]:
    """Return the requests with text: equal blocks have equal text, the rest of a prompt is its own."""
    texts: dict[int, str] = {}
    result = []
    for number, request in enumerate(trace.requests):
        text = "".join(block_texts(request.blocks, trace.block_tokens, texts))
        rest = request.prompt_tokens * BYTES_PER_TOKEN - len(text)
        text += (f"{number:07x}-" * (rest // 8 + 1))[:rest]
        result.append(Turn(request.at, 0, f"r{number}", (Message("user", text),), request.output_tokens))
    return tuple(result)
