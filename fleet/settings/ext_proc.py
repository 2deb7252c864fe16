"""The external processor."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleet.settings.address import ServerAddress
from fleet.settings.idempotency import IdempotencySettings
from fleet.settings.picks import PickSettings
from fleet.settings.shared import SharedSettings
from fleet.settings.strict import Strict
from fleet.settings.workers import MOST_WORKERS, worker_address


class ExtProcSettings(Strict):
    """Where the external processor listens, where Envoy finds it, and how it picks."""

    address: ServerAddress = "unix:/run/warmroute/ext_proc.sock"
    message_timeout_seconds: Annotated[float, Field(gt=0, le=10)] = 0.25
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = 1
    """Processes of `warmroute ext-proc` on one host; Envoys spread requests over all of them."""
    shared: SharedSettings = SharedSettings()
    idempotency: IdempotencySettings = IdempotencySettings()
    name_always: bool = False
    """Name an endpoint by weights where nothing is picked, for gateways that have no balancing of their
    own."""
    clear_route_cache: bool = False
    """Let Envoy choose the route again, with the headers that are set: for routes that match on one of
    them."""
    pick: PickSettings = PickSettings()

    @property
    def worker_addresses(self) -> tuple[str, ...]:
        """Where all workers listen, and where Envoys find them."""
        return tuple(worker_address(self.address, number) for number in range(self.workers))
