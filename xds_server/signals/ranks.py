"""Whether a pool's picks choose among data-parallel ranks, and whether they name them. Pure.

The rule, with its reasons, is in docs/decisions/0034.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fleet.ranks import RANK_SIGNALS, PoolRanks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fleet.endpoint import Membership
    from fleet.settings import Settings
    from xds_server.signals.scrape.ranks import RankPage


def ranks_of(
    settings: Settings,
    active: Membership,
    served: Membership,
    pages: Mapping[str, RankPage],
    not_ready: Collection[str],
) -> dict[str, PoolRanks]:
    """Return the ranks of pools whose picks choose among them.

    `active` are the endpoints that get new requests, `served` all that Envoys have, and `pages` what each
    endpoint shows; an endpoint that shows nothing is missing there.
    """
    if not pages:
        return {}
    permits = {pool.name: pool.pick_ranks for pool in settings.pools}
    others = {pool.name: pool.endpoints for pool in served.pools}
    ranks: dict[str, PoolRanks] = {}
    for pool in active.pools:
        if (setting := permits.get(pool.name, "never")) == "never":
            continue
        own = [endpoint.address for endpoint in pool.endpoints]
        leaving = {endpoint.address for endpoint in others.get(pool.name, ())} - {*own}
        own_ranks = _of_pool(own, leaving, pages, not_ready, every_kind=setting == "always")
        if own_ranks is not None:
            ranks[pool.name] = own_ranks
    return ranks


def _of_pool(
    own: Sequence[str],
    leaving: Collection[str],
    pages: Mapping[str, RankPage],
    not_ready: Collection[str],
    *,
    every_kind: bool,
) -> PoolRanks | None:
    shown = [pages.get(address) for address in own]
    pages_read = [page for page in shown if page is not None]
    counts = {page.count for page in pages_read}
    if len(counts) != 1 or (count := counts.pop()) == 1:
        return None
    if not every_kind and not all(page.takes_header for page in pages_read):
        return None
    nothing = np.full((len(RANK_SIGNALS), count), np.nan)
    values = np.stack([nothing if page is None else page.values for page in shown], axis=1)
    ready = any(address in pages and address not in not_ready for address in own)
    named = ready and all(
        page.count == count
        if (page := pages.get(address)) is not None
        else address in not_ready or address in leaving
        for address in (*own, *leaving)
    )
    return PoolRanks(named, values)
