"""The last minutes of each endpoint's numbers, and lines of eighths that draw them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.cli.view.model import Picture

WINDOW_SECONDS: Final = 180.0
_MOST_POINTS: Final = 720
_LEVELS: Final = "▁▂▃▄▅▆▇█"
WEIGHT: Final = "weight"
P99: Final = "p99"


class History:
    """Points of weight and p99 by endpoint; those of endpoints that left are dropped."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._points: dict[str, deque[tuple[float, float | None, float | None]]] = {}

    def add(self, now: float, picture: Picture) -> None:
        """Keep a picture's numbers. `now` is in seconds and never goes back."""
        kept = {}
        for row in picture.rows:
            points = self._points.get(row.address) or deque(maxlen=_MOST_POINTS)
            points.append((now, row.share, row.signal("latency_p99_seconds", "first_byte_p99_seconds")))
            while points[0][0] < now - self._window_seconds:
                points.popleft()
            kept[row.address] = points
        self._points = kept

    def series(self, address: str, name: str, cells: int, now: float) -> list[float | None]:
        """Return the mean of each of `cells` equal spans that end now; None without samples."""
        at = 1 if name == WEIGHT else 2
        sums, counts = [0.0] * cells, [0] * cells
        for point in self._points.get(address, ()):
            value = point[at]
            cell = int((point[0] - now + self._window_seconds) / self._window_seconds * cells)
            if value is not None and cell >= 0:
                cell = min(cell, cells - 1)
                sums[cell] += value
                counts[cell] += 1
        return [total / count if count else None for total, count in zip(sums, counts, strict=True)]

    def highest(self, name: str) -> float:
        """Return the highest value of all endpoints: rows drawn on one scale can be compared."""
        at = 1 if name == WEIGHT else 2
        return max((point[at] or 0.0 for points in self._points.values() for point in points), default=0.0)


def sparkline(values: Sequence[float | None], highest: float) -> str:
    """Draw values between 0 and `highest`, one cell each; unknown is blank."""
    top = len(_LEVELS) - 1
    return "".join(
        " " if value is None else _LEVELS[min(top, round(value / highest * top)) if highest > 0 else 0]
        for value in values
    )
