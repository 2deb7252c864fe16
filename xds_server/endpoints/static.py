"""Endpoints that stand in the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.settings.membership import endpoint_of

if TYPE_CHECKING:
    from fleet.settings import PoolSettings
    from xds_server.endpoints.source import OnEndpoints


class StaticSource:
    """Tells the pool's listed endpoints once."""

    def __init__(self, pool: PoolSettings) -> None:
        self.name = f"pool {pool.name}: settings"
        self._endpoints = tuple(endpoint_of(pool, entry) for entry in pool.endpoints)

    async def run(self, on_endpoints: OnEndpoints) -> None:
        """Tell them and end."""
        on_endpoints(self._endpoints)
