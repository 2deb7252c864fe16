"""Endpoints that a source may not name: those at addresses where no engine is."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from xds_server.http1.place import place_of
from xds_server.http1.special import special

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.endpoint import Endpoint, Membership
    from fleet.settings import PoolSettings

logger = logging.getLogger(__name__)

_MOST_NAMED: Final = 3


def left_out(endpoints: Iterable[Endpoint]) -> dict[str, str]:
    """Return those that are not to be asked: address to why."""
    found = {}
    for endpoint in endpoints:
        hosts = (endpoint.host, *map(_host, (endpoint.metrics_url, endpoint.gpu_metrics_url)))
        if why := next(filter(None, map(special, hosts)), ""):
            found[endpoint.address] = why
    return found


class Screen:
    """Takes such endpoints out of what one source names, and logs once which.

    A name in a URL may lead anywhere later on, so the others are marked: see `Endpoint.screened`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._left_out: dict[str, str] = {}

    def __call__(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...] | None:
        """Return the others. If all are refused, the source counts as silent: None."""
        refused = left_out(endpoints)
        self._tell(refused)
        kept = tuple(replace(each, screened=True) for each in endpoints if each.address not in refused)
        return None if refused and not kept else kept

    def _tell(self, refused: dict[str, str]) -> None:
        if refused and refused != self._left_out:
            named = [f"{address} ({why})" for address, why in islice(sorted(refused.items()), _MOST_NAMED)]
            more = f" and {len(refused) - _MOST_NAMED} more" if len(refused) > _MOST_NAMED else ""
            text = "%s: left out: %s%s; set pools.discovery.special_addresses if engines are there"
            logger.warning(text, self._name, ", ".join(named), more)
        self._left_out = refused


def brought_back(last_good: Membership, pools: Iterable[PoolSettings]) -> dict[str, tuple[Endpoint, ...]]:
    """Return, by pool, the endpoints of a last good state that a source of the pool may name."""
    screened = {pool.name for pool in pools if not any(entry.special_addresses for entry in pool.discovery)}
    kept = {}
    for pool in last_good.pools:
        screen = Screen(f"pool {pool.name}: last good state")
        kept[pool.name] = screen(pool.endpoints) if pool.name in screened else pool.endpoints
    return {name: endpoints for name, endpoints in kept.items() if endpoints}


def _host(url: str) -> str:
    """Return the host that is dialled: full-width digits are digits there."""
    try:
        return place_of(url).host if url else ""
    except ValueError:
        return ""
