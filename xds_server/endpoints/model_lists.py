"""What engines list at GET /v1/models, for pools behind a listener that chooses by the model.

Engines load and unload LoRA adapters while they serve, so they are asked again and again. An engine without
an answer keeps its last list.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Final

import msgspec

from fleet.endpoint import Membership, Pool
from xds_server.http1.client import Client, FetchError
from xds_server.tls.engine_tls import plaintext

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.endpoint import Endpoint
    from fleet.settings import Settings
    from xds_server.tls.engine_tls import EngineTls

INTERVAL_SECONDS: Final = 10.0
"""Between two rounds over all engines."""
TIMEOUT_SECONDS: Final = 2.0
AT_ONCE: Final = 16
MOST_LISTED: Final = 256
"""Names of an engine."""
MOST_CHARS: Final = 256
_MOST_BYTES: Final = 1_048_576
_OK: Final = 200


class _Model(msgspec.Struct, gc=False):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_DECODER: Final = msgspec.json.Decoder(_Models)


def names_of(body: bytes, own: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what a list has in addition to an endpoint's own models; None: it is no list of models."""
    try:
        listed = dict.fromkeys(model.id for model in _DECODER.decode(body).data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    names = (
        name for name in listed if 0 < len(name) <= MOST_CHARS and name.isprintable() and name not in own
    )
    return tuple(names)[:MOST_LISTED]


class ModelLists:
    """Asks engines, and adds their lists to the membership. Single-threaded."""

    def __init__(
        self, settings: Settings, *, on_change: Callable[[], None], engine_tls: EngineTls = plaintext
    ) -> None:
        self._on_change, self._engine_tls = on_change, engine_tls
        self._client = Client({"Accept-Encoding": "identity", "User-Agent": "warmroute"}, keeps=False)
        self._lists: dict[str, tuple[str, ...]] = {}
        self._membership, self._joined = Membership(), Membership()
        self._endpoints: tuple[Endpoint, ...] = ()
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
            self._endpoints = tuple(e for e in membership.endpoints if e.pool in self._pools)
            addresses = {endpoint.address for endpoint in self._endpoints}
            self._lists = {a: names for a, names in self._lists.items() if a in addresses}
            self._joined = self._with_lists(membership)
            self._again.set()
            if self._endpoints and self._asking is None:
                self._asking = asyncio.create_task(self._ask_for_ever(), name="lists of models")
        return self._joined

    def _with_lists(self, membership: Membership) -> Membership:
        if not any(self._lists.values()):
            return membership
        return Membership(
            tuple(Pool(p.name, tuple(map(self._listing, p.endpoints))) for p in membership.pools)
        )

    def _listing(self, endpoint: Endpoint) -> Endpoint:
        names = self._lists.get(endpoint.address)
        return dataclasses.replace(endpoint, listed=names) if names else endpoint

    async def _ask_for_ever(self) -> None:
        while True:
            self._again.clear()
            endpoints = self._endpoints
            for at in range(0, len(endpoints), AT_ONCE):
                await asyncio.gather(*map(self._ask, endpoints[at : at + AT_ONCE]))
            try:
                await asyncio.wait_for(self._again.wait(), INTERVAL_SECONDS)
            except TimeoutError:
                continue

    async def _ask(self, endpoint: Endpoint) -> None:
        dial = self._engine_tls(endpoint.pool)
        url = f"{'http' if dial is None else 'https'}://{endpoint.address}/v1/models"
        try:
            got, body = await self._client.get(
                url, TIMEOUT_SECONDS, _MOST_BYTES, dial, screened=endpoint.screened
            )
        except FetchError:
            return  # Probes report it; the last list stays.
        names = names_of(body, endpoint.models) if got.status == _OK else None
        if names is None or names == self._lists.get(endpoint.address, ()) or endpoint not in self._endpoints:
            return
        self._lists[endpoint.address] = names
        self._joined = self._with_lists(self._membership)
        self._on_change()

    async def close(self) -> None:
        """Stop asking."""
        task, self._asking = self._asking, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
