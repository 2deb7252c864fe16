"""From settings to the membership that both services use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.endpoint import Endpoint, KvEventSource, Locality, Membership, Pool

if TYPE_CHECKING:
    from fleet.settings.model import Settings
    from fleet.settings.pools import EndpointSettings, PoolSettings


def membership(settings: Settings) -> Membership:
    """Return every pool with its endpoints, defaults filled in."""
    return Membership(
        tuple(
            Pool(pool.name, tuple(endpoint_of(pool, entry) for entry in pool.endpoints))
            for pool in settings.pools
        )
    )


def endpoint_of(pool: PoolSettings, entry: EndpointSettings) -> Endpoint:
    """Return an endpoint by its settings and its pool's defaults."""
    place = entry.locality
    events = entry.kv_events or pool.kv_events
    node = entry.node or entry.address.rpartition(":")[0].strip("[]")
    return Endpoint(
        address=entry.address,
        pool=pool.name,
        models=pool.models if entry.models is None else entry.models,
        engine=entry.engine or pool.engine,
        metrics_url=entry.metrics_url or _page_of(pool, entry.address),
        locality=Locality(place.region, place.zone, place.sub_zone),
        node=node,
        gpus=entry.gpus,
        gpu_metrics_url=entry.gpu_metrics_url or "",
        fault_domains=(node, *entry.fault_domains),
        kv_events=None
        if events is None
        else KvEventSource(events.port, events.replay_port or 0, events.topic, events.ranks),
        metric_names=()
        if pool.metric_names is None
        else tuple(pool.metric_names.model_dump(exclude_none=True).items()),
        api_key_file=pool.api_key_file or "",
    )


def _page_of(pool: PoolSettings, address: str) -> str:
    scheme, page = "http" if pool.tls is None else "https", pool.metrics
    if page is None:
        return f"{scheme}://{address}/metrics"
    host, _, own = address.rpartition(":")
    if page.port not in (None, int(own)):
        scheme = "http"
    return f"{page.scheme or scheme}://{host}:{page.port or own}{page.path}"
