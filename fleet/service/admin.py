"""The admin HTTP server: health, readiness, /metrics, each service's status as JSON, and the few changes."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, Counter, generate_latest
from prometheus_client.registry import Collector

from fleet.errors import WarmrouteError
from fleet.service.admin_access import OPEN_PATHS
from fleet.service.http_server import HttpServer, body_of
from fleet.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from prometheus_client import CollectorRegistry, Metric

    from fleet.service.admin_access import Access

    View = Callable[[], Any]
    """Returns a JSON value, or an awaitable of one. An iterator of names and values is an object, and as a
    value of an object an iterator is a list: an admin server makes their entries by turns."""
    QueryView = Callable[["Query"], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
    Action = Callable[[Any], Any]
    """Takes a JSON value; may return an awaitable."""
    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 1024 * 1024
DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 1000
_MAX_WORD_CHARS: Final = 256


class ApiError(WarmrouteError):
    """A request is invalid; `path` names the parameter or field."""

    def __init__(self, text: str, *, path: str = "", status: int = 400) -> None:
        super().__init__(text)
        self.text = text
        self.path = path
        self.status = status


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a query; an empty one does not filter."""

    endpoint: str = ""
    request: str = ""
    limit: int = DEFAULT_LIMIT

    @classmethod
    def of(cls, params: Mapping[str, str]) -> Query:
        """Read a URL's parameters.

        Raises:
            ApiError: a parameter is unknown, too long, or no number.
        """
        for name, value in params.items():
            if name not in ("endpoint", "request", "limit"):
                raise ApiError("unknown; allowed: endpoint, request, limit", path=name)
            if len(value) > _MAX_WORD_CHARS:
                raise ApiError(f"longer than {_MAX_WORD_CHARS} characters", path=name)
        text = params.get("limit", str(DEFAULT_LIMIT))
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_LIMIT:
            raise ApiError(f"{text!r}; allowed: 1 to {MAX_LIMIT}", path="limit")
        return cls(params.get("endpoint", ""), params.get("request", ""), int(text))


class AdminServer:
    """Serves one address; the empty one serves nothing."""

    def __init__(
        self,
        access: Access,
        registry: CollectorRegistry,
        ready: Callable[[], bool],
        views: Mapping[str, View],
        *,
        queries: Mapping[str, Sequence[QueryView]] | None = None,
        actions: Mapping[str, Action] | None = None,
    ) -> None:
        """`queries` are views that take parameters, merged where a path has several; `actions` take POST."""
        self._access = access
        self._faults = Counter(
            "warmroute_admin_faults_total", "Admin requests that failed by our fault", registry=registry
        )
        application = self._application(views, queries or {}, actions or {})
        add_health(application.router, registry, ready)
        self._server = HttpServer(access, application)

    def _application(
        self,
        views: Mapping[str, View],
        queries: Mapping[str, Sequence[QueryView]],
        actions: Mapping[str, Action],
    ) -> web.Application:
        application = web.Application(middlewares=[self._guard], client_max_size=MAX_BODY_BYTES)
        router, turns = application.router, Turns()
        for path, view in views.items():
            router.add_get(path, _view_handler(view, turns))
        for path, query_views in queries.items():
            router.add_get(path, _query_handler(query_views, turns))
        for path, action in actions.items():
            router.add_post(path, _action_handler(action))
        paths = sorted({*views, *queries, *(f"POST {path}" for path in actions)})
        router.add_get("/", _text_handler("\n".join(["/healthz", "/readyz", "/metrics", *paths, ""])))
        return application

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            SettingsError: the address cannot be bound.
        """
        if not self._access.address:
            return
        await self._server.start()
        logger.info("admin listens on %s%s", self._access.address, " with TLS" if self._access.tls else "")

    async def stop(self) -> None:
        """Close the listener and its connections."""
        await self._server.stop()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer, and close connections whose TLS context has been replaced."""
        response = await self._answer(request, handler)
        ssl_object = request.get_extra_info("ssl_object")
        if ssl_object is not None and getattr(ssl_object.context, "retired", False):
            response.force_close()
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Apply the access rules, and answer every failure as JSON."""
        refused = self._refused_names(request) or self._access.refusal(
            request.method, request.path, request.headers
        )
        if refused is not None:
            headers = {"www-authenticate": "Bearer"} if refused[0] == 401 else None
            return _error(refused[0], refused[1], headers=headers)
        try:
            return await handler(request)
        except ApiError as error:
            return _error(error.status, error.text, error.path)
        except web.HTTPException as error:
            allow = error.headers.get("allow")
            return _error(error.status, error.reason, headers={"allow": allow} if allow else None)
        except Exception:  # the edge of a request: a fault of ours ends this one, and never the service
            self._faults.inc()
            logger.exception("an admin request failed")
            return _error(500, "internal error")

    def _refused_names(self, request: web.Request) -> tuple[int, str] | None:
        """Return status and text for a peer without an operator's name; health needs no name."""
        gate = self._access.gate
        if gate is None or request.path in OPEN_PATHS:
            return None
        ssl_object = request.get_extra_info("ssl_object")
        certificate = None if ssl_object is None else ssl_object.getpeercert(binary_form=True)
        names = gate.names(certificate or b"")
        why = gate.refuses(names, "admin", ("operators",), request.remote or "")
        return None if why is None else (403, why)


def add_health(
    router: web.UrlDispatcher,
    registry: CollectorRegistry,
    ready: Callable[[], bool],
    reason: str = "not ready",
) -> None:
    """Add /healthz, /readyz and /metrics to a server's paths; /readyz answers 503 with `reason`."""

    async def readyz(_: web.Request) -> web.Response:
        now = ready()
        return web.Response(text="ready\n" if now else f"{reason}\n", status=200 if now else 503)

    async def metrics(_: web.Request) -> web.Response:
        parts = []
        for family in list(registry.collect()):
            parts.append(generate_latest(_Family(family)))
            await asyncio.sleep(0)
        return web.Response(body=b"".join(parts), headers={"content-type": CONTENT_TYPE_LATEST})

    router.add_get("/healthz", _text_handler("ok\n"))
    router.add_get("/readyz", readyz)
    router.add_get("/metrics", metrics)


def _text_handler(text: str) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(text=text)

    return handle


def _view_handler(view: View, turns: Turns) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        value = view()
        return await _json_by_turns(await value if inspect.isawaitable(value) else value, turns)

    return handle


def _query_handler(views: Sequence[QueryView], turns: Turns) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        query = Query.of(request.query)
        merged: dict[str, Any] = {}
        for view in views:
            value = view(query)
            merged.update(await value if inspect.isawaitable(value) else value)
        return await _json_by_turns(merged, turns)

    return handle


def _action_handler(action: Action) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        try:
            body = msgspec.json.decode(await body_of(request) or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(f"not JSON: {error}") from error
        answer = action(body)
        return _json(await answer if inspect.isawaitable(answer) else answer)

    return handle


class _Family(Collector):
    """One family of metrics, to be encoded by itself."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """Return it."""
        return (self._family,)


async def _json_by_turns(view: Any, turns: Turns) -> web.Response:
    """Encode an object, and lists in it, some entries at a time, so that others do not wait for all."""
    if not isinstance(view, (dict, Iterator)):
        return _json(view)
    body = b"".join(await turns.run_all(_object(view)))
    return web.Response(body=body, content_type="application/json")


def _object(view: Mapping[str, Any] | Iterator[tuple[str, Any]]) -> Iterator[bytes]:
    """Yield a JSON object in short pieces."""
    mark = b"{"
    for name, value in view if isinstance(view, Iterator) else view.items():
        yield mark + msgspec.json.encode(name) + b":"
        mark = b","
        if isinstance(value, (list, Iterator)):
            yield from _list(value)
        else:
            yield msgspec.json.encode(value)
    yield b"{}" if mark == b"{" else b"}"


def _list(entries: Iterable[Any]) -> Iterator[bytes]:
    mark = b"["
    for entry in entries:
        yield mark + msgspec.json.encode(entry)
        mark = b","
    yield b"[]" if mark == b"[" else b"]"


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", status=status)


def _error(status: int, text: str, path: str = "", headers: Mapping[str, str] | None = None) -> web.Response:
    response = _json({"error": text, **({"path": path} if path else {})}, status)
    if headers:
        response.headers.update(headers)
    return response
