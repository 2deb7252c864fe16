"""Mixed traffic while every part is killed, rolled, drained, rotated and reloaded: failures and their causes.

JSON answers, long token streams and WebSockets go by TLS through the real Envoy to simulated engines. The two
services run apart. The target: no request fails except those that a killed engine was answering.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from bench.chaos_events import NAMES, Chaos, Event
from bench.chaos_site import ENGINE, running_site
from bench.chaos_traffic import KINDS, Outcome, Traffic
from warmroute.demo import processes, report
from warmroute.demo.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warmroute.demo.report import Target

_QUIET_SECONDS: Final = 8.0
"""Before the first event: what is usual is measured here."""
_SETTLE_SECONDS: Final = 2.0
_AFTER_SECONDS: Final = 3.0
_RATE_SHARE: Final = 0.95
_SHOWN_FAILURES: Final = 200
_SHOWN_SLOWEST: Final = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request in readable form: kind, time, and nearest event."""

    kind: str
    at_seconds: float
    ended_seconds: float
    failure: str
    served: str | None
    event: str
    excused: bool
    """A killed engine was answering it."""


async def chaos(seconds: float, rate: float, seed: int) -> tuple[list[Outcome], list[Event], float]:
    """Run traffic and events for `seconds`, longer if each event needs that to happen once.

    Returns outcomes, events, and for how many seconds requests were sent.

    Raises:
        BenchError: a part does not start, or an event does not take effect.
    """
    async with running_site() as site:
        traffic = Traffic(
            site.url, ENGINE.model, site.client_context, rate=rate, seed=seed, clock=time.monotonic
        )
        happening = Chaos(site, traffic, report.progress)
        sending = asyncio.create_task(traffic.run())
        try:
            await asyncio.sleep(_QUIET_SECONDS)
            for number, name in enumerate(cycle(NAMES)):
                if number >= len(NAMES) and traffic.elapsed_seconds > seconds - _AFTER_SECONDS:
                    break
                await happening.happen(name)
                await asyncio.sleep(_SETTLE_SECONDS)
            await asyncio.sleep(_AFTER_SECONDS)
            sent_for = traffic.elapsed_seconds
            traffic.stop()
            await sending
        finally:
            sending.cancel()
        return traffic.outcomes, happening.events, sent_for


def excused(outcome: Outcome, events: Iterable[Event]) -> bool:
    """Whether a killed engine was answering a request at the moment of its end."""
    return any(
        event.killed is not None
        and event.gone_seconds is not None
        and outcome.served == event.killed
        and outcome.at_seconds <= event.gone_seconds
        and outcome.ended_seconds >= event.began_seconds
        for event in events
    )


def nearest(at: float, events: Sequence[Event]) -> str:
    """The event during which a moment lies, or the one closest to it."""
    away = {event: max(event.began_seconds - at, at - event.ended_seconds, 0.0) for event in reversed(events)}
    closest = min(away, key=lambda event: away[event])
    where = "during" if not away[closest] else "before" if at < closest.began_seconds else "after"
    return f"{where} {closest.name}" if not away[closest] else f"{away[closest]:.2f} s {where} {closest.name}"


def failures_of(outcomes: Iterable[Outcome], events: Sequence[Event]) -> list[Failure]:
    """Every failed request, in the order of their ends."""
    return [
        Failure(
            kind=outcome.kind,
            at_seconds=round(outcome.at_seconds, 3),
            ended_seconds=round(outcome.ended_seconds, 3),
            failure=outcome.failure,
            served=outcome.served,
            event=nearest(outcome.ended_seconds, events),
            excused=excused(outcome, events),
        )
        for outcome in sorted(outcomes, key=lambda outcome: outcome.ended_seconds)
        if outcome.failure is not None
    ]


def usual(outcomes: Iterable[Outcome], until: float) -> dict[str, dict[str, float | None]]:
    """Medians and the slowest of each kind among what ended before `until`, in seconds."""
    quiet = [o for o in outcomes if o.failure is None and o.ended_seconds < until]
    medians: dict[str, dict[str, float | None]] = {}
    for kind in KINDS:
        firsts = [o.first_seconds for o in quiet if o.kind == kind and o.first_seconds is not None]
        silences = [o.silence_seconds for o in quiet if o.kind == kind and o.silence_seconds is not None]
        medians[kind] = {
            "first_p50_seconds": percentile(firsts, 0.5),
            "first_slowest_seconds": max(firsts, default=None),
            "silence_p50_seconds": percentile(silences, 0.5),
            "silence_slowest_seconds": max(silences, default=None),
        }
    return medians


def added_seconds(outcome: Outcome, quiet: dict[str, dict[str, float | None]]) -> float | None:
    """By how much a request waited longer, once, than is usual for its kind; None: unknown."""
    medians = quiet[outcome.kind]
    pairs = (
        (outcome.first_seconds, medians["first_p50_seconds"]),
        (outcome.silence_seconds, medians["silence_p50_seconds"]),
    )
    added = [waited - middle for waited, middle in pairs if waited is not None and middle is not None]
    return max(added, default=None)


def _slowest(outcomes: Iterable[Outcome], quiet: dict[str, dict[str, float | None]]) -> float | None:
    added = (added_seconds(outcome, quiet) for outcome in outcomes if outcome.failure is None)
    return max((seconds for seconds in added if seconds is not None), default=None)


def _shown_slowest(
    outcomes: Iterable[Outcome], events: Sequence[Event], quiet: dict[str, dict[str, float | None]]
) -> list[dict[str, Any]]:
    """Those that waited longest beyond what is usual, to look into."""
    good = [
        (added_seconds(outcome, quiet) or 0.0, outcome) for outcome in outcomes if outcome.failure is None
    ]
    good.sort(key=lambda pair: pair[0], reverse=True)
    return [
        {"added_seconds": added, **asdict(outcome), "event": nearest(outcome.at_seconds, events)}
        for added, outcome in good[:_SHOWN_SLOWEST]
    ]


def result_of(outcomes: Sequence[Outcome], events: Sequence[Event], sent_for: float) -> dict[str, Any]:
    """The object that `--json` prints."""
    failed = failures_of(outcomes, events)
    quiet = usual(outcomes, events[0].began_seconds)
    rows = []
    for event in events:
        # A stream counts while it was open, because it may have waited at any of those moments.
        until = event.ended_seconds + _SETTLE_SECONDS
        around = [o for o in outcomes if o.ended_seconds >= event.began_seconds and o.at_seconds < until]
        rows.append(
            {
                **asdict(event),
                "worst_added_seconds": _slowest(around, quiet),
                "client_late_seconds": max((o.late_seconds for o in around), default=0.0),
            }
        )
    return {
        "seconds": sent_for,
        "requests": dict(Counter(outcome.kind for outcome in outcomes)),
        "requests_per_second": len(outcomes) / sent_for,
        "failures": sum(not failure.excused for failure in failed),
        "failures_of_killed_engines": sum(failure.excused for failure in failed),
        "failed": [asdict(failure) for failure in failed[:_SHOWN_FAILURES]],
        "quiet": quiet,
        "quiet_worst_added_seconds": _slowest(
            (o for o in outcomes if o.ended_seconds < events[0].began_seconds), quiet
        ),
        "worst_added_seconds": _slowest(outcomes, quiet),
        "slowest": _shown_slowest(outcomes, events, quiet),
        "counts": dict(Counter(event.name for event in events)),
        "events": rows,
    }


def targets_of(result: dict[str, Any], names: Iterable[str], rate: float) -> list[Target]:
    """Hold the figures against their targets."""
    counts = result["counts"]
    return [
        report.exactly("failures", result["failures"], 0),
        report.at_least("requests_per_second", result["requests_per_second"], _RATE_SHARE * rate),
        *(report.at_least(f"{kind}_requests", result["requests"].get(kind, 0), 1) for kind in KINDS),
        *(report.at_least(name, counts.get(name, 0), 1) for name in names),
    ]


def lines(result: dict[str, Any]) -> list[str]:
    """What people read before the targets."""
    made = [
        f"{entry['ended_seconds']:7.2f} s  {entry['kind']}: {entry['failure']} ({entry['event']})"
        for entry in result["failed"]
        if not entry["excused"]
    ]
    made.append(f"{result['failures_of_killed_engines']} failures of what killed engines were answering")
    for name, count in result["counts"].items():
        of_name = [event for event in result["events"] if event["name"] == name]
        worst = max(event["worst_added_seconds"] or 0.0 for event in of_name)
        late = max(event["client_late_seconds"] for event in of_name)
        made.append(
            f"{count} x {name}: at most {worst:.2f} s slower than usual (client late by {late:.2f} s)"
        )
    quiet = result["quiet_worst_added_seconds"]
    return [*made, f"without any event: at most {quiet or 0.0:.2f} s slower than usual"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="at least; each event happens once (default 120)"
    )
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second (default 100)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    outcomes, events, sent_for = processes.run(chaos(args.seconds, args.rate, args.seed))
    result = result_of(outcomes, events, sent_for)
    for line in lines(result):
        report.progress(line)
    targets = targets_of(result, NAMES, args.rate)
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
