"""Whom refusals (4xx) speak against: the client, or the endpoint that refuses what its peers take. I/O-free.

A client that is refused by all alike is at fault itself. An endpoint is at fault in two cases, of what was
told within about `WINDOW_SECONDS`:

- it mostly refuses prompts with a leading part that its peers mostly answer;
- it has refused prompts with `MANY_PARTS` leading parts or more and answered none, while its peers have
  answered nearly all of theirs.

Leading parts are told apart by the digest that ext_proc notes with its picks; what went by weights counts as
one. A refusal waits for evidence as long as the window is, and what speaks against its endpoint then counts
as a fault, once. Counts of requests alone would blame whom a bad client happens to be sent to.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from math import ceil, exp
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.names import METADATA_PREFIX
from xds_server.signals.rows import FloatArray, IntArray, relaid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.signals.served import Finished

WINDOW_SECONDS: Final = 10.0
"""Time constant with which what was told is forgotten."""
MOST_CASES: Final = 1024
"""Leading parts that are followed; the one that was not heard of for longest goes first."""
MOSTLY: Final = 0.5
FEW: Final = 0.25
"""Share of refusals among peers up to which they mostly answer a leading part."""
MANY_PARTS: Final = 5
HARDLY_ANY: Final = 0.1
"""The same of all that peers are asked."""
ONE_LATELY: Final = exp(-1.0)
"""What is left of one answer when it is as old as the window is long."""
LEAST_ANSWERS: Final = 10.0
"""Good answers of peers that are evidence."""


class _Counts:
    """Answers that fade."""

    __slots__ = ("at", "good", "refused")

    def __init__(self, now: float) -> None:
        self.good = self.refused = 0.0
        self.at = now

    def fade(self, now: float) -> None:
        kept = exp(-max(0.0, now - self.at) / WINDOW_SECONDS)
        self.good *= kept
        self.refused *= kept
        self.at = now


class _Case:
    """One leading part that was refused lately."""

    __slots__ = ("by", "heard_at", "total", "waiting")

    def __init__(self, now: float) -> None:
        self.total = _Counts(now)
        self.by: dict[str, _Counts] = {}
        """By address."""
        self.waiting: dict[str, int] = {}
        """Address to refusals that have not spoken against it yet."""
        self.heard_at = now

    def add(self, address: str, now: float, *, refused: bool) -> None:
        held = self.by.get(address)
        if held is None:
            held = self.by[address] = _Counts(now)
        self.heard_at = now
        for counts in (held, self.total):
            counts.fade(now)
            if refused:
                counts.refused += 1.0
            else:
                counts.good += 1.0
        if refused:
            self.waiting[address] = self.waiting.get(address, 0) + 1

    def speaks_against(self, address: str, now: float) -> bool:
        """Whether an endpoint mostly refuses what its peers mostly answer."""
        here = self.by[address]
        here.fade(now)
        self.total.fade(now)
        good, refused = self.total.good - here.good, self.total.refused - here.refused
        mostly_here = here.refused > MOSTLY * (here.refused + here.good)
        return mostly_here and good >= ONE_LATELY and refused <= FEW * (refused + good)

    def take(self, address: str) -> int:
        """Return the refusals that speak against an endpoint now: those of old have faded."""
        return min(self.waiting.pop(address), ceil(self.by[address].refused))


class Refusals:
    """Follows finished requests; a row each endpoint of the membership. `now` never goes back."""

    def __init__(self) -> None:
        self._cases: OrderedDict[tuple[str, str], _Case] = OrderedDict()
        """By pool and leading part, the one that was heard of last last."""
        self._refused: dict[str, int] = {}
        """Address to refusals since the last step."""
        self._counts: FloatArray = np.zeros((0, 2))
        """Good answers and refusals of each endpoint, fading."""
        self._stepped_at = 0.0

    def relay(self, source: IntArray) -> None:
        """Follow a changed membership (see `rows.relaid`)."""
        self._counts = relaid(self._counts, source, 0.0)

    def note(self, finished: Finished, now: float) -> None:
        """Take in a request; it counts if its endpoint has answered it."""
        if finished.first_byte_seconds is None or finished.aborted:
            return
        refused = 400 <= finished.status < 500
        if not refused and not 0 < finished.status < 400:
            return
        key = finished.cluster, finished.metadata.get(METADATA_PREFIX, "")
        case = self._cases.get(key)
        if refused:
            self._refused[finished.address] = self._refused.get(finished.address, 0) + 1
            if case is None:
                case = self._cases[key] = _Case(now)
        if case is not None:
            case.add(finished.address, now, refused=refused)
            self._cases.move_to_end(key)
            if len(self._cases) > MOST_CASES:
                self._cases.popitem(last=False)

    def step(self, rows: Mapping[str, int], pools: IntArray, good: IntArray, now: float) -> IntArray:
        """Return for each endpoint the refusals that speak against it and have not been told before.

        `good` are its good answers since the last step, and `pools` is the number of its pool.
        """
        faults = np.zeros(len(rows), np.int64)
        self._counts *= exp(-max(0.0, now - self._stepped_at) / WINDOW_SECONDS)
        self._stepped_at = now
        self._counts[:, 0] += good
        for address, count in self._refused.items():
            if (row := rows.get(address)) is not None:
                self._counts[row, 1] += count
        self._refused = {}
        while self._cases and now - next(iter(self._cases.values())).heard_at > WINDOW_SECONDS:
            self._cases.popitem(last=False)
        if self._cases:
            outliers = self._outliers(rows, pools)
            for case in self._cases.values():
                for address in tuple(case.waiting):
                    row = rows.get(address)
                    if row is not None and (address in outliers or case.speaks_against(address, now)):
                        faults[row] += case.take(address)
        return faults

    def _outliers(self, rows: Mapping[str, int], pools: IntArray) -> set[str]:
        """Return who has refused many leading parts and answered none, unlike its peers."""
        refusers = [
            address
            for case in self._cases.values()
            for address, counts in case.by.items()
            if counts.refused > counts.good
        ]
        sums = np.zeros((int(pools.max(initial=0)) + 1, 2))
        np.add.at(sums, pools, self._counts)
        outliers: set[str] = set()
        for address, parts in Counter(refusers).items():
            row = rows.get(address)
            if row is None or parts < MANY_PARTS or self._counts[row, 0] >= ONE_LATELY:
                continue
            good, refused = sums[pools[row]] - self._counts[row]
            if good >= LEAST_ANSWERS and refused <= HARDLY_ANY * (good + refused):
                outliers.add(address)
        return outliers
