"""How much of an endpoint's trust counts: down at once, up by the slew limit, and never most of a pool.

Trust takes at most `max_unhealthy_share` of a pool away, or half where that is less: of those that could
serve, as much capacity stays as 1 less that share. Where trust would take more, the lowest are raised to a
common level at which just that much is left. When most of a pool fails, the fault is more likely a common one
(a model, a client, the view of it) than each endpoint's own. Small differences of trust are chance then, and
the first endpoint to answer well again would be flooded. So distrust of the others gives no endpoint more
than 1 / (1 - share) times its fair share, twice with the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.weights.faults import isolated

if TYPE_CHECKING:
    from fleet.settings import StabiliserSettings
    from xds_server.weights.columns import Columns, FloatArray

_HALF: Final = 0.5


class Trusted:
    """One pool's trust over time. `now` in seconds, never earlier than before."""

    def __init__(self) -> None:
        self._addresses: tuple[str, ...] = ()
        self._trust: FloatArray = np.zeros(0)
        self._stepped_at = 0.0

    def step(
        self, addresses: tuple[str, ...], columns: Columns, now: float, settings: StabiliserSettings
    ) -> FloatArray:
        """Take the trust of `now` and return what counts, in (0, 1]. Unknown is trusted."""
        trust = np.nan_to_num(np.clip(columns.signals["trust_ratio"], 0.0, 1.0), nan=1.0)
        if addresses != self._addresses:
            self._align(addresses, trust)
        elapsed, self._stepped_at = max(0.0, now - self._stepped_at), now
        if self._trust.min(initial=1.0) < 1.0:
            # A level that falls because another recovers must not fall before that one is back.
            rise = settings.rise_ratio_per_second ** min(elapsed, 60.0)
            trust = np.minimum(trust, np.maximum(self._trust, settings.floor_share) * rise)
        self._trust = trust
        if trust.min(initial=1.0) >= 1.0:
            return trust
        signals = columns.signals
        away = (signals["reachable"] == 0) | (signals["ready"] == 0)
        gone = away | (signals["stalled"] > 0) | isolated(signals["gpu_health_score"])
        counts = trust.copy()
        counts[~gone] = levelled(trust[~gone], 1.0 - max(settings.max_unhealthy_share, _HALF))
        return counts

    def _align(self, addresses: tuple[str, ...], trust: FloatArray) -> None:
        """Keep the trust of those that stay; the others begin with the trust of now."""
        before = dict(zip(self._addresses, self._trust.tolist(), strict=True))
        self._trust = np.array([before.get(a, t) for a, t in zip(addresses, trust.tolist(), strict=True)])
        self._addresses = addresses


def levelled(trust: FloatArray, left: float) -> FloatArray:
    """Return trust with the lowest raised to one level, so that the mean is at least `left` (at most 1)."""
    count = trust.size
    if not count or trust.mean() >= left:
        return trust
    ordered = np.sort(trust)
    # With the k lowest raised, the level that makes the sum right; it is the one that the next is not below.
    levels = (left * count - (ordered.sum() - np.cumsum(ordered))) / np.arange(1, count + 1)
    fits = levels <= np.append(ordered[1:], np.inf)
    result: FloatArray = np.maximum(trust, levels[np.argmax(fits)])
    return result
