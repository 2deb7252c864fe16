"""Requests that fail at every engine, so that no engine is at fault. I/O-free.

A 5xx answer speaks against its engine, unless within `WINDOW_SECONDS`

- the same request, or one with the same leading part, has failed at another engine of the pool, and
- no engine has answered such a request well.

Two engines that fail are no evidence against a request that a third one answers. The first failure counts, as
there is no evidence yet; a single fault costs no trust, and picks send that very request elsewhere next.
ext_proc notes both digests with its pick. A failed connection is always its engine's.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING, Final

from fleet.names import METADATA_PREFIX, METADATA_REQUEST
from xds_server.access_log.finished import HOST_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xds_server.access_log.finished import Finished

WINDOW_SECONDS: Final = 10.0
MOST_CASES: Final = 1024
"""Requests and leading parts that are followed; the one without an answer for longest goes first."""
_MOST_ENGINES: Final = 2
"""Engines that are remembered of a case: of any engine, one of two is another."""

_Key = tuple[str, str, str]
"""Pool, and which digest it is, with the digest."""


class _Case:
    __slots__ = ("answered_at", "failed_at")

    def __init__(self) -> None:
        self.failed_at: OrderedDict[str, float] = OrderedDict()
        """By engine, the newest last."""
        self.answered_at = -inf
        """When an engine answered well."""

    def fail(self, address: str, now: float) -> None:
        self.failed_at[address] = now
        self.failed_at.move_to_end(address)
        if len(self.failed_at) > _MOST_ENGINES:
            self.failed_at.popitem(last=False)

    def excuses(self, address: str, oldest: float) -> bool:
        others = (at for other, at in self.failed_at.items() if other != address)
        return self.answered_at < oldest and any(at >= oldest for at in others)


class SharedFaults:
    """Follows finished requests. `now` never goes back."""

    def __init__(self) -> None:
        self._cases: OrderedDict[_Key, _Case] = OrderedDict()

    def record(self, finished: Finished, now: float) -> frozenset[str]:
        """Take in a request; return the engines that are not at fault although it failed there."""
        if finished.first_byte_seconds is None or finished.aborted or not finished.status:
            return frozenset()
        keys = list(_keys(finished))
        if finished.status < 500:  # A 4xx is an answer of a sound engine.
            for key in keys:
                if (case := self._cases.get(key)) is not None:
                    case.answered_at = now
            return frozenset()
        if not HOST_FLAGS.isdisjoint(finished.flags):
            return frozenset()
        failed = {finished.address, finished.picked} if finished.retried_away else {finished.address}
        for key in keys:
            case = self._cases.setdefault(key, _Case())
            self._cases.move_to_end(key)
            for address in failed:
                case.fail(address, now)
        while len(self._cases) > MOST_CASES:
            self._cases.popitem(last=False)
        oldest = now - WINDOW_SECONDS
        cases = [self._cases[key] for key in keys if key in self._cases]
        return frozenset(each for each in failed if any(case.excuses(each, oldest) for case in cases))


def _keys(finished: Finished) -> Iterator[_Key]:
    for name in (METADATA_REQUEST, METADATA_PREFIX):
        if digest := finished.metadata.get(name):
            yield finished.cluster, name, digest
