"""Who would not serve, and who may be left out for it: never the last of a model who would. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fleet.endpoint import Pool
    from fleet.signals import SignalTable


def left_out(
    pools: Iterable[Pool],
    candidates: frozenset[str],
    unfit: frozenset[str],
    leaving: frozenset[str] = frozenset(),
) -> frozenset[str]:
    """Return those of `candidates` that get nothing new.

    A candidate is left out only while somebody who stays serves each of its models: an endpoint of its pool
    that is no candidate, does not leave, and is not in `unfit`. An endpoint without models serves any.
    """
    out: set[str] = set()
    for pool in pools if candidates else ():
        there = [endpoint for endpoint in pool.endpoints if endpoint.address not in leaving]
        stay = [e.models for e in there if e.address not in candidates and e.address not in unfit]
        models = {model for names in stay for model in names}
        for endpoint in there:
            served = bool(stay) and (not all(stay) or models.issuperset(endpoint.models))
            if served and endpoint.address in candidates:
                out.add(endpoint.address)
    return frozenset(out)


def asleep_of(pages: SignalTable, oldest: float) -> frozenset[str]:
    """Return the endpoints that sleep; what was observed before `oldest` is unknown, and awake."""
    return _where(pages, "awake", 0.0, oldest)


def unfit_of(
    pages: SignalTable,
    stalls: SignalTable,
    not_ready: Collection[str],
    oldest: float,
) -> frozenset[str]:
    """Return who would not serve: unreachable or asleep by `pages`, hanging by `stalls`, or not ready.

    Unknown is neutral, as is what was observed before `oldest`.
    """
    unreachable = _where(pages, "reachable", 0.0, oldest)
    return asleep_of(pages, oldest).union(unreachable, _where(stalls, "stalled", 1.0, oldest), not_ready)


def _where(signals: SignalTable, name: str, value: float, oldest: float) -> frozenset[str]:
    columns = np.flatnonzero((signals[name] == value) & (signals.at(name) >= oldest))
    return frozenset(signals.addresses[column] for column in columns.tolist())
