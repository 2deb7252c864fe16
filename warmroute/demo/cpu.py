"""How busy the host is: when its cores are the bottleneck, times say nothing about routing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_IDLE_FIELDS: Final = (3, 4)  # idle, iowait


class CpuMeter:
    """The share of all cores' time that was used since the meter was made, by anyone."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._began = _read(stat)

    def used_ratio(self) -> float | None:
        """Return 0 to 1; None without the kernel's figures."""
        now = _read(self._stat)
        if now is None or self._began is None or now[1] <= self._began[1]:
            return None
        return 1 - (now[0] - self._began[0]) / (now[1] - self._began[1])


def _read(stat: Path) -> tuple[int, int] | None:
    """Return idle and total ticks since boot."""
    try:
        fields = [int(field) for field in stat.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return sum(fields[at] for at in _IDLE_FIELDS), sum(fields)
