"""One pool's ClusterLoadAssignment, put together from pieces that were serialised before.

Weights change far more often than endpoints, and every node group has weights of its own. So the bytes of
each endpoint and locality are made once for a membership, by upb; a push joins them with the bytes of the
weights. The result equals the bytes that upb writes for the whole message (a test compares the two).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.envoy_api.config.core.v3 import base_pb2, health_check_pb2
from fleet.envoy_api.config.endpoint.v3 import endpoint_components_pb2
from fleet.errors import SnapshotError
from fleet.names import TYPE_ENDPOINT
from fleet.wire_fields import field_of, varint_of
from xds_server.snapshot.snapshot import Resource
from xds_server.weights.border import MAX_WEIGHT, MIN_WEIGHT
from xds_server.weights.topology import Places, nearer_weighs_more

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from fleet.endpoint import Endpoint, Locality, Pool
    from xds_server.weights.columns import FloatArray

# Tags of length-delimited fields: field number << 3 | 2.
_CLUSTER_NAME: Final = b"\x0a"  # ClusterLoadAssignment.cluster_name
_ENDPOINTS: Final = b"\x12"  # ClusterLoadAssignment.endpoints
_LOCALITY: Final = b"\x0a"  # LocalityLbEndpoints.locality
_LB_ENDPOINTS: Final = b"\x12"  # LocalityLbEndpoints.lb_endpoints
_LB_WEIGHT: Final = b"\x22"  # LbEndpoint.load_balancing_weight

# LocalityLbEndpoints.load_balancing_weight, a message with 1. Equal for all: gRPC's ring_hash multiplies it
# into the endpoints' weights, and drops a locality without one. Envoy's Maglev does not look at it.
_LOCALITY_WEIGHT: Final = b"\x1a\x02\x08\x01"

_MAX_UINT32: Final = 2**32 - 1
_ONE_BYTE_VARINT: Final = 128
_HEALTHY: Final[int] = health_check_pb2.HEALTHY


class Layout:
    """A pool's endpoints in the order of its assignment: by locality, then by address."""

    def __init__(self, pool: Pool) -> None:
        grouped: dict[Locality, list[Endpoint]] = {}
        for endpoint in sorted(pool.endpoints, key=lambda endpoint: endpoint.address):
            grouped.setdefault(endpoint.locality, []).append(endpoint)
        ordered = sorted(grouped.items(), key=lambda item: (item[0].region, item[0].zone, item[0].sub_zone))
        self.pool = pool.name
        self.localities = tuple(place for place, _ in ordered)
        self.addresses = tuple(endpoint.address for _, endpoints in ordered for endpoint in endpoints)
        self._counts = [len(endpoints) for _, endpoints in ordered]
        self._endpoints = [_endpoint(endpoint) for _, endpoints in ordered for endpoint in endpoints]
        self._heads = [_heads(endpoint, _HEALTHY) for endpoint in self._endpoints]
        self._begin = field_of(_CLUSTER_NAME, pool.name.encode())
        self._begins = [_locality(place) for place in self.localities]

    @cached_property
    def places(self) -> Places:
        """One row a locality, in order."""
        return Places.of(self.localities)

    def spread(self, factors: FloatArray) -> FloatArray:
        """Turn one number a locality into one an endpoint."""
        return np.repeat(factors, self._counts)

    def serialised(self, weights: Sequence[int], health: Mapping[int, int]) -> bytes:
        """Return the assignment's bytes; `health` maps rows that are not HEALTHY to their status."""
        tails = _tails()
        heads = self._heads
        if health:
            heads = list(heads)
            for row, status in health.items():
                heads[row] = _heads(self._endpoints[row], status)
        entries = [
            head[weight >= _ONE_BYTE_VARINT] + tails[weight]
            for head, weight in zip(heads, weights, strict=True)
        ]
        parts, row = [self._begin], 0
        for begin, count in zip(self._begins, self._counts, strict=True):
            body = b"".join((begin, *entries[row : row + count], _LOCALITY_WEIGHT))
            parts.append(field_of(_ENDPOINTS, body))
            row += count
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A layout with the weights and health of one moment."""

    layout: Layout
    weights: npt.NDArray[np.int64]
    """In the layout's order."""
    health: Mapping[int, int]
    """Row to status, for rows that are not HEALTHY."""

    @classmethod
    def of(
        cls, layout: Layout, weights: Mapping[str, int], unknown: int, health: Mapping[str, int]
    ) -> Assignment:
        """Put weights and statuses in the layout's order; an address without a weight gets `unknown`.

        Raises:
            SnapshotError: a weight is outside [1, 10000], or their sum needs more than 32 bits.
        """
        column = np.array([weights.get(address, unknown) for address in layout.addresses], dtype=np.int64)
        if (wrong := (column < MIN_WEIGHT) | (column > MAX_WEIGHT)).any():
            row = int(wrong.argmax())
            text = f"weight {column[row]} of {layout.addresses[row]!r}"
            raise SnapshotError(f"{text} is not in [{MIN_WEIGHT}, {MAX_WEIGHT}]")
        if (total := int(column.sum())) > _MAX_UINT32:
            raise SnapshotError(f"weights of {layout.pool!r} sum up to {total}, over 32 bits")
        marked = {row: health[address] for row, address in enumerate(layout.addresses) if address in health}
        return cls(layout, column, marked)

    def resource(self, factors: FloatArray | None = None) -> Resource:
        """Serialise, with each locality's weights multiplied by its factor."""
        weights = self.weights
        if factors is not None:
            weights = nearer_weighs_more(weights, self.layout.spread(factors))
        serialised = self.layout.serialised(weights.tolist(), self.health)
        return Resource.of(self.layout.pool, TYPE_ENDPOINT, serialised)


def _endpoint(endpoint: Endpoint) -> bytes:
    entry = endpoint_components_pb2.LbEndpoint()
    address = entry.endpoint.address.socket_address
    address.address = endpoint.host
    address.port_value = endpoint.port
    return bytes(entry.SerializeToString(deterministic=True))


def _heads(endpoint: bytes, status: int) -> tuple[bytes, bytes]:
    """Everything of an LbEndpoint before its weight, for weights of one and of two bytes."""
    body = endpoint + _health(status)
    short, long = _begins(len(body))
    return short + body, long + body


@cache
def _health(status: int) -> bytes:
    """An LbEndpoint with nothing but its status."""
    message = endpoint_components_pb2.LbEndpoint(health_status=status)  # type: ignore[arg-type] # Its number.
    return bytes(message.SerializeToString())


@lru_cache
def _begins(size: int) -> tuple[bytes, bytes]:
    """Tag and length of an LbEndpoint with `size` bytes before a weight of one and of two bytes."""
    short, long = (size + len(_tails()[weight]) for weight in (MIN_WEIGHT, _ONE_BYTE_VARINT))
    return _LB_ENDPOINTS + varint_of(short), _LB_ENDPOINTS + varint_of(long)


@cache
def _tails() -> tuple[bytes, ...]:
    """The bytes of every weight; at most 10000 takes two bytes of varint."""
    return tuple(field_of(_LB_WEIGHT, b"\x08" + varint_of(weight)) for weight in range(MAX_WEIGHT + 1))


def _locality(place: Locality) -> bytes:
    """An empty message, not an absent one: Envoy then knows that there is no locality."""
    message = base_pb2.Locality(region=place.region, zone=place.zone, sub_zone=place.sub_zone)
    return field_of(_LOCALITY, message.SerializeToString(deterministic=True))
