"""A worker of the product in the place of the tests' stand-in for ext_proc."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from fleet.settings.membership import membership
from fleet.store import FleetStore, FleetView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envoy.conftest import World


@contextlib.asynccontextmanager
async def worker(world: World, **keys: Any) -> AsyncIterator[CollectorRegistry]:
    """Put a worker of the product in the stand-in's place, and give its metrics."""
    for held in (world.engines.statuses, world.engines.resets, world.engines.delays, world.engines.newest):
        held.clear()
    ours = world.settings.ext_proc
    changed = ours.model_copy(update={"idempotency": ours.idempotency.model_copy(update=keys)})
    settings = world.settings.model_copy(update={"ext_proc": changed})
    store, registry = FleetStore(), CollectorRegistry()
    store.publish(FleetView(membership(settings)))
    server = ExtProcServer(settings, store, registry, TracerProvider(), follow=False)
    await world.ext_proc.kill()
    await world.ext_proc_health(healthy=False)
    await server.start()
    try:
        await world.ext_proc_health(healthy=True)
        # Envoy's workers hear of it a moment after its main thread.
        await world.eventually(lambda: answered(world, registry), "asked")
        yield registry
    finally:
        await server.stop()
        await world.ext_proc_health(healthy=False)
        await world.ext_proc.start()
        await world.ext_proc_health(healthy=True)


async def answered(world: World, registry: CollectorRegistry) -> bool:
    assert (await world.post({"prompt": "x"}, listener="marked", path="/v1/other")).status == 200
    return sum(picks(registry).values()) > 0


def picks(registry: CollectorRegistry) -> dict[str, float]:
    """Reason to how many picks had it, of those that are no zero."""
    family = next(held for held in registry.collect() if held.name == "warmroute_picks")
    return {
        sample.labels["reason"]: sample.value
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    }
