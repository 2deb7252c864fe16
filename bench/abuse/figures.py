"""From samples to figures: the cost of an attack for other clients."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from warmroute.demo import report

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warmroute.demo.report import Target
    from warmroute.demo.stats import Outcome

Answer = tuple[float, float, float]
"""An answer's start, its duration, and the server's CPU time meanwhile."""
MEBI: Final = 1 << 20
MOST_STALL_SECONDS: Final = 0.05
MOST_MEMORY_MIB: Final = 64.0
MOST_WITHOUT_PICK: Final = 0.01
WELL_SECONDS: Final = 10.0
BACK_MIB: Final = 16.0
"""Memory is back when so much, or less, is above the quiet level: allocators keep some."""
_ENDED_SECONDS: Final = 2.0
"""No memory was read for so long: the process has ended."""


@dataclass(slots=True)
class Samples:
    """What was sampled in some time."""

    serve: list[Answer] = field(default_factory=list)
    """To health checks of ext_proc."""
    bare: list[Answer] = field(default_factory=list)
    """To health checks of a server without work."""
    admin: list[Answer] = field(default_factory=list)
    """To GET /healthz of admin."""
    memory: list[tuple[float, int]] = field(default_factory=list)
    """When, and the resident bytes of `serve`."""

    def extend(self, later: Samples) -> None:
        """Add what was sampled after that."""
        self.serve += later.serve
        self.bare += later.bare
        self.admin += later.admin
        self.memory += later.memory


@dataclass(frozen=True, slots=True)
class Stall:
    """The delay of one answer of `serve`."""

    ended_at: float
    answer_seconds: float
    own_seconds: float
    """The stall: the answer's time beyond the longest answer of the bare server meanwhile, which a busy host
    delays as well, and at most the CPU time of `serve` meanwhile, because a busy host delays a process that
    computes much. A loop that sleeps in a system call shows in `answer_seconds` alone."""
    cpu_seconds: float
    """CPU time of `serve` during the answer."""


def stalls(samples: Samples, answers: Iterable[Answer], since: float, until: float) -> list[Stall]:
    """Return the delays of answers to requests that began or were open between two moments."""
    sent_at = [began for began, _, _ in samples.bare]
    ended = [began + took for began, took, _ in samples.bare]
    pauses = []
    for began, took, cpu in answers:
        if began >= until or began + took < since:
            continue
        neighbours = samples.bare[bisect_left(ended, began) : bisect_right(sent_at, began + took)]
        usual = max((other for _, other, _ in neighbours), default=0.0)
        pauses.append(Stall(began + took, took, max(0.0, min(took - usual, cpu)), min(took, cpu)))
    return pauses


@dataclass(frozen=True, slots=True)
class Moments:
    """Of one round, on the monotonic clock."""

    quiet: float
    attack: float
    over: float
    end: float


@dataclass(frozen=True, slots=True)
class Round:
    """What one run of an attack cost. None: more than was waited for."""

    quiet_own_seconds: float
    """The longest stall before the attack."""
    quiet_answer_seconds: float
    own_seconds: float
    """The longest stall during the attack."""
    quiet_admin_seconds: float
    """As `quiet_own_seconds`, of admin's answers."""
    admin_seconds: float
    """As `own_seconds`, of admin's answers."""
    answer_seconds: float
    bare_seconds: float
    cpu_seconds: float
    memory_bytes: int
    """At most above the quiet level."""
    requests: int
    failed: int
    reasons: dict[str, int]
    """Of the failures."""
    without_pick: int
    well_again_seconds: float | None
    sent_bytes: int


def round_of(samples: Samples, outcomes: Sequence[Outcome], began: float, at: Moments, sent: int) -> Round:
    """Work out a round; `outcomes` are of requests whose times count from `began`."""
    quiet = stalls(samples, samples.serve, at.quiet, at.attack)
    during = stalls(samples, samples.serve, at.attack, at.over)
    touched = [o for o in outcomes if at.attack <= began + o.ended_seconds and began + o.at_seconds < at.over]
    level = quiet_memory(samples, at)
    unwell = unwell_at(samples, outcomes, began, at)
    return Round(
        quiet_own_seconds=_longest(quiet),
        quiet_answer_seconds=max((stall.answer_seconds for stall in quiet), default=0.0),
        own_seconds=_longest(during),
        quiet_admin_seconds=_longest(stalls(samples, samples.admin, at.quiet, at.attack)),
        admin_seconds=_longest(stalls(samples, samples.admin, at.attack, at.over)),
        answer_seconds=max((stall.answer_seconds for stall in during), default=0.0),
        bare_seconds=max(
            (took for sent_at, took, _ in samples.bare if at.attack <= sent_at < at.over), default=0.0
        ),
        cpu_seconds=max((stall.cpu_seconds for stall in during), default=0.0),
        memory_bytes=max(
            (resident - level for when, resident in samples.memory if when >= at.attack), default=0
        ),
        requests=len(touched),
        failed=sum(o.failure is not None for o in touched),
        reasons=dict(Counter(o.failure for o in touched if o.failure is not None)),
        without_pick=sum(o.failure is None and o.picked is None for o in touched),
        well_again_seconds=max(0.0, unwell - at.over) if unwell <= at.over + WELL_SECONDS else None,
        sent_bytes=sent,
    )


def _longest(pauses: Iterable[Stall]) -> float:
    return max((stall.own_seconds for stall in pauses), default=0.0)


def quiet_memory(samples: Samples, at: Moments) -> int:
    """Return the resident bytes just before the attack; 0 when `serve` does not run."""
    return max((resident for when, resident in samples.memory if at.quiet <= when < at.attack), default=0)


def unwell_at(samples: Samples, outcomes: Iterable[Outcome], began: float, at: Moments) -> float:
    """Return the last moment at which something was still amiss; the end of the attack when nothing was."""
    level = quiet_memory(samples, at) + BACK_MIB * MEBI
    amiss = [at.over]
    for answers in (samples.serve, samples.admin):
        slow = _longest(stalls(samples, answers, at.quiet, at.attack)) + MOST_STALL_SECONDS
        late = stalls(samples, answers, at.over, at.end)
        amiss += [stall.ended_at for stall in late if stall.own_seconds > slow]
    amiss += [when for when, resident in samples.memory if when > at.over and resident > level]
    amiss += [
        began + o.ended_seconds
        for o in outcomes
        if at.attack <= began + o.at_seconds < at.end and (o.failure is not None or o.picked is None)
    ]
    if not samples.memory or samples.memory[-1][0] < at.end - _ENDED_SECONDS:
        amiss.append(at.end)  # `serve` has ended.
    return max(amiss)


@dataclass(frozen=True, slots=True)
class Cost:
    """What an attack cost, over all its rounds."""

    name: str
    sends: bool
    rounds: Sequence[Round]

    @property
    def own_seconds(self) -> float:
        """The smallest over the rounds: what the host adds is not there each time, what an attack adds is."""
        return min(entry.own_seconds for entry in self.rounds)

    @property
    def admin_seconds(self) -> float:
        """The smallest over the rounds, beyond the quiet time of the same round."""
        return min(max(0.0, entry.admin_seconds - entry.quiet_admin_seconds) for entry in self.rounds)

    @property
    def memory_mib(self) -> float:
        """The most over the rounds."""
        return max(entry.memory_bytes for entry in self.rounds) / MEBI

    @property
    def failed(self) -> int:
        """Of honest requests, over all rounds."""
        return sum(entry.failed for entry in self.rounds)

    @property
    def without_pick_ratio(self) -> float | None:
        """Of honest requests that were served, the smallest over the rounds."""
        ratios = [report.ratio(entry.without_pick, entry.requests) for entry in self.rounds]
        return min((ratio for ratio in ratios if ratio is not None), default=None)

    @property
    def well_again_seconds(self) -> float | None:
        """The least over the rounds."""
        return min((s for entry in self.rounds if (s := entry.well_again_seconds) is not None), default=None)

    def targets(self, quiet_own_seconds: float) -> list[Target]:
        """Compare the figures with their targets at the quiet level of the whole run."""
        stall = self.own_seconds - quiet_own_seconds
        made = [
            report.at_most(f"{self.name}_stall_over_quiet_seconds", stall, MOST_STALL_SECONDS),
            report.at_most(
                f"{self.name}_admin_stall_over_quiet_seconds", self.admin_seconds, MOST_STALL_SECONDS
            ),
            report.at_most(f"{self.name}_memory_over_quiet_mib", self.memory_mib, MOST_MEMORY_MIB),
            report.exactly(f"{self.name}_failed", self.failed, 0),
            report.at_most(f"{self.name}_without_pick_ratio", self.without_pick_ratio, MOST_WITHOUT_PICK),
            report.at_most(f"{self.name}_well_again_seconds", self.well_again_seconds, WELL_SECONDS),
        ]
        if self.sends:
            # An attack that does not reach its door shows nothing.
            sent = min(entry.sent_bytes for entry in self.rounds)
            made.append(report.at_least(f"{self.name}_sent_bytes", sent, 1))
        return made

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "own_seconds": self.own_seconds,
            "admin_seconds": self.admin_seconds,
            "memory_mib": self.memory_mib,
            "failed": self.failed,
            "without_pick_ratio": self.without_pick_ratio,
            "well_again_seconds": self.well_again_seconds,
            "rounds": [asdict(entry) for entry in self.rounds],
        }


def quiet_level(costs: Iterable[Cost]) -> float:
    """Return the longest own stall of a quiet time, the smallest of all such times."""
    return min(entry.quiet_own_seconds for cost in costs for entry in cost.rounds)


HEADINGS: Final = (
    "attack", "sent MiB", "stall ms", "admin ms", "answer ms", "bare ms", "CPU ms", "memory MiB", "failed",
    "no pick", "well s",
)  # fmt: skip
_FORMAT: Final = "{:<30} {:>8} {:>8} {:>8} {:>9} {:>7} {:>6} {:>10} {:>9} {:>7} {:>6}"


def heading() -> str:
    """Return the table's first line."""
    return _FORMAT.format(*HEADINGS)


def row(cost: Cost) -> str:
    """Return the table's line of an attack: its best round for times, all rounds for the rest."""
    best = min(cost.rounds, key=lambda entry: entry.own_seconds)
    missing, well = cost.without_pick_ratio, cost.well_again_seconds
    return _FORMAT.format(
        cost.name,
        f"{best.sent_bytes / MEBI:.1f}",
        f"{1000 * best.own_seconds:.0f}",
        f"{1000 * cost.admin_seconds:.0f}",
        f"{1000 * best.answer_seconds:.0f}",
        f"{1000 * best.bare_seconds:.0f}",
        f"{1000 * best.cpu_seconds:.0f}",
        f"{cost.memory_mib:.1f}",
        f"{cost.failed}/{sum(entry.requests for entry in cost.rounds)}",
        "-" if missing is None else f"{100 * missing:.1f} %",
        "-" if well is None else f"{well:.1f}",
    )
