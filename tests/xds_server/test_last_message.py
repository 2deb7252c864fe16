"""A stream that waits keeps no message: 2,000 discovery streams kept 2 MiB each for as long as they liked."""

from __future__ import annotations

import asyncio
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from grpc_health.v1 import health_pb2_grpc
from prometheus_client import CollectorRegistry

from bench.abuse import access_log, control, discovery
from bench.abuse.sending import field
from fleet.endpoint import Membership
from fleet.service.opening import FirstMessages
from fleet.service.serving import Health
from fleet.settings import FaultSettings, SignalSettings
from fleet.store import FleetStore, FleetView
from fleet.wire import gpu_pb2
from xds_server.access_log.service import AccessLogService
from xds_server.control.service import ControlService
from xds_server.discovery.server import DiscoveryService
from xds_server.signals.gpu.report_service import GpuReportService
from xds_server.signals.gpu.reports import GpuBoard
from xds_server.snapshot.snapshot import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

LARGE = field(1000, b"x" * 1000)
"""A field that no message has."""


class Message(bytes):
    """One that counts how many of its kind are left."""

    left = 0

    def __init__(self, _: bytes) -> None:
        Message.left += 1

    def __del__(self) -> None:
        Message.left -= 1


class Request:
    """One of the health service."""

    service = ""


class Call:
    """A call whose client sends some messages and waits."""

    def __init__(self, messages: Iterable[bytes], deserialise: Any) -> None:
        self._messages = [*messages]
        self._deserialise = deserialise or (lambda message: message)
        self.waits = asyncio.Event()
        self.written = asyncio.Event()

    async def read(self) -> Any:
        if self._messages:
            return self._deserialise(Message(self._messages.pop(0)))
        self.waits.set()
        return await asyncio.Event().wait()

    async def write(self, _: Any) -> None:
        self.written.set()

    async def send_initial_metadata(self, _: Any) -> None: ...

    def peer(self) -> str:
        return "unix:"

    def invocation_metadata(self) -> tuple[()]:
        return ()


def handler_of(service: Any, method: str) -> Any:
    """Return the method's handler as a gRPC server calls it."""
    handlers: list[Any] = []
    server = SimpleNamespace(
        add_generic_rpc_handlers=handlers.extend, add_registered_method_handlers=lambda *_: None
    )
    service.register(server)
    details = SimpleNamespace(method=method, invocation_metadata=())
    return next(made for each in handlers if (made := each.service(details)) is not None)


def served() -> dict[str, tuple[Any, list[bytes]]]:
    """Return each service's handler, and messages of a client."""
    store = FleetStore()
    store.publish(FleetView(Membership(())))
    registry = CollectorRegistry()
    agents = GpuReportService(GpuBoard(SignalSettings(), FaultSettings(), registry))
    report = gpu_pb2.GpuReport(node="n").SerializeToString()
    return {
        "discovery": (
            handler_of(DiscoveryService(SnapshotStore(), registry, 10), discovery.METHOD),
            [discovery.ask(), discovery.ask() + LARGE],
        ),
        "access log": (
            handler_of(AccessLogService(lambda *_: None, registry), access_log.METHOD),
            [access_log.KINDS["tcp"](1000)] * 2,
        ),
        "control": (
            handler_of(ControlService(store, registry), control.FOLLOW),
            [control.hello("w"), control.report((), 1) + LARGE],
        ),
        "gpu": (handler_of(agents, control.REPORT), [report, report + LARGE]),
    }


async def drain(made: AsyncIterator[Any]) -> None:
    async for _ in made:
        pass


@pytest.mark.parametrize("name", ["discovery", "access log", "control", "gpu"])
@pytest.mark.parametrize("count", [1, 2])
async def test_waiting_stream_keeps_no_message(name: str, count: int) -> None:
    handler, messages = served()[name]
    opened = FirstMessages()._opened(handler)
    call = Call(messages[:count], handler.request_deserializer)
    made = (opened.stream_stream or opened.stream_unary)(None, call)
    task = asyncio.create_task(made if asyncio.iscoroutine(made) else drain(made))
    async with asyncio.timeout(30):
        await call.waits.wait()
        for _ in range(100):
            await asyncio.sleep(0)
    assert not task.done()
    assert Message.left == 0
    task.cancel()
    await asyncio.wait([task])


async def test_health_watch_keeps_no_request() -> None:
    """One with fields of unknown numbers may be as large as a message may be."""
    handlers: dict[str, Any] = {}
    server = SimpleNamespace(
        add_generic_rpc_handlers=lambda _: None,
        add_registered_method_handlers=lambda _, made: handlers.update(made),
    )
    health_pb2_grpc.add_HealthServicer_to_server(Health(), server)
    request = Request()
    left = weakref.ref(request)
    call = Call([b""], {b"": request}.pop)
    del request
    task = asyncio.create_task(FirstMessages()._opened(handlers["Watch"]).stream_stream(None, call))
    async with asyncio.timeout(30):
        await call.written.wait()
        await asyncio.sleep(0.01)
    assert not task.done()
    assert left() is None
    task.cancel()
    await asyncio.wait([task])
