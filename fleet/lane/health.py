"""The gRPC health service on the lane: `Check` and `Watch` (grpc.health.v1)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from fleet.service.gate import HEALTH
from fleet.service.serving import MAX_NAME, MAX_WATCHES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.lane.method import Call, Method

INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NO_SUCH_SERVICE: Final = 5
RESOURCE_EXHAUSTED: Final = 8
_MAX_BYTES: Final = 8 * MAX_NAME
"""Of a request."""


class Health:
    """The states of services, and the calls that watch them."""

    def __init__(self) -> None:
        self._states: dict[str, int] = {}
        self._watches: dict[_HealthCall, str] = {}

    @property
    def methods(self) -> Mapping[str, Method]:
        """The methods by path."""
        return {
            f"/{HEALTH}/Check": partial(_HealthCall, self, watches=False),
            f"/{HEALTH}/Watch": partial(_HealthCall, self, watches=True),
        }

    def set(self, service: str, state: int) -> None:
        """Set a service's state, and send a changed one to those who watch it."""
        if self._states.get(service) == state:
            return
        self._states[service] = state
        for watch, name in tuple(self._watches.items()):
            if name == service:
                watch.send(state)

    def state(self, service: str) -> int | None:
        """Return a service's state; None: there is no such service."""
        return self._states.get(service)

    def watch(self, call: _HealthCall, service: str) -> bool:
        """Add a call that watches a service; return whether there is room."""
        if len(self._watches) >= MAX_WATCHES:
            return False
        self._watches[call] = service
        return True

    def unwatch(self, call: _HealthCall) -> None:
        """Remove a call that has ended."""
        self._watches.pop(call, None)


class _HealthCall:
    """One call: the answer follows the first message, and `Watch` goes on."""

    __slots__ = ("_answered", "_call", "_health", "_watches")

    def __init__(self, health: Health, call: Call, *, watches: bool) -> None:
        self._health = health
        self._call = call
        self._watches = watches
        self._answered = False

    def message(self, data: bytes) -> None:
        if self._answered:
            return
        self._answered = True
        try:
            service = health_pb2.HealthCheckRequest.FromString(data[:_MAX_BYTES]).service
        except DecodeError:
            self._call.end(INVALID_ARGUMENT, "no HealthCheckRequest")
            return
        state = self._health.state(service)
        if not self._watches:
            if state is None:
                self._call.end(NO_SUCH_SERVICE)
                return
            self.send(state)
            self._call.end()
        elif len(service) > MAX_NAME:
            self._call.end(INVALID_ARGUMENT, f"a name of {len(service)} characters; allowed: {MAX_NAME}")
        elif not self._health.watch(self, service):
            self._call.end(RESOURCE_EXHAUSTED, f"at most {MAX_WATCHES} watches")
        else:
            self.send(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN if state is None else state)

    def send(self, state: int) -> None:
        self._call.write(health_pb2.HealthCheckResponse(status=state).SerializeToString())

    def half_closed(self) -> None:
        if not self._answered:
            self._call.end(INVALID_ARGUMENT, "a call without a message")

    def silent(self) -> None:
        self._call.end(DEADLINE_EXCEEDED, "no message in time")

    def ended(self, _reason: str) -> None:
        self._health.unwatch(self)
