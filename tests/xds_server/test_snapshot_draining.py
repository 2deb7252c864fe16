"""Endpoints that leave: DRAINING, but never enough of them for Envoy to panic and send to all."""

from __future__ import annotations

import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.envoy_api.config.core.v3 import health_check_pb2
from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from xds_server.snapshot.endpoints import load_assignments

H, D, U = "HEALTHY", "DRAINING", "UNHEALTHY"


@pytest.mark.parametrize(
    ("staying", "draining", "unhealthy", "sent"),
    [
        ("ab", "c", "", {"a": H, "b": H, "c": D}),
        ("a", "b", "", {"a": H, "b": D}),  # a half is no panic
        ("a", "bc", "", {"a": H}),
        ("abc", "d", "c", {"a": H, "b": H, "c": U, "d": D}),
        ("ab", "c", "b", {"a": H, "b": U}),
        ("", "ab", "", {"a": D, "b": D}),  # nobody else is there
    ],
)
def test_leaving_endpoint_is_draining_or_left_out(
    staying: str, draining: str, unhealthy: str, sent: dict[str, str]
) -> None:
    port = {letter: f"127.0.0.1:{number}" for number, letter in enumerate("abcd", 1)}
    pool = Pool("p", tuple(Endpoint(port[letter], "p") for letter in staying + draining))
    [resource] = load_assignments(
        Membership((pool,)),
        dict.fromkeys(port.values(), 1000),
        frozenset(port[letter] for letter in unhealthy),
        frozenset(port[letter] for letter in draining),
    )
    assignment = endpoint_pb2.ClusterLoadAssignment.FromString(resource.body.value)
    letters = {int(address.rpartition(":")[2]): letter for letter, address in port.items()}
    assert sent == {
        letters[entry.endpoint.address.socket_address.port_value]: health_check_pb2.HealthStatus.Name(
            entry.health_status
        )
        for group in assignment.endpoints
        for entry in group.lb_endpoints
    }
