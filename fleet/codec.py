"""Between fleet views and the messages of `proto/warmroute/v1`. Ages travel, clock readings do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.endpoint import Endpoint, Locality, Membership, Pool
from fleet.errors import PeerError
from fleet.load import PICK_FIELDS, Load, Signal, signal
from fleet.store import FleetView, Traffic
from fleet.wire import control_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable


def encode_membership(membership: Membership) -> control_pb2.FleetUpdate:
    """Everything that a worker needs to know about endpoints; metrics URLs stay with xds_server."""
    update = control_pb2.FleetUpdate()
    update.membership.SetInParent()
    for pool in membership.pools:
        sent = update.membership.pools.add(name=pool.name)
        for endpoint in pool.endpoints:
            place = endpoint.locality
            sent.endpoints.add(
                address=endpoint.address,
                models=endpoint.models,
                engine=endpoint.engine,
                region=place.region,
                zone=place.zone,
                sub_zone=place.sub_zone,
                fault_domains=endpoint.fault_domains,
            )
    return update


def decode_membership(update: control_pb2.MembershipUpdate) -> Membership:
    """Read the inverse of `encode_membership`."""
    return Membership(
        tuple(
            Pool(
                pool.name,
                tuple(
                    Endpoint(
                        address=entry.address,
                        pool=pool.name,
                        models=tuple(entry.models),
                        engine=entry.engine,
                        locality=Locality(entry.region, entry.zone, entry.sub_zone),
                        fault_domains=tuple(entry.fault_domains),
                    )
                    for entry in pool.endpoints
                ),
            )
            for pool in update.pools
        )
    )


def encode_loads(view: FleetView, now: float) -> control_pb2.FleetUpdate:
    """Weights, loads and other workers' requests, in the order of the view's endpoints."""
    update = control_pb2.FleetUpdate()
    update.loads.SetInParent()
    for endpoint in view.membership.endpoints:
        address = endpoint.address
        sent = update.loads.endpoints.add(
            weight=view.weights.get(address, 0),
            in_flight_elsewhere=view.in_flight_elsewhere.get(address, 0),
        )
        if (load := view.loads.get(address)) is None:
            continue
        for name in PICK_FIELDS:
            held: Signal | None = getattr(load, name)
            if held is not None:
                age = max(0.0, now - held.observed_at)
                target = getattr(sent, name)
                target.value, target.age_seconds, target.source = held.value, age, held.source
    return update


def decode_loads(update: control_pb2.LoadUpdate, membership: Membership, now: float) -> FleetView:
    """Read the inverse of `encode_loads` for the membership that came before it.

    Raises:
        PeerError: the number of entries is not that of the membership's endpoints.
    """
    endpoints = membership.endpoints
    if len(update.endpoints) != len(endpoints):
        raise PeerError(f"{len(update.endpoints)} loads for {len(endpoints)} endpoints")
    weights, loads, elsewhere = {}, {}, {}
    for endpoint, entry in zip(endpoints, update.endpoints, strict=True):
        if entry.weight:
            weights[endpoint.address] = entry.weight
        if entry.in_flight_elsewhere:
            elsewhere[endpoint.address] = entry.in_flight_elsewhere
        loads[endpoint.address] = Load(
            **{
                field.name: signal(sent.value, now - sent.age_seconds, sent.source)
                for field, sent in entry.ListFields()
                if field.name in PICK_FIELDS
            }
        )
    return FleetView(membership, weights, loads, elsewhere)


def encode_traffic(traffic: Iterable[Traffic]) -> control_pb2.FollowRequest:
    """A worker's report."""
    request = control_pb2.FollowRequest()
    request.report.SetInParent()
    for seen in traffic:
        request.report.endpoints.add(
            address=seen.address,
            in_flight=seen.in_flight,
            started_total=seen.started_total,
            finished_total=seen.finished_total,
            duration_p99_seconds=seen.duration_p99_seconds,
        )
    return request


def decode_traffic(report: control_pb2.TrafficReport) -> list[Traffic]:
    """Read the inverse of `encode_traffic`; a latency that is not finite is unknown."""
    return [
        Traffic(
            address=entry.address,
            in_flight=entry.in_flight,
            started_total=entry.started_total,
            finished_total=entry.finished_total,
            duration_p99_seconds=held.value
            if entry.HasField("duration_p99_seconds")
            and (held := signal(entry.duration_p99_seconds, 0.0, "traffic")) is not None
            else None,
        )
        for entry in report.endpoints
    ]
