"""What engines list at GET /v1/models, for pools behind a listener that chooses by the model.

Engines load and unload LoRA adapters while they serve, so they are asked again and again. An engine without
an answer keeps its last list. Probes read the same page for another purpose, and only until they pass.
"""

from __future__ import annotations

import asyncio
import dataclasses
from itertools import islice
from typing import TYPE_CHECKING, Final

from fleet.endpoint import Membership, Pool
from xds_server.endpoints.model_list import MOST_LIST_BYTES, PATH, models_of
from xds_server.http1.client import FetchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.endpoint import Endpoint
    from fleet.settings import Settings
    from xds_server.endpoints.engine_client import EngineClient

INTERVAL_SECONDS: Final = 10.0
"""Between two rounds over all engines."""
TIMEOUT_SECONDS: Final = 2.0
AT_ONCE: Final = 16
MOST_LISTED: Final = 256
"""Names of an engine."""
MOST_CHARS: Final = 256
_OK: Final = 200


def names_of(body: bytes, own: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what a list has in addition to an endpoint's own models; None: it is no list of models."""
    models = models_of(body)
    if models is None:
        return None
    listed = dict.fromkeys(model.id for model in models)
    names = (name for name in listed if len(name) <= MOST_CHARS and name.isprintable() and name not in own)
    return tuple(islice(names, MOST_LISTED))


class ModelLists:
    """Asks engines, and adds their lists to the membership. Single-threaded."""

    def __init__(self, settings: Settings, engines: EngineClient, on_change: Callable[[], None]) -> None:
        self._engines, self._on_change = engines, on_change
        self._lists: dict[str, tuple[str, ...]] = {}
        self._membership, self._joined = Membership(), Membership()
        self._stale = False
        """Whether lists have changed that `_joined` does not have yet."""
        self._endpoints: dict[str, Endpoint] = {}
        """Those to ask, by address."""
        self._asking: asyncio.Task[None] | None = None
        self._again = asyncio.Event()
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings."""
        several = (listener.pools for listener in settings.listeners if len(listener.pools) > 1)
        self._pools = frozenset(name for pools in several for name in pools)
        self._membership = Membership()

    def joined(self, membership: Membership) -> Membership:
        """Return a membership with what its engines list; the same object as long as nothing changes."""
        if membership is not self._membership:
            self._membership = membership
            self._endpoints = {e.address: e for e in membership.endpoints if e.pool in self._pools}
            self._lists = {a: names for a, names in self._lists.items() if a in self._endpoints}
            self._stale = True
            self._again.set()
            if self._endpoints and self._asking is None:
                self._asking = asyncio.create_task(self._ask_for_ever(), name="lists of models")
        if self._stale:
            self._stale, self._joined = False, self._with_lists(membership)
        return self._joined

    def _with_lists(self, membership: Membership) -> Membership:
        if not any(self._lists.values()):
            return membership
        return Membership(
            tuple(Pool(p.name, tuple(map(self._listing, p.endpoints))) for p in membership.pools)
        )

    def _listing(self, endpoint: Endpoint) -> Endpoint:
        # Since the answer, the settings may have named more of them.
        names = [name for name in self._lists.get(endpoint.address, ()) if name not in endpoint.models]
        return dataclasses.replace(endpoint, listed=tuple(names)) if names else endpoint

    async def _ask_for_ever(self) -> None:
        while True:
            self._again.clear()
            endpoints = tuple(self._endpoints.values())
            for at in range(0, len(endpoints), AT_ONCE):
                await asyncio.gather(*map(self._ask, endpoints[at : at + AT_ONCE]))
            try:
                await asyncio.wait_for(self._again.wait(), INTERVAL_SECONDS)
            except TimeoutError:
                continue

    async def _ask(self, endpoint: Endpoint) -> None:
        url = self._engines.url(endpoint, PATH)
        try:
            status, body = await self._engines.get(endpoint, url, TIMEOUT_SECONDS, MOST_LIST_BYTES)
        except FetchError:
            return  # Probes report it; the last list stays.
        names = names_of(body, endpoint.models) if status == _OK else None
        address = endpoint.address
        if names is None or names == self._lists.get(address, ()) or self._endpoints.get(address) != endpoint:
            return
        self._lists[address] = names
        self._stale = True
        self._on_change()

    async def close(self) -> None:
        """Stop asking."""
        task, self._asking = self._asking, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
