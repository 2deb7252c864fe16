"""How fast a pool's engines prefill: one rate for the pool, and an engine's own as far as it is evident.

A prompt of which `cold` of `tokens` tokens are computed takes an engine

    work    = cold * (1 + attention_per_token * (tokens - cold / 2))
    seconds = FIXED_SECONDS + work / rate

`work` counts a token more the more tokens stand before it, because it attends to all of them; `tokens -
cold / 2` is their mean. `rate` is that of a token without context.

An engine reports the tokens that it computed and the seconds of prefill. Their quotient is no rate: an engine
with short prompts looks slow by the fixed time, one with long prompts by their attention. Picks that follow
it avoid that engine, and it stays so. So both are taken out, by the prompts that were sent there:

    r_i     = tokens_i * w_i / (seconds_i - fixed_i)          sums over about `MEMORY_SECONDS`
    fixed_i = FIXED_SECONDS * tokens_i / mean_i

with `mean_i` cold tokens a request and `w_i = work / cold` over our own requests there. What is left is
chance, much of it over little work. So an engine differs from its pool only as far as noise does not explain
the difference:

    v_i = NOISE^2 * (1 + EVIDENT_TOKENS / tokens_i) + (FIXED_SECONDS * max(r) / (mean_i * w_i))^2
    R   = median of all r_i, weighted by 1 / v_i, and of the settings' rate, weighted by 1 / PRIOR
    d_i = ln(r_i / R)                     rate_i = R * exp(d_i * max(0, 1 - v_i / d_i^2))

`v_i` is the variance of `ln(r_i)` between equal engines: of equal work, and of the fixed time, which is known
roughly and counts more in short prompts. `R` is the pool's rate, a median, so that a slow engine does not
make the others look fast. The last line is the positive-part James-Stein estimator for each component:
differences within the noise become 0, large ones stay nearly whole. Source: Efron and Morris, "Stein's
estimation rule and its competitors" (1973); by component it is Breiman's garrote (1995).
"""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ext_proc.pick.rows import moved
from fleet.columns import unknown_as_zero

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEMORY_SECONDS: Final = 300.0
EVIDENT_TOKENS: Final = 50_000.0
"""Tokens by which the variance of an engine's own rate has fallen to twice what it is over endless work."""
NOISE: Final = 0.15
"""Standard deviation of `ln(rate)` between equal engines over endless work: some share their steps more."""
FIXED_SECONDS: Final = 0.01
"""Of each request, however short: its part in a step."""
_LEAST_NET: Final = 0.25
"""Share of the reported seconds that stays after the fixed time, however many requests there were."""
PRIOR: Final = 1.0
"""Variance of `ln(rate)` by which the settings' rate counts."""
_USUAL_REQUESTS: Final = 0.1
"""Requests of the pool's usual length that count with an engine's own: it may have had none."""
_LEAST_SUM: Final = 1e-9
"""Tokens, and seconds: less is what days without work leave, and its quotient is no rate."""
_MOST_GAP_SECONDS: Final = 10.0
"""A tick that comes later counts no more work than this."""


class Prefill:
    """Columns over a pool's endpoints, in the pool's order. All sums fade with `MEMORY_SECONDS`."""

    def __init__(self, size: int) -> None:
        self._sums: NDArray[np.float64] = np.zeros((5, size))
        """Tokens and seconds of prefill, from engines; requests of ours, their cold bytes and their work."""
        self._at: float | None = None

    def moved_to(self, sources: NDArray[np.intp]) -> Prefill:
        """Return the same for other endpoints, see `rows.moved`."""
        other = Prefill(sources.size)
        other._at, other._sums = self._at, moved(self._sums, sources)
        return other

    def learn(self, rates: NDArray[np.float64], prefilling: NDArray[np.float64], now: float) -> None:
        """Add what engines computed since the last tick.

        `rates` are tokens by second of prefill, `prefilling` is how many requests are in prefill at once in
        the mean, both over the engines' windows; NaN is unknown and adds nothing.
        """
        gap = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._sums *= exp(-gap / MEMORY_SECONDS)
        seconds = unknown_as_zero(prefilling) * min(gap, _MOST_GAP_SECONDS)
        tokens = unknown_as_zero(rates) * seconds
        self._sums[0] += tokens
        self._sums[1] += np.where(tokens > 0, seconds, 0.0)

    def note(self, position: int, cold_bytes: float, work: float) -> None:
        """Note a request, with the bytes of its text that are not cached there, and their work in bytes."""
        sums: Any = self._sums.data
        sums[2, position] += 1.0
        sums[3, position] += cold_bytes
        sums[4, position] += work

    def forget(self, position: int) -> None:
        """Forget an engine's own rate: another process may be another engine."""
        self._sums[:, position] = 0.0

    def rates(
        self, rows: NDArray[np.intp] | slice, default: float, bytes_per_token: float
    ) -> NDArray[np.float64]:
        """Return tokens a second by the module's formula, all above 0; among `rows` only."""
        sums = self._sums[:, rows]
        measured = (sums[0] > _LEAST_SUM) & (sums[1] > _LEAST_SUM)
        if not measured.any():
            return np.full(measured.size, default)
        tokens, seconds, requests, nbytes, work = sums[:, measured]
        # Without any request of ours the length of prompts is unknown, and nothing can be taken out.
        mean, longer = np.full(tokens.size, np.inf), np.ones(tokens.size)
        if (ours := sums[2].sum()) > 0:
            # An engine that had none of ours is taken to have the pool's prompts.
            few = _USUAL_REQUESTS / ours
            nbytes, work = nbytes + few * sums[3].sum(), work + few * sums[4].sum()
            mean = np.maximum(nbytes / (requests + _USUAL_REQUESTS) / bytes_per_token, 1.0)
            longer = np.maximum(work / np.maximum(nbytes, 1.0), 1.0)
        fixed = np.minimum(FIXED_SECONDS * tokens / mean, (1.0 - _LEAST_NET) * seconds)
        logs = np.log(tokens * longer / (seconds - fixed))
        variance = NOISE**2 * (1.0 + EVIDENT_TOKENS / np.maximum(tokens, 1.0))
        # The fixed time is known roughly; against the same rate for all, or a slow engine would seem certain.
        variance += (FIXED_SECONDS * exp(float(logs.max())) / (mean * longer)) ** 2
        pool = _median(np.append(logs, log(default)), np.append(1.0 / variance, 1.0 / PRIOR))
        apart = logs - pool
        kept = np.maximum(0.0, 1.0 - variance / np.maximum(apart**2, 1e-12))
        result: NDArray[np.float64] = np.full(measured.size, exp(pool))
        result[measured] *= np.exp(apart * kept)
        return result


def _median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the first of the ascending values up to which, itself included, is more than half the weight."""
    order = values.argsort()
    upto = weights[order].cumsum()
    return float(values[order[int(upto.searchsorted(upto[-1] / 2, side="right"))]])
