"""Facts about the traffic that a configuration does not contain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_LONGEST_PROMPT_BYTES: Final = 4 * 1024 * 1024
"""About a million tokens of text, or a few images."""


@dataclass(frozen=True, slots=True)
class Context:
    """Traffic as the operator described it."""

    longest_prompt_bytes: int = DEFAULT_LONGEST_PROMPT_BYTES
    """The longest request body that must pass."""
    p99_seconds: float | None = None
    """P99 of a whole answer's time; None: taken from the proxy's own statistics, if present."""
    pools: frozenset[str] | None = None
    """The clusters of engines; None: every cluster that a route of requests leads to."""
    ping_permits: Mapping[str, float] = field(default_factory=dict)
    """Cluster to the shortest time between pings that its gRPC server permits, in seconds."""
