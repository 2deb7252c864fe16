"""Stickiness by hash, as a proxy has it by a session header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.replay.trace import TraceRequest


class SessionHash(Observer):
    """Rendezvous hash of the session, or of the prompt's first 1,024 tokens where a trace has no sessions.

    A shorter prompt without a session goes to any engine.
    """

    name = "session_hash"
    LEADING_TOKENS: Final = 1024

    def pick(self, request: TraceRequest) -> int:
        """Return the engine of the highest hash."""
        leading = request.blocks[: self.LEADING_TOKENS // self.block_tokens]
        if not request.session and len(leading) * self.block_tokens < self.LEADING_TOKENS:
            return self.draw.randrange(self.size)
        return rendezvous(request.session or leading, self.size)


def rendezvous(key: str | Sequence[int], size: int, salt: str = "") -> int:
    """Return the engine whose hash with the key is highest.

    Source: Thaler and Ravishankar, Using name-based mappings to increase hit rates, 1998.
    """
    data = f"{salt}{key}".encode()
    return max(range(size), key=lambda engine: xxh3_64_intdigest(data, engine))
