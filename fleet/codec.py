"""Between fleet views and the messages of `proto/warmroute/v1`. Ages travel, clock readings do not."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from math import isfinite, isnan
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.endpoint import Endpoint, KvEventSource, Locality, Membership, Pool
from fleet.errors import PeerError
from fleet.ranks import MOST_RANKS, RANK_SIGNALS, PoolRanks
from fleet.signals import MOST, PICK_SIGNALS, ROW, SIGNALS, SignalTable, Source, checked
from fleet.store import FleetView, Missed, Placement, Traffic
from fleet.wire import control_pb2
from fleet.wire_fields import fields, sized

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

_WIRE: Final = np.dtype("<f8")
"""How a column's numbers travel."""
MAX_IN_FLIGHT: Final = 1_000_000
"""The most of `limits.ext_proc_streams`, for one worker at one endpoint; a larger number counts as this."""
_MAX_COUNT: Final = 2**32 - 1
_ENTRIES_FACTOR: Final = 2
_MORE_ENTRIES: Final = 64
"""Entries of a report beyond the membership's, because its worker may not know yet which endpoints have
left."""
MAX_ADDRESS: Final = 64
"""Characters of an endpoint's address."""
_REPORT: Final = sized(control_pb2.FollowRequest.REPORT_FIELD_NUMBER)
_REPORTS: Final = 4
"""Fields of a large message to read; a report has one."""
_PART_ENTRIES: Final = 256


def encode_membership(membership: Membership) -> control_pb2.FleetUpdate:
    """Encode what a worker needs of each endpoint; metrics URLs stay with xds_server."""
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
                listed=endpoint.listed,
                own_names=endpoint.own_names,
                kv_events=endpoint.kv_events and control_pb2.KvEventSource(**asdict(endpoint.kv_events)),
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
                        kv_events=_decode_source(entry),
                        listed=tuple(entry.listed),
                        own_names=tuple(entry.own_names),
                    )
                    for entry in pool.endpoints
                ),
            )
            for pool in update.pools
        )
    )


def _decode_source(entry: control_pb2.Endpoint) -> KvEventSource | None:
    if not entry.HasField("kv_events"):
        return None
    source = entry.kv_events
    return KvEventSource(source.port, source.replay_port, source.topic, source.ranks)


def encode_loads(view: FleetView, now: float) -> control_pb2.FleetUpdate:
    """Encode weights and loads in the order of the view's endpoints: the same for every worker."""
    addresses = view.membership.addresses
    update = control_pb2.FleetUpdate()
    loads = update.loads
    loads.SetInParent()
    loads.weights.extend([view.weights.get(address, 0) for address in addresses])
    loads.sampling_ratio_floor = view.sampling_ratio_floor
    loads.overridden.extend([n for n, address in enumerate(addresses) if address in view.overridden])
    for name in PICK_SIGNALS:
        values = view.signals[name].astype(_WIRE, copy=False)
        if not np.isnan(values).all():
            ages = np.maximum(now - view.signals.at(name), 0.0).astype(_WIRE, copy=False)
            loads.signals.add(name=name, values=values.tobytes(), ages_seconds=ages.tobytes())
    for pool, ranks in view.ranks.items():
        sent = loads.ranks.add(pool=pool, count=ranks.count, named=ranks.named)
        for name, numbers in zip(RANK_SIGNALS, ranks.values, strict=True):
            sent.signals.add(name=name, values=numbers.astype(_WIRE, copy=False).tobytes())
    return update


def decode_loads(update: control_pb2.LoadUpdate, membership: Membership, now: float) -> FleetView:
    """Read the inverse of `encode_loads` for the membership that came before it.

    Raises:
        PeerError: the length of a column is not the number of the membership's endpoints or ranks, or an
            overridden endpoint or a pool with ranks is none of them.
    """
    addresses = membership.addresses
    if len(update.weights) != len(addresses):
        raise PeerError(f"{len(update.weights)} loads for {len(addresses)} endpoints")
    shape = len(SIGNALS), len(addresses)
    values, observed_at = np.full(shape, np.nan), np.full(shape, np.nan)
    for column in update.signals:
        if column.name in PICK_SIGNALS:
            row = ROW[column.name]
            numbers = _column(column.values, len(addresses))
            ages = _column(column.ages_seconds, len(addresses))
            # As `checked` does for one number.
            valid = (numbers >= 0) & (numbers <= MOST) & np.isfinite(ages)
            values[row] = np.where(valid, numbers, np.nan)
            observed_at[row] = np.where(valid, now - np.maximum(ages, 0.0), np.nan)
    sources = np.where(np.isnan(values), Source.NONE, Source.CONTROL).astype(np.uint8)
    floor = update.sampling_ratio_floor
    if any(place >= len(addresses) for place in update.overridden):
        raise PeerError(f"overridden endpoints {list(update.overridden)[:10]} of {len(addresses)}")
    return FleetView(
        membership,
        {address: weight for address, weight in zip(addresses, update.weights, strict=True) if weight},
        SignalTable(addresses, values, observed_at, sources),
        sampling_ratio_floor=min(floor, 1.0) if isfinite(floor) and floor > 0 else 0.0,
        overridden=frozenset(addresses[place] for place in update.overridden),
        ranks=_decode_ranks(update, membership) if update.ranks else {},
    )


def _decode_ranks(update: control_pb2.LoadUpdate, membership: Membership) -> dict[str, PoolRanks]:
    sizes = {pool.name: len(pool.endpoints) for pool in membership.pools}
    ranks: dict[str, PoolRanks] = {}
    for sent in update.ranks:
        if sent.pool not in sizes or not 2 <= sent.count <= MOST_RANKS:
            raise PeerError(f"{sent.count} ranks in the pool {sent.pool[:MAX_ADDRESS]!r}")
        shape = sizes[sent.pool], sent.count
        values = np.full((len(RANK_SIGNALS), *shape), np.nan)
        for column in sent.signals:
            if column.name in RANK_SIGNALS:
                numbers = _column(column.values, shape[0] * shape[1]).reshape(shape)
                valid = (numbers >= 0) & (numbers <= MOST)
                values[RANK_SIGNALS.index(column.name)] = np.where(valid, numbers, np.nan)
        ranks[sent.pool] = PoolRanks(sent.named, values)
    return ranks


def _column(sent: bytes, count: int) -> NDArray[np.float64]:
    if len(sent) != count * _WIRE.itemsize:
        raise PeerError(f"a column of {len(sent)} bytes for {count} endpoints")
    return np.frombuffer(sent, _WIRE).astype(np.float64, copy=False)


def encode_in_flight(
    elsewhere: Mapping[str, int], prefill: Mapping[str, float], membership: Membership
) -> control_pb2.FleetUpdate:
    """Encode other workers' requests in flight and prefill, in the order of the membership's endpoints."""
    update = control_pb2.FleetUpdate()
    update.in_flight.elsewhere.extend(
        [min(elsewhere.get(address, 0), _MAX_COUNT) for address in membership.addresses]
    )
    update.in_flight.SetInParent()
    if prefill:
        update.in_flight.prefill_seconds_total.extend(
            [prefill.get(address, 0.0) for address in membership.addresses]
        )
    return update


def decode_in_flight(update: control_pb2.InFlightUpdate, membership: Membership) -> dict[str, int]:
    """Read the inverse of `encode_in_flight` for the membership that came before it.

    Raises:
        PeerError: the number of entries is not that of the membership's endpoints.
    """
    addresses = membership.addresses
    if len(update.elsewhere) != len(addresses):
        raise PeerError(f"{len(update.elsewhere)} counts for {len(addresses)} endpoints")
    return {address: count for address, count in zip(addresses, update.elsewhere, strict=True) if count}


def decode_prefill(update: control_pb2.InFlightUpdate, membership: Membership) -> dict[str, float]:
    """Read other workers' seconds of prefill; empty if the server does not send them.

    Raises:
        PeerError: the number of entries is not that of the membership's endpoints.
    """
    addresses, sent = membership.addresses, update.prefill_seconds_total
    if len(sent) not in (0, len(addresses)):
        raise PeerError(f"{len(sent)} sums of prefill for {len(addresses)} endpoints")
    # Without a column, no pair is left.
    return {
        address: seconds
        for address, seconds in zip(addresses, sent, strict=False)
        if isfinite(seconds) and seconds >= 0
    }


def encode_placements(placements: Iterable[Placement]) -> control_pb2.Placements:
    """Encode placements, the newest last."""
    return control_pb2.Placements(
        placements=[control_pb2.Placement(name=name, endpoint=endpoint) for name, endpoint in placements]
    )


def decode_placements(sent: control_pb2.Placements) -> list[Placement]:
    """Read the inverse of `encode_placements`; what names no endpoint is left out."""
    return [
        Placement(entry.name, entry.endpoint)
        for entry in sent.placements
        if entry.name and 0 < len(entry.endpoint) <= MAX_ADDRESS
    ]


def encode_missed(missed: Iterable[Missed]) -> control_pb2.FleetUpdate:
    """Encode requests that the first endpoint of their pick did not answer successfully."""
    update = control_pb2.FleetUpdate()
    update.missed.SetInParent()
    for each in missed:
        update.missed.missed.add(**each._asdict())
    return update


def decode_missed(update: control_pb2.MissedUpdate) -> list[Missed]:
    """Read the inverse of `encode_missed`."""
    return [
        Missed(entry.prompt, entry.picked, entry.served, entry.serial, entry.request)
        for entry in update.missed
    ]


def encode_traffic(traffic: Iterable[Traffic]) -> control_pb2.FollowRequest:
    """Encode a worker's report."""
    request = control_pb2.FollowRequest()
    request.report.SetInParent()
    add = request.report.endpoints.add
    for entry in traffic:
        add(
            address=entry.address,
            in_flight=entry.in_flight,
            started_total=entry.started_total,
            finished_total=entry.finished_total,
            duration_p99_seconds=entry.duration_p99_seconds,
            oldest_in_flight_seconds=entry.oldest_in_flight_seconds,
            prefill_seconds_total=entry.prefill_seconds_total,
        )
    return request


def decode_traffic(report: control_pb2.TrafficReport, membership: Membership) -> list[Traffic]:
    """Read the inverse of `encode_traffic` for the membership's endpoints.

    Other endpoints are left out, as are entries far beyond the number of endpoints. A duration that is not
    finite is unknown.
    """
    by_address = membership.by_address
    return [
        Traffic(
            address=entry.address,
            in_flight=min(entry.in_flight, MAX_IN_FLIGHT),
            started_total=entry.started_total,
            finished_total=entry.finished_total,
            duration_p99_seconds=_seconds(entry, "duration_p99_seconds"),
            oldest_in_flight_seconds=_seconds(entry, "oldest_in_flight_seconds"),
            prefill_seconds_total=_seconds(entry, "prefill_seconds_total"),
        )
        for entry in islice(report.endpoints, _most_entries(membership))
        if entry.address in by_address
    ]


def traffic_in_parts(message: bytes, membership: Membership) -> Iterator[list[Traffic]]:
    """Read a serialised report of any size in parts, each in a millisecond or two.

    Raises:
        DecodeError: the bytes are no message.
        PeerError: the message is no report.
    """
    left = _most_entries(membership)
    for tag, start, stop in islice(fields(message, 0, len(message)), _REPORTS):
        if tag != _REPORT:
            raise PeerError("a large message that is no report")
        begin, looked = start, 0
        for _, _, end in fields(message, start, stop):
            looked += 1
            if looked == min(_PART_ENTRIES, left) or end == stop:
                part = control_pb2.TrafficReport.FromString(message[begin:end])
                yield decode_traffic(part, membership)
                left -= looked
                begin, looked = end, 0
                if left <= 0:
                    return


def _most_entries(membership: Membership) -> int:
    return _ENTRIES_FACTOR * len(membership.by_address) + _MORE_ENTRIES


def _seconds(entry: control_pb2.EndpointTraffic, name: str) -> float | None:
    seconds = checked(name, getattr(entry, name) if entry.HasField(name) else None)
    return None if isnan(seconds) else seconds
