"""What ext_proc workers report of each endpoint, summed over the workers, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xds_server.signals.rows import BoolArray, FloatArray, IntArray, Rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.store import Traffic


class TrafficColumns(Rows):
    """One row an endpoint. Without any worker, all is unknown (NaN)."""

    in_flight: FloatArray = np.full(1, np.nan)
    started_total: FloatArray = np.full(1, np.nan)
    finished_total: FloatArray = np.full(1, np.nan)
    duration_p99_seconds: FloatArray = np.full(1, np.nan)
    """The slowest worker's."""
    moving: BoolArray = np.zeros(1, np.bool_)
    """Whether any request is in flight, or has begun since the last look."""

    def __init__(self) -> None:
        super().__init__()
        self._reports: dict[str, tuple[Mapping[str, Traffic], FloatArray]] = {}
        """Each worker's newest report and its columns: reports are replaced, never changed."""

    @property
    def reported(self) -> BoolArray:
        """Whether any worker reports what is in flight."""
        return np.isfinite(self.in_flight)

    def remap_rows(self, source: IntArray) -> None:
        """Follow a changed membership (see `rows.remapped`)."""
        super().remap_rows(source)
        self._reports = {}

    def read(self, reports: Mapping[str, Mapping[str, Traffic]], rows: Mapping[str, int]) -> None:
        """Take every worker's newest report; `rows` is address to row."""
        before, started_before = self._reports, self.started_total
        self._reports = {
            worker: entry
            if (entry := before.get(worker)) is not None and entry[0] is report
            else (report, _columns(report, rows))
            for worker, report in reports.items()
        }
        if not reports:
            unknown = np.full(len(rows), np.nan)
            self.in_flight = self.started_total = self.finished_total = self.duration_p99_seconds = unknown
            self.moving = np.zeros(len(rows), np.bool_)
            return
        columns = np.stack([columns for _, columns in self._reports.values()])
        self.in_flight, self.started_total, self.finished_total = columns[:, :3].sum(axis=0)
        slowest = columns[:, 3].max(axis=0)
        self.duration_p99_seconds = np.where(slowest >= 0, slowest, np.nan)
        begun = np.isfinite(started_before) & (self.started_total != started_before)
        self.moving = (self.in_flight > 0) | begun


def _columns(report: Mapping[str, Traffic], rows: Mapping[str, int]) -> FloatArray:
    """Return requests in flight, started and finished, and the p99 duration or -1."""
    # Lists of numbers only: thousands of tuples would have Python's garbage collector look at all objects.
    reported = [traffic for address, traffic in report.items() if address in rows]
    columns = [rows[address] for address in report if address in rows]
    result = np.zeros((4, len(rows)))
    result[0, columns] = [traffic.in_flight for traffic in reported]
    result[1, columns] = [traffic.started_total for traffic in reported]
    result[2, columns] = [traffic.finished_total for traffic in reported]
    durations = [traffic.duration_p99_seconds for traffic in reported]
    result[3] = -1.0
    result[3, columns] = [-1.0 if seconds is None else seconds for seconds in durations]
    return result
