"""The resources of the settings while engines change what they depend on: the lists of models, the protocols.

Routes of one listener take a tenth of a second to make, and engines choose when their lists and protocols
change. So those of unchanged settings are made again on a thread, and the earlier ones hold meanwhile.
"""

from __future__ import annotations

import asyncio
from operator import is_
from typing import TYPE_CHECKING

from xds_server.envoy.build import of_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.models import ModelTable
    from fleet.settings import Settings
    from xds_server.http2.protocol_choice import ProtocolChoice
    from xds_server.snapshot.snapshot import Resource

    Inputs = tuple[Settings, ProtocolChoice, Mapping[str, ModelTable]]


class Remaking:
    """The newest resources of the settings. All calls come from one event loop."""

    def __init__(self, on_newer: Callable[[], None]) -> None:
        """`on_newer` is called when `resources` has newer ones."""
        self._on_newer = on_newer
        self._inputs: Inputs | None = None
        self._resources: tuple[Resource, ...] = ()
        self._task: asyncio.Task[None] | None = None

    def resources(
        self, settings: Settings, protocols: ProtocolChoice, models: Mapping[str, ModelTable]
    ) -> tuple[Resource, ...]:
        """Return the resources; those of earlier protocols and models while the newer ones are made.

        Raises:
            SnapshotError: as `of_settings`, also if newer ones could not be made.
        """
        inputs = settings, protocols, models
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            task.result()
        if self._inputs is None or self._inputs[0] is not settings:
            self._inputs, self._resources = inputs, of_settings(*inputs)
        elif self._task is None and not all(map(is_, self._inputs, inputs)):
            self._task = asyncio.create_task(self._remake(inputs), name="resources of the settings")
        return self._resources

    async def _remake(self, inputs: Inputs) -> None:
        try:
            resources = await asyncio.to_thread(of_settings, *inputs)
        finally:
            self._on_newer()
        if self._inputs is not None and self._inputs[0] is inputs[0]:
            self._inputs, self._resources = inputs, resources

    async def close(self) -> None:
        """Wait for what is being made."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
