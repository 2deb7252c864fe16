"""Which engines keep no prefixes, so that nothing is warm there: load decides.

An engine keeps none if its page says so, or if it has served prompts that it must have had and its hit ratio
has been 0 all the while:

    off = stated, or (hit ratio = 0, and MANY warm prompts since the last hit, the first SETTLED_SECONDS ago)

A prompt counts as warm here if our index has most of it at the engine, and at least `LEAST_BYTES`: engines
keep whole blocks only. A single hit, or a restart, ends the verdict. Without warm prompts, as in a pool that
never sees a prefix twice, a hit ratio of 0 proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.rows import moved

if TYPE_CHECKING:
    from numpy.typing import NDArray

MANY: Final = 20
LEAST_BYTES: Final = 4096
SETTLED_SECONDS: Final = 10.0
"""A hit counts when the engine has begun the prompt, and its page comes after that."""


class Caching:
    """A pool's endpoints, in the pool's order."""

    def __init__(self, size: int) -> None:
        self.off: NDArray[np.bool_] | None = None
        """The engines that keep no prefixes; None: there is none."""
        self._warm = np.zeros(size)
        """Warm prompts since the last hit."""
        self._since = np.zeros(size)
        """When the first of them was sent."""
        self._without_hits = np.zeros(size, np.bool_)
        """Whether the newest hit ratio that was known is 0."""

    def moved_to(self, sources: NDArray[np.intp]) -> Caching:
        """Return the same for other endpoints, see `rows.moved`."""
        other = Caching(sources.size)
        for name in ("_warm", "_since", "_without_hits"):
            setattr(other, name, moved(getattr(self, name), sources))
        return other

    def sent(self, row: int, warm_bytes: int, text_bytes: int, now: float) -> None:
        """Note a prompt with its warm part."""
        if warm_bytes >= LEAST_BYTES and 2 * warm_bytes >= text_bytes:
            if not self._warm[row]:
                self._since[row] = now
            self._warm[row] += 1

    def learn(self, stated: NDArray[np.float64], hit_ratio: NDArray[np.float64], now: float) -> None:
        """Take a tick's signals: what pages say of the caching, and hit ratios; NaN is unknown."""
        self._warm[hit_ratio > 0] = 0
        self._without_hits = np.where(np.isnan(hit_ratio), self._without_hits, hit_ratio == 0)
        unmatched = self._without_hits & (self._warm >= MANY) & (now - self._since >= SETTLED_SECONDS)
        off = (stated == 0) | unmatched
        self.off = off if off.any() else None

    def forget(self, row: int) -> None:
        """Forget an engine: it restarted."""
        self._warm[row] = 0
        self._without_hits[row] = False
