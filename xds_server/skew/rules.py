"""The decision table of the diagnosis, as data: the first rule whose tests all hold names the cause.

`docs/skew.md` holds the same table; a test keeps the two equal. The order is by how much a cause explains:
broken before slow, and slow before full. The thresholds of memory (0.85 and 0.92, the silent zone) are those
of the documents; the others are set by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.skew.layout import BoolArray, FloatArray

_COMPARE: Final = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
UNKNOWN: Final = "unknown"
ALWAYS_SHOWN: Final = (
    "generation_tokens_per_second",
    "prefix_hit_ratio",
    "kv_fragmentation_ratio",
    "kv_fragmentation_estimate",
    "memory_used_ratio",
)
"""Evidence of every cause, where known: throughput, hits in the cache, and how well memory is filled."""


class Condition(NamedTuple):
    """One condition on one fact."""

    fact: str
    is_: Literal["<", "<=", ">", ">="]
    bound: float

    def holds(self, facts: Mapping[str, FloatArray]) -> BoolArray:
        """Return where it holds; it does not for unknown facts."""
        result: BoolArray = _COMPARE[self.is_](facts[self.fact], self.bound)
        return result

    def __str__(self) -> str:
        return f"{self.fact} {self.is_} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    cause: str
    tests: tuple[Condition, ...]
    """All must hold."""
    also: tuple[str, ...]
    """Further facts in the evidence."""
    advice: str
    healthy: bool = False

    @property
    def condition(self) -> str:
        """The tests as people read them."""
        return " and ".join(map(str, self.tests)) or "none of the above"

    @property
    def evidence(self) -> tuple[str, ...]:
        """The facts of the evidence, those of the tests first."""
        return tuple(dict.fromkeys((*(test.fact for test in self.tests), *self.also, *ALWAYS_SHOWN)))


_MEMORY, _QUEUE, _FILL = "memory_used_ratio", "queue_depth", "batch_fill_ratio"
_FULL_BATCH: Final = (Condition(_QUEUE, ">=", 1), Condition(_FILL, ">=", 0.9))

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "down",
        (Condition("reachable", "<=", 0),),
        ("error_ratio", "in_flight"),
        "The engine's port refuses or gives no connection: look at its process, its log and the network.",
    ),
    Rule(
        "not_ready",
        (Condition("ready", "<=", 0),),
        ("reachable", "error_ratio"),
        "Its probe has not passed since it restarted or failed: it may be loading its model; see its log.",
    ),
    Rule(
        "stalled",
        (Condition("stalled", ">=", 1),),
        ("in_flight", "running", _QUEUE),
        "Requests hang in it while its health check may answer: restart the engine.",
    ),
    Rule(
        "gpu_fault",
        (Condition("gpu_health_score", "<=", 0.4),),
        ("error_ratio",),
        "A GPU reports a fault: see its class in the faults table, and drain or reset the GPU.",
    ),
    Rule(
        "failing",
        (Condition("error_ratio", ">=", 0.1),),
        ("running", "in_flight"),
        "It answers with 5xx or breaks connections: read the engine's log.",
    ),
    Rule(
        "throttled",
        (Condition("gpu_throttled_ratio", ">", 0),),
        ("token_rate_over_peers",),
        "Hardware holds the GPU's clocks down: look at cooling and power.",
    ),
    Rule("idle", (Condition("work", "<=", 0),), (), "Nothing to do.", healthy=True),
    Rule(
        "cache_thrash",
        (
            Condition(_MEMORY, ">=", 0.9),
            Condition("preemptions_per_second", ">=", 0.1),
            Condition("prefix_hit_ratio", "<=", 0.3),
        ),
        ("running", _QUEUE),
        "More contexts than the KV cache holds push each other out: lower the batch limit or add endpoints.",
    ),
    Rule(
        "fragmented",
        (Condition(_MEMORY, ">=", 0.85), Condition("kv_fragmentation_ratio", ">=", 0.3)),
        ("running", _QUEUE),
        "The KV cache is full of room that holds no token: use smaller blocks, or restart the engine.",
    ),
    Rule(
        "fragmented",
        (
            Condition(_MEMORY, ">=", 0.85),
            Condition("kv_fragmentation_estimate", ">=", 0.5),
            Condition(_QUEUE, ">=", 1),
        ),
        ("running", "prompt_tokens_mean"),
        "By estimate the KV cache holds few tokens for its room: use smaller blocks, or restart the engine.",
    ),
    Rule(
        "hot_spot",
        (Condition("work_over_peers", ">=", 2), Condition(_QUEUE, ">=", 1)),
        ("work", "running"),
        "It has far more to do than its peers: look for one session or prefix that is everybody's.",
    ),
    Rule(
        "batch_collapse",
        (Condition("batch_collapse", ">=", 1),),
        ("running", "waiting", _FILL),
        "Small batches while requests wait: look for a low batch limit or a limit on batched tokens.",
    ),
    Rule(
        "slow",
        (
            Condition("token_rate_over_peers", "<=", 0.5),
            Condition("throughput_over_peers", "<=", 0.5),
            Condition("running", ">=", 1),
        ),
        (),
        "It generates half of what its peers do, in all and for each request: look at its GPU.",
    ),
    Rule(
        "affinity_lost",
        (Condition("prefix_hit_fall", ">=", 0.2), Condition(_MEMORY, "<", 0.85)),
        ("work",),
        "Fewer prompts find their prefix though memory is free: look for a restart or for changed picks.",
    ),
    Rule(
        "prefill_bound",
        (Condition("context_burst", ">=", 1),),
        ("prompt_tokens_mean", "prompt_tokens_per_second", _QUEUE),
        "Long contexts have begun to come: warm shared prefixes up, or give long prompts a pool.",
    ),
    Rule(
        "prefill_bound",
        (Condition(_QUEUE, ">=", 1), Condition("prefill_per_generated", ">=", 10)),
        ("prompt_tokens_mean", "prompt_tokens_per_second"),
        "Prompts take the time: raise hits in the cache, or use chunked or separate prefill.",
    ),
    Rule(
        "memory_full",
        (Condition(_MEMORY, ">=", 0.92),),
        ("preemptions_per_second", "running", _QUEUE),
        "The KV cache is about to run out: add endpoints or shorten contexts.",
    ),
    Rule(
        "decode_bound",
        (*_FULL_BATCH, Condition("prefill_per_generated", "<", 10)),
        ("running",),
        "The batch is full of requests that generate: raise the batch limit or add endpoints.",
    ),
    Rule("saturated", _FULL_BATCH, ("running",), "The batch is full and requests wait: add endpoints."),
    Rule(
        "saturated",
        (Condition(_QUEUE, ">=", 1), Condition(_MEMORY, ">=", 0.85)),
        ("running",),
        "Requests wait for memory: add endpoints.",
    ),
    Rule(
        "saturated",
        (Condition(_QUEUE, ">=", 1), Condition("queue_over_running", ">=", 0.5)),
        ("running",),
        "Half as many wait as are computed: add endpoints.",
    ),
    Rule(
        "long_tail",
        (Condition("long_tail", ">=", 1),),
        ("latency_p50_seconds", "latency_p99_seconds"),
        "A few requests take far longer than most: compare their spans with others.",
    ),
    Rule(
        "healthy",
        (Condition("running", ">=", 0), Condition(_QUEUE, ">=", 0), Condition(_MEMORY, ">=", 0)),
        (),
        "Nothing to mend.",
        healthy=True,
    ),
    Rule(UNKNOWN, (), (), "Signals are missing: see that the engine's metrics page is read."),
)
