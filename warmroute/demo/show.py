"""Where progress goes: a live table on a terminal, plain lines on standard error otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Protocol

from warmroute.demo.report import progress
from warmroute.demo.watch import observe, stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rich.live import Live

    from warmroute.demo.cluster import Cluster
    from warmroute.demo.load import LoadRun
    from warmroute.demo.watch import View

_REFRESH_SECONDS: Final = 0.5
_LINE_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 1.0
"""By then the engines' pages, which are read at most a second apart, include the last answer too."""


class Show(Protocol):
    """The progress display of a run."""

    interval_seconds: float
    settle_seconds: float
    """How long after the last answer the last moment is shown."""

    def phase(self, title: str, note: str) -> None:
        """Begin a phase, before anything of it runs."""

    def update(self, view: View, total_seconds: float) -> None:
        """Show one moment of the phase."""

    def end(self) -> None:
        """End the phase; the output stays on the screen."""


class PlainShow:
    """One line now and then on standard error."""

    interval_seconds = _LINE_SECONDS
    settle_seconds = 0.0

    def __init__(self) -> None:
        self._title = ""

    def phase(self, title: str, note: str) -> None:
        """Name the phase."""
        self._title = title
        progress(f"{title}: {note}")

    def update(self, view: View, total_seconds: float) -> None:
        """Print one line."""
        served = " ".join(str(row.requests) for row in view.rows)
        weights = " ".join("-" if row.weight is None else str(row.weight) for row in view.rows)
        progress(
            f"{self._title}: {stage(view, total_seconds)}, {view.sent} sent, {view.in_flight} in flight, "
            f"{view.failures} failed; served by engine {served}; weights {weights}"
        )

    def end(self) -> None:
        """Nothing is open."""


class LiveShow:
    """The live table."""

    interval_seconds = _REFRESH_SECONDS
    settle_seconds = _SETTLE_SECONDS

    def __init__(self) -> None:
        from warmroute.demo.table import console  # noqa: PLC0415 (rich is an extra)

        self._console = console()
        self._live: Live | None = None
        self._title = self._note = ""

    def phase(self, title: str, note: str) -> None:
        """Open the table of a phase."""
        from rich.live import Live  # noqa: PLC0415
        from rich.spinner import Spinner  # noqa: PLC0415

        self.end()
        self._title, self._note = title, note
        self._live = Live(Spinner("dots", f" {title}: starting"), console=self._console, refresh_per_second=8)
        self._live.start()

    def update(self, view: View, total_seconds: float) -> None:
        """Redraw the table."""
        from warmroute.demo.table import live  # noqa: PLC0415

        if self._live is not None:
            self._live.update(live(self._title, self._note, view, total_seconds, self._console.width))

    def end(self) -> None:
        """Leave the table as it is."""
        if self._live is not None:
            self._live.stop()
            self._live = None


@contextlib.asynccontextmanager
async def shown(show: Show, cluster: Cluster, load: LoadRun, total_seconds: float) -> AsyncIterator[None]:
    """Keep the show up to date for as long as the context lasts."""

    async def refresh() -> None:
        while True:
            show.update(await observe(cluster, load), total_seconds)
            await asyncio.sleep(show.interval_seconds)

    task = asyncio.create_task(refresh())
    try:
        yield
        await asyncio.sleep(show.settle_seconds)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    show.update(await observe(cluster, load), total_seconds)
