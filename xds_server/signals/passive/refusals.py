"""Which side refusals (4xx) speak against: the client, or an endpoint unlike its peers. I/O-free.

A client that is refused by all alike is at fault itself. An endpoint is at fault in two cases, of what Envoys
reported within about `WINDOW_SECONDS`:

- it mostly refuses prompts with a leading part that its peers mostly answer;
- it has refused `MANY_CLIENTS` clients or more and answered nobody, while its peers have answered nearly all
  of theirs.

A session is one client, whatever it sends: a bad one stays with its endpoint, however idle that is. A request
without a session goes where picks or weights send it, and each leading part of such requests counts as a
client. ext_proc notes a digest of the leading part with its pick; all requests without one have one part. A
refusal waits for evidence as long as the window is, and is then a fault of its endpoint, once. Counts of
requests alone would blame the endpoint that a bad client happens to be sent to.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil, exp
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.names import METADATA_PREFIX
from xds_server.signals.rows import FloatArray, IntArray, remapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xds_server.access_log.finished import Finished

WINDOW_SECONDS: Final = 10.0
"""Time constant with which answers fade."""
FADED_SECONDS: Final = 5 * WINDOW_SECONDS
"""Answers of an endpoint that are older than this are dropped."""
MOST_CASES: Final = 1024
"""Leading parts that are followed; the one without an answer for longest goes first."""
MOSTLY: Final = 0.5
FEW: Final = 0.25
"""Share of refusals among peers up to which they mostly answer a leading part."""
MANY_CLIENTS: Final = 5
HARDLY_ANY: Final = 0.1
"""The same over all requests of the peers."""
ONE_LATELY: Final = exp(-1.0)
"""The remainder of one answer at the age of the window's length."""
LEAST_ANSWERS: Final = 10.0
"""Good answers of peers that are evidence."""


class _Counts:
    """Answers that fade."""

    __slots__ = ("at", "good", "refused")

    def __init__(self, now: float) -> None:
        self.good = self.refused = 0.0
        self.at = now

    def add(self, now: float, *, refused: bool) -> None:
        self.fade(now)
        if refused:
            self.refused += 1.0
        else:
            self.good += 1.0

    def fade(self, now: float) -> None:
        remaining_ratio = exp(-max(0.0, now - self.at) / WINDOW_SECONDS)
        self.good *= remaining_ratio
        self.refused *= remaining_ratio
        self.at = now


class _Case:
    """One leading part that was refused lately."""

    __slots__ = ("answered_at", "by", "client", "total", "waiting")

    def __init__(self, now: float) -> None:
        self.total = _Counts(now)
        self.by: OrderedDict[str, _Counts] = OrderedDict()
        """By address, the one that answered last last."""
        self.waiting: dict[str, int] = {}
        """Address to refusals that have not spoken against it yet."""
        self.client: dict[str, int] = {}
        """Address to a hash of the session that it refused last, or of the leading part."""
        self.answered_at = now

    def add(self, address: str, now: float, *, client: int | None = None) -> None:
        """Count a good answer, or with `client` a refusal."""
        refused = client is not None
        if client is not None:
            self.waiting[address] = self.waiting.get(address, 0) + 1
            self.client[address] = client
        counts = self.by.get(address)
        if counts is None:
            counts = self.by[address] = _Counts(now)
        self.by.move_to_end(address)
        counts.add(now, refused=refused)
        self.total.add(now, refused=refused)
        self.answered_at = now
        while now - (oldest := next(iter(self.by.items())))[1].at > FADED_SECONDS:
            self.drop(oldest[0])

    def drop(self, address: str) -> None:
        """Forget an endpoint; its answers still fade in the total."""
        for part in (self.by, self.waiting, self.client):
            part.pop(address, None)

    def speaks_against(self, address: str, now: float) -> bool:
        """Whether an endpoint mostly refuses what its peers mostly answer."""
        here = self.by[address]
        here.fade(now)
        good, refused = self.total.good - here.good, self.total.refused - here.refused
        return here.refused > MOSTLY * (here.refused + here.good) and (
            good >= ONE_LATELY and refused <= FEW * (refused + good)
        )

    def against(self, now: float) -> list[str]:
        """Return the addresses that it speaks against and whose refusals wait."""
        self.total.fade(now)
        if self.total.good < ONE_LATELY:
            return []
        return [address for address in self.waiting if self.speaks_against(address, now)]

    def take(self, address: str) -> int:
        """Return the refusals that speak against an endpoint now: those of old have faded."""
        return min(self.waiting.pop(address), ceil(self.by[address].refused))


class Refusals:
    """Follows finished requests; a row each endpoint of the membership. `now` never goes back."""

    def __init__(self) -> None:
        self._cases: OrderedDict[tuple[str, str], _Case] = OrderedDict()
        """By pool and leading part, the one that was answered last at the end."""
        self._answered: set[tuple[str, str]] = set()
        """Cases with an answer since the last step: no other can begin to speak against anybody."""
        self._rows: dict[str, int] = {}
        self._counts: FloatArray = np.zeros((0, 2))
        """Good answers and refusals of each endpoint, fading."""
        self._refused: IntArray = np.zeros(0, np.int64)
        """Refusals of each since the last step."""
        self._stepped_at = 0.0

    def remap_rows(self, addresses: Sequence[str], source: IntArray) -> None:
        """Follow a changed membership: row i is `addresses[i]` (see `rows.remapped`)."""
        self._rows = {address: row for row, address in enumerate(addresses)}
        self._counts = remapped(self._counts, source, 0.0)
        self._refused = remapped(self._refused, source, 0)
        for case in self._cases.values():
            for address in [address for address in case.by if address not in self._rows]:
                case.drop(address)

    def record(self, finished: Finished, now: float) -> None:
        """Take in a request; it counts if an endpoint of the membership has answered it."""
        row = self._rows.get(finished.address)
        if row is None or finished.first_byte_seconds is None or finished.aborted:
            return
        refused = 400 <= finished.status < 500
        if not refused and not 0 < finished.status < 400:
            return
        key = finished.cluster, finished.metadata.get(METADATA_PREFIX, "")
        case = self._cases.get(key)
        if refused:
            self._refused[row] += 1
            if case is None:
                case = self._cases[key] = _Case(now)
            client = hash(key) if finished.session is None else finished.session
            case.add(finished.address, now, client=client)
        elif case is None:
            return
        else:
            case.add(finished.address, now)
        self._answered.add(key)
        self._cases.move_to_end(key)
        if len(self._cases) > MOST_CASES:
            self._drop_oldest()

    def step(self, pools: IntArray, good: IntArray, now: float) -> IntArray:
        """Return for each endpoint the refusals that have begun to speak against it.

        `good` are its good answers since the last step, and `pools` is the number of its pool.
        """
        faults = np.zeros(len(self._rows), np.int64)
        self._counts *= exp(-max(0.0, now - self._stepped_at) / WINDOW_SECONDS)
        self._stepped_at = now
        self._counts += np.column_stack((good, self._refused))
        self._refused[:] = 0
        while self._cases and now - next(iter(self._cases.values())).answered_at > WINDOW_SECONDS:
            self._drop_oldest()
        for case in [self._cases[key] for key in self._answered]:
            for address in case.against(now):
                faults[self._rows[address]] += case.take(address)
        self._answered.clear()
        if self._cases:
            for address in self._outliers(pools):
                for case in self._cases.values():
                    if address in case.waiting:
                        faults[self._rows[address]] += case.take(address)
        return faults

    def _drop_oldest(self) -> None:
        key, _ = self._cases.popitem(last=False)
        self._answered.discard(key)

    def _outliers(self, pools: IntArray) -> list[str]:
        """Return the endpoints that have refused many clients and answered none, unlike their peers."""
        sums = np.zeros((int(pools.max(initial=0)) + 1, 2))
        np.add.at(sums, pools, self._counts)
        good, refused = self._counts.T
        good_at_peers, refused_by_peers = (sums[pools] - self._counts).T
        unlike = (
            (good < ONE_LATELY)
            & (refused >= MANY_CLIENTS * ONE_LATELY)
            & (good_at_peers >= LEAST_ANSWERS)
            & (refused_by_peers <= HARDLY_ANY * (good_at_peers + refused_by_peers))
        )
        if not unlike.any():
            return []
        return [address for address, row in self._rows.items() if unlike[row] and self._refused_many(address)]

    def _refused_many(self, address: str) -> bool:
        clients = {
            case.client[address]
            for case in self._cases.values()
            if address in case.client and case.by[address].refused > case.by[address].good
        }
        return len(clients) >= MANY_CLIENTS
