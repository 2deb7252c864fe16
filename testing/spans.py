"""Spans as a backend holds them: read back from Arize Phoenix, or taken by a small OTLP receiver."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self
from urllib.parse import quote

import aiohttp
import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from warmroute.demo.processes import Child, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

PROJECT: Final = "warmroute-bench"
_START_SECONDS: Final = 120.0
_PAGE_SPANS: Final = 500
_STATUS: Final = ("UNSET", "OK", "ERROR")


@dataclass(frozen=True, slots=True)
class Span:
    """One span; times in Unix seconds."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a root."""
    name: str
    start: float
    end: float
    status: str
    """`UNSET`, `OK` or `ERROR`."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Name and attributes."""


class Backend(Protocol):
    """Where OTLP goes, and what it holds."""

    @property
    def endpoint(self) -> str:
        """OTLP's gRPC endpoint, as a URL."""
        ...

    async def spans(self) -> list[Span]:
        """Everything received so far."""
        ...


class OtlpReceiver:
    """A TraceService in this process; an async context manager."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._server: Any = None
        self.endpoint = ""
        self.service_names: set[str] = set()

    async def __aenter__(self) -> Self:
        """Listen on a free loopback port."""
        self._server = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler(
            "opentelemetry.proto.collector.trace.v1.TraceService",
            {"Export": grpc.unary_unary_rpc_method_handler(self._export)},
        )
        self._server.add_generic_rpc_handlers((handler,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.endpoint = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        await self._server.stop(0)

    async def spans(self) -> list[Span]:
        """Everything received so far."""
        return list(self._spans)

    async def _export(self, request: bytes, _: Any) -> bytes:
        message = trace_service_pb2.ExportTraceServiceRequest.FromString(request)
        for resource in message.resource_spans:
            attributes = _values(resource.resource.attributes)
            self.service_names.add(str(attributes.get("service.name")))
            for scope in resource.scope_spans:
                self._spans += [_of_otlp(span) for span in scope.spans]
        return b""


class Phoenix:
    """Arize Phoenix as a child process on loopback; an async context manager."""

    def __init__(self, executable: Path, directory: Path) -> None:
        self._executable = executable
        self._directory = directory
        self._port, grpc_port = free_port(), free_port()
        self.endpoint = f"http://127.0.0.1:{grpc_port}"
        self._environment = {
            "PHOENIX_WORKING_DIR": str(directory / "phoenix"),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self._port),
            "PHOENIX_GRPC_PORT": str(grpc_port),
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        }
        self._child: Child | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Start it and wait until it answers.

        Raises:
            BenchError: it ended, or does not answer in two minutes.
        """
        (self._directory / "phoenix").mkdir()
        with environment(self._environment):
            self._child = Child("phoenix-server", [str(self._executable), "serve"], self._directory)
        self._session = aiohttp.ClientSession(f"http://127.0.0.1:{self._port}")
        try:
            await self._child.wait_for(self._answers, _START_SECONDS)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        await self._stop()

    async def spans(self) -> list[Span]:
        """Read the project's spans over the REST API, page by page."""
        spans: list[Span] = []
        cursor = ""
        while True:
            path = f"/v1/projects/{quote(PROJECT)}/spans?limit={_PAGE_SPANS}"
            page = await self._get(path + (f"&cursor={quote(cursor)}" if cursor else ""))
            if page is None:
                return spans  # There is no project before the first span.
            spans += [_of_phoenix(entry) for entry in page["data"]]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                return spans

    async def _answers(self) -> bool:
        return await self._get("/v1/projects") is not None

    async def _get(self, path: str) -> Any:
        assert self._session is not None
        try:
            async with self._session.get(path) as response:
                return await response.json() if response.status == 200 else None
        except (aiohttp.ClientError, OSError):
            return None

    async def _stop(self) -> None:
        if self._session is not None:
            await self._session.close()
        if self._child is not None:
            await self._child.stop()


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def find_phoenix(named: Path | None) -> Path | None:
    """Return the executable that is named, or the one on the path; None without any."""
    if named is not None:
        return named if os.access(named, os.X_OK) else None
    path = shutil.which("phoenix")
    return None if path is None else Path(path)


def _of_otlp(span: Any) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        start=span.start_time_unix_nano / 1e9,
        end=span.end_time_unix_nano / 1e9,
        status=_STATUS[span.status.code],
        attributes=_values(span.attributes),
        events=tuple((event.name, _values(event.attributes)) for event in span.events),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in attributes}


def _of_phoenix(entry: Mapping[str, Any]) -> Span:
    return Span(
        trace_id=entry["context"]["trace_id"],
        span_id=entry["context"]["span_id"],
        parent_id=entry["parent_id"] or "",
        name=entry["name"],
        start=datetime.fromisoformat(entry["start_time"]).timestamp(),
        end=datetime.fromisoformat(entry["end_time"]).timestamp(),
        status=entry["status_code"],
        attributes=entry["attributes"],
        events=tuple((event["name"], event["attributes"]) for event in entry["events"]),
    )
