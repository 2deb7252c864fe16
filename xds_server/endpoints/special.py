"""Endpoints that a source must not name: those at addresses that cannot be an engine's."""

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


def special_endpoints(endpoints: Iterable[Endpoint]) -> dict[str, str]:
    """Return the endpoints that must not be used: address to reason."""
    refused = {}
    for endpoint in endpoints:
        hosts = (endpoint.host, *map(_host, (endpoint.metrics_url, endpoint.gpu_metrics_url)))
        if why := next(filter(None, map(special, hosts)), ""):
            refused[endpoint.address] = why
    return refused


class Screen:
    """Removes such endpoints from those of one source, and logs each change once.

    A name in a URL may resolve to anything later on, so the others are marked: see `Endpoint.screened`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._left_out: dict[str, str] = {}

    def __call__(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...] | None:
        """Return the others; None: all are refused, so the endpoints of the source count as unknown."""
        refused = special_endpoints(endpoints)
        self._log_refused(refused)
        kept = tuple(replace(each, screened=True) for each in endpoints if each.address not in refused)
        return None if refused and not kept else kept

    def _log_refused(self, refused: dict[str, str]) -> None:
        if refused and refused != self._left_out:
            named = [f"{address} ({why})" for address, why in islice(sorted(refused.items()), _MOST_NAMED)]
            more = f" and {len(refused) - _MOST_NAMED} more" if len(refused) > _MOST_NAMED else ""
            text = "%s: left out: %s%s; set pools.discovery.special_addresses if engines are there"
            logger.warning(text, self._name, ", ".join(named), more)
        self._left_out = refused


def screen_last_good(last_good: Membership, pools: Iterable[PoolSettings]) -> dict[str, tuple[Endpoint, ...]]:
    """Return, by pool, the endpoints of a last good state that a source of the pool may name."""
    screened = {pool.name for pool in pools if not any(entry.special_addresses for entry in pool.discovery)}
    screened_pools = {}
    for pool in last_good.pools:
        screen = Screen(f"pool {pool.name}: last good state")
        screened_pools[pool.name] = screen(pool.endpoints) if pool.name in screened else pool.endpoints
    return {name: endpoints for name, endpoints in screened_pools.items() if endpoints}


def _host(url: str) -> str:
    """Return the host to connect to, with full-width digits normalised."""
    try:
        return place_of(url).host if url else ""
    except ValueError:
        return ""
