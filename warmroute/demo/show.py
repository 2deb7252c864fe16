"""Where progress goes: one live table on a terminal, plain lines on standard error otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Protocol

from warmroute.demo.report import progress
from warmroute.demo.stats import Moment, summarise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from rich.console import Console
    from rich.live import Live

    from warmroute.demo.load import LoadRun
    from warmroute.demo.scenario import Scenario
    from warmroute.demo.stats import Summary

_REFRESH_SECONDS: Final = 0.5
_LINE_SECONDS: Final = 2.0


class Show(Protocol):
    """The display of a comparison. `end` may follow at any moment."""

    interval_seconds: float

    def update(self, moment: Moment) -> None:
        """Show one moment."""

    def end(self) -> None:
        """End."""


class PlainShow:
    """One line now and then on standard error."""

    interval_seconds = _LINE_SECONDS

    def update(self, moment: Moment) -> None:
        """Print one line."""
        progress(f"{moment.policy}: {moment.stage}{_so_far(moment.summary)}")

    def end(self) -> None:
        """Nothing is open."""


def _so_far(summary: Summary | None) -> str:
    if summary is None or summary.ttft_p50_seconds is None or summary.ttft_p90_seconds is None:
        return ""
    p50, p90 = summary.ttft_p50_seconds * 1000, summary.ttft_p90_seconds * 1000
    return f", {summary.failures} failed, TTFT p50 {p50:.0f} ms, p90 {p90:.0f} ms"


class LiveShow:
    """The live table: a column for each policy, filled as its answers come."""

    interval_seconds = _REFRESH_SECONDS

    def __init__(self, console: Console, chosen: Scenario, policies: Sequence[str]) -> None:
        self._console = console
        self._chosen = chosen
        self._columns: dict[str, Summary | None] = dict.fromkeys(policies)
        self._live: Live | None = None

    def update(self, moment: Moment) -> None:
        """Redraw the table."""
        from rich.live import Live  # noqa: PLC0415 (rich is an extra)

        from warmroute.demo.table import running  # noqa: PLC0415

        self._columns[moment.policy] = moment.summary
        screen = running(self._chosen, self._columns, moment, self._console.options)
        if self._live is None:
            # A screen of its own: nothing is left of it, whatever the terminal echoes meanwhile.
            self._live = Live(screen, console=self._console, auto_refresh=False, screen=True)
            self._live.start(refresh=True)
        else:
            self._live.update(screen, refresh=True)

    def end(self) -> None:
        """Give the screen back."""
        if self._live is not None:
            self._live.stop()
            self._live = None


@contextlib.asynccontextmanager
async def shown(
    show: Show, policy: str, load: LoadRun, seconds: float, engines: Sequence[str]
) -> AsyncIterator[None]:
    """Keep the show up to date for as long as the context lasts."""

    def update() -> None:
        done = min(load.elapsed_seconds / seconds, 1.0)
        stage = "done" if not load.in_flight else "waiting for the last answers"
        if done < 1:
            sent = f"{load.started} sent, {load.in_flight} in flight"
            stage = f"{load.elapsed_seconds:.1f} of {seconds:g} s, {sent}"
        show.update(Moment(policy, done, stage, summarise(load.outcomes, engines)))

    async def refresh() -> None:
        while True:
            update()
            await asyncio.sleep(show.interval_seconds)

    task = asyncio.create_task(refresh())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    update()
