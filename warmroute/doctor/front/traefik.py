"""Traefik: from its static and dynamic files to ways and settings.

Defaults and meanings are those of the pages that each knob names (Traefik 3). `compress` is no trap: Traefik
passes chunked data on at once. Neither is `flushInterval`: event streams are flushed whatever it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from warmroute.doctor.front.facts import Concern, Facts, Knob, Setting, Unread, Way
from warmroute.doctor.front.tree import url_port
from warmroute.doctor.rule import DoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from warmroute.doctor.front.tree import Tree

_DOCS: Final = "https://doc.traefik.io/traefik/reference"
_ENTRY: Final = f"{_DOCS}/install-configuration/entrypoints/"
_MIDDLEWARES: Final = f"{_DOCS}/routing-configuration/http/middlewares"
_TRANSPORT: Final = f"{_DOCS}/routing-configuration/http/load-balancing/serverstransport/"

_BUFFERS: Final = Knob(
    Concern.HOLDS_ANSWERS,
    "`disableResponseBuffer: true`, or no `buffering` on this router.",
    f"{_MIDDLEWARES}/buffering/",
)
_BODY: Final = Knob(
    Concern.BODY_BYTES,
    "Leave `maxRequestBodyBytes` out for no limit, or set at least the longest prompt.",
    f"{_MIDDLEWARES}/buffering/",
)
_EXPRESSION: Final = Knob(
    Concern.REPEATS_POSTS,
    "Leave `retryExpression` out: it repeats any method. Envoy retries what is safe.",
    f"{_MIDDLEWARES}/buffering/",
)
_RETRY_BODY: Final = Knob(
    Concern.BODY_BYTES,
    "Leave `maxRequestBodyBytes` out for no limit, or set at least the longest prompt.",
    f"{_MIDDLEWARES}/retry/",
)
_RETRY: Final = Knob(
    Concern.REPEATS_POSTS,
    "Leave `retryNonIdempotentMethod` out.",
    f"{_MIDDLEWARES}/retry/",
)
_ORDER: Final = Knob(
    Concern.LATE_GUARD,
    "Name authentication and limits first in `middlewares`: the order of the list is the order of the work.",
    f"{_DOCS}/routing-configuration/http/middlewares/overview/",
)
_WRITE: Final = Knob(
    Concern.ANSWER_SECONDS,
    "`writeTimeout: 0`, the default.",
    _ENTRY,
)
_READ: Final = Knob(Concern.UPLOAD_SECONDS, "`readTimeout: 60s`, the default, or more.", _ENTRY)
_STREAMS: Final = Knob(
    Concern.CLIENT_STREAMS,
    "Leave `maxConcurrentStreams` at its default of 250, or set more.",
    _ENTRY,
)
_HEADERS: Final = Knob(
    Concern.HEADER_BYTES,
    "Leave `maxHeaderBytes` at its default of 1048576.",
    _ENTRY,
)
_SILENCE: Final = Knob(
    Concern.SILENCE_SECONDS,
    "`responseHeaderTimeout: 0s`, the default, or above the longest answer that is not streamed.",
    _TRANSPORT,
)
_IDLE: Final = Knob(
    Concern.IDLE_SECONDS,
    "`idleConnTimeout: 90s`, the default.",
    _TRANSPORT,
)
_IDLE_CONNECTIONS: Final = Knob(
    Concern.IDLE_CONNECTIONS,
    "`maxIdleConnsPerHost: 200`.",
    _TRANSPORT,
)
_STATIC_IDLE: Final = 200
_NAMED_IDLE: Final = 2
"""Go's `DefaultMaxIdleConnsPerHost`, for a transport with a name and no value."""

_WORKERS: Final = frozenset({"buffering", "retry"})
"""Middlewares that read bodies, or repeat what stands behind them."""
_GUARDS: Final = frozenset(
    {
        *("basicauth", "digestauth", "forwardauth", "ipallowlist", "ipwhitelist", "ratelimit", "inflightreq"),
        *("apikey", "hmac", "jwt", "ldap", "oidc", "opa", "oauthintrospection", "distributedratelimit"),
    }
)
_OWN: Final = frozenset({"", "file"})
"""Providers whose parts stand in files."""
_MOST_DEPTH: Final = 16


@dataclass(slots=True)
class _Parts:
    """What the files define, by name."""

    entry_points: dict[str, Tree] = field(default_factory=dict)
    routers: dict[str, Tree] = field(default_factory=dict)
    middlewares: dict[str, Tree] = field(default_factory=dict)
    services: dict[str, Tree] = field(default_factory=dict)
    transports: dict[str, Tree] = field(default_factory=dict)
    transport: Tree | None = None
    unread: dict[Unread, None] = field(default_factory=dict)


def read(documents: Sequence[Tree]) -> Facts:
    """Read a Traefik.

    Args:
        documents: its static and dynamic files, in any order.

    Raises:
        DoctorError: no file has an entry point or a router.
    """
    parts = _Parts()
    for document in documents:
        http = document.child("http")
        parts.entry_points |= dict(document.entries("entryPoints"))
        parts.routers |= dict(http.entries("routers"))
        parts.middlewares |= dict(http.entries("middlewares"))
        parts.services |= dict(http.entries("services"))
        parts.transports |= dict(http.entries("serversTransports"))
        if document.has("serversTransport"):
            parts.transport = document.child("serversTransport")
    ways = [way for router in parts.routers.values() for way in _router_ways(router, parts)]
    if not parts.routers:
        ways = [_static_way(name, entry, parts) for name, entry in parts.entry_points.items()]
    if not ways:
        raise DoctorError(
            "no Traefik entry point or HTTP router, so nothing can be judged; allowed: its static and dynamic"
            " files (YAML, TOML), or their folder"
        )
    return Facts(len(documents), tuple(ways), tuple(parts.unread))


def _static_way(name: str, entry: Tree, parts: _Parts) -> Way:
    """An entry point's way to routers that stand elsewhere."""
    settings = (*_entry_settings(entry), *_transport_settings("", entry, parts))
    return Way(entry.where, f"routers of {name}", None, settings)


def _router_ways(router: Tree, parts: _Parts) -> Iterator[Way]:
    """A router's ways, one for each service with servers."""
    entries = _entries_of(router, parts)
    names = [
        (middleware, entry.child("http"))
        for entry in entries
        for middleware in entry.child("http").texts("middlewares")
    ]
    names += [(middleware, router) for middleware in router.texts("middlewares")]
    chain = [tree for middleware, user in names for tree in _middlewares(middleware, user, parts)]
    shared = [setting for entry in entries for setting in _entry_settings(entry)]
    shared += [setting for middleware in chain for setting in _middleware_settings(middleware)]
    shared += _late_guards(router, chain)
    for service, balancer in _balancers(router.text("service"), router, parts):
        transport = _transport_settings(balancer.text("serversTransport"), balancer, parts)
        ports = frozenset(
            port for server in balancer.items("servers") if (port := url_port(server.text("url"))) is not None
        )
        yield Way(router.where, service, ports or None, (*shared, *transport))


def _entries_of(router: Tree, parts: _Parts) -> list[Tree]:
    """The entry points of a router: those it names, otherwise the default ones."""
    if named := router.texts("entryPoints"):
        return [parts.entry_points[name] for name in named if name in parts.entry_points]
    default = [entry for entry in parts.entry_points.values() if entry.flag("asDefault")]
    return default or [entry for name, entry in parts.entry_points.items() if name != "traefik"]


def _own(
    name: str, kind: str, files: Mapping[str, Tree], user: Tree, parts: _Parts
) -> tuple[str, Tree | None]:
    """A part by the name that another one uses; what stands elsewhere is noted as unread."""
    plain, _, provider = name.partition("@")
    tree = files.get(plain) if provider in _OWN else None
    if tree is None and provider != "internal":
        parts.unread[Unread(user.where, f"{kind} {name}")] = None
    return plain, tree


def _middlewares(name: str, user: Tree, parts: _Parts, depth: int = 0) -> Iterator[Tree]:
    """A middleware with its name, or those of a chain in their order."""
    _, tree = _own(name, "middleware", parts.middlewares, user, parts)
    if tree is None or depth > _MOST_DEPTH:
        return
    chain = tree.child("chain").texts("middlewares")
    for inner in chain:
        yield from _middlewares(inner, tree, parts, depth + 1)
    if not chain:
        yield tree


def _balancers(name: str, user: Tree, parts: _Parts, depth: int = 0) -> Iterator[tuple[str, Tree]]:
    """The load balancers behind a service: its own, or those of the services that it names."""
    plain, tree = _own(name, "service", parts.services, user, parts)
    if tree is None or depth > _MOST_DEPTH:
        return
    if tree.has("loadBalancer"):
        yield plain, tree.child("loadBalancer")
    inner = [entry.text("name") for entry in tree.child("weighted").items("services")]
    inner += [tree.child("mirroring").text("service")]
    inner += [tree.child("failover").text(part) for part in ("service", "fallback")]
    for service in filter(None, inner):
        yield from _balancers(service, tree, parts, depth + 1)


def _setting(knob: Knob, tree: Tree, name: str, value: float, default: str = "") -> Setting:
    text = f"not set, so {default}" if default and not tree.has(name) else tree.shown(name)
    return Setting(knob, value, tree.place(name), text)


def _no_limit(value: float | None) -> float:
    """A limit of 0 or none as infinity."""
    return value or math.inf


def _entry_settings(entry: Tree) -> Iterator[Setting]:
    times = entry.child("transport", "respondingTimeouts")
    for knob, tree, name in (
        (_WRITE, times, "writeTimeout"),
        (_READ, times, "readTimeout"),
        (_STREAMS, entry.child("http2"), "maxConcurrentStreams"),
        (_HEADERS, entry.child("http"), "maxHeaderBytes"),
    ):
        if (value := tree.seconds(name)) is not None:
            yield _setting(knob, tree, name, _no_limit(value))


def _transport_settings(name: str, user: Tree, parts: _Parts) -> Iterator[Setting]:
    """The settings of connections to the upstream: a transport with a name, otherwise the static one."""
    tree = parts.transport
    if name:
        _, tree = _own(name, "serversTransport", parts.transports, user, parts)
    if tree is None:
        return
    times = tree.child("forwardingTimeouts")
    if (silence := times.seconds("responseHeaderTimeout")) is not None:
        yield _setting(_SILENCE, times, "responseHeaderTimeout", _no_limit(silence))
    if (idle := times.seconds("idleConnTimeout")) is not None:
        yield _setting(_IDLE, times, "idleConnTimeout", _no_limit(idle))
    default = _NAMED_IDLE if name else _STATIC_IDLE
    idle_connections = tree.number("maxIdleConnsPerHost") or default
    yield _setting(_IDLE_CONNECTIONS, tree, "maxIdleConnsPerHost", max(idle_connections, 0), str(default))


def _middleware_settings(middleware: Tree) -> Iterator[Setting]:
    buffering, retry = middleware.child("buffering"), middleware.child("retry")
    if middleware.has("buffering"):
        holds = buffering.flag("disableResponseBuffer") is not True
        yield _setting(_BUFFERS, buffering, "disableResponseBuffer", holds, "whole answers are buffered")
        if limit := buffering.number("maxRequestBodyBytes"):
            yield _setting(_BODY, buffering, "maxRequestBodyBytes", limit)
        if buffering.text("retryExpression"):
            yield _setting(_EXPRESSION, buffering, "retryExpression", value=True)
    limit = retry.number("maxRequestBodyBytes")
    if limit is not None and limit >= 0:
        yield _setting(_RETRY_BODY, retry, "maxRequestBodyBytes", limit)
    if retry.flag("retryNonIdempotentMethod"):
        yield _setting(_RETRY, retry, "retryNonIdempotentMethod", value=True)


def _late_guards(router: Tree, chain: Sequence[Tree]) -> Iterator[Setting]:
    """Guards that stand behind a middleware that works on requests, in the order of the whole chain."""
    worker = ""
    for middleware in chain:
        kinds = {name.lower() for name in middleware.data}
        name = middleware.path.rpartition(".")[2]
        if worker and kinds & _GUARDS:
            yield Setting(_ORDER, 1, router.place("middlewares"), f"{name} stands behind {worker}")
        elif not worker and kinds & _WORKERS:
            worker = name
