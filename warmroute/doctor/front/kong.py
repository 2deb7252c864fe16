"""Kong: from its declarative YAML, and `kong.conf` where it is there, to ways and settings.

Defaults and meanings are those of the pages that each knob names. Kong speaks HTTP/1.1 to upstreams, passes
WebSockets on, and repeats a POST only if the upstream has not received it (its page on proxying).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from warmroute.doctor.front.facts import Concern, Facts, Knob, Setting, Unread, Way
from warmroute.doctor.front.nginx import SIMPLE, size_of
from warmroute.doctor.front.tree import url_port
from warmroute.doctor.rule import DoctorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from warmroute.doctor.front.tree import Tree

_DOCS: Final = "https://developer.konghq.com"
_CONFIG: Final = f"{_DOCS}/gateway/configuration/"
_BUFFERING: Final = Knob(
    Concern.HOLDS_ANSWERS,
    "`response_buffering: false` on this route.",
    f"{_DOCS}/support/how-can-i-enable-streaming-of-responses-with-text-event-stream-content-types-instead-of-"
    "having-the-responses-buffered-and-sent-in-one-large-payload/",
)
_READ: Final = Knob(
    Concern.SILENCE_SECONDS,
    "`read_timeout: 3600000` (milliseconds), above the longest silence.",
    f"{_DOCS}/gateway/traffic-control/proxying/",
)
_TRANSFORMS: Final = Knob(
    Concern.HOLDS_ANSWERS,
    "Take this plugin off routes that stream: it keeps the whole body in memory to change it.",
    f"{_DOCS}/plugins/response-transformer/",
)
_NO_STREAMS: Final = Knob(
    Concern.HOLDS_ANSWERS,
    "`response_streaming: allow`, the default.",
    f"{_DOCS}/plugins/ai-proxy/reference/",
)
_PAYLOAD: Final = Knob(
    Concern.BODY_BYTES,
    "Raise `allowed_payload_size` to the longest prompt, or take the plugin off this route.",
    f"{_DOCS}/plugins/request-size-limiting/",
)
_AI_BODY: Final = Knob(
    Concern.BODY_BYTES,
    "`max_request_body_size: 0` for no limit, or at least the longest prompt.",
    f"{_DOCS}/plugins/ai-proxy/reference/",
)
_ORDER: Final = Knob(
    Concern.LATE_GUARD,
    "Leave `ordering` out: Kong's own priorities put authentication and limits first.",
    f"{_DOCS}/gateway/plugins/plugin-ordering/",
)
_POOL: Final = Knob(
    Concern.IDLE_CONNECTIONS,
    "Leave `upstream_keepalive_pool_size` at its default.",
    f"{_CONFIG}#upstream_keepalive_pool_size",
)
_IDLE: Final = Knob(
    Concern.IDLE_SECONDS,
    "`upstream_keepalive_idle_timeout = 60`, the default.",
    f"{_CONFIG}#upstream_keepalive_idle_timeout",
)
_READ_MILLISECONDS: Final = 60_000.0
_PAYLOAD_SIZE: Final = 128.0
_PORT: Final = 80
_UNITS: Final = {"bytes": 1, "kilobytes": 1_000, "megabytes": 1_000_000}
_AI_BODY_BYTES: Final = 8192.0

_GUARDS: Final = frozenset(
    {
        *("acl", "basic-auth", "bot-detection", "header-cert-auth", "hmac-auth", "ip-restriction", "jwt"),
        *("jwt-signer", "key-auth", "key-auth-enc", "ldap-auth", "ldap-auth-advanced", "mtls-auth", "oauth2"),
        *("oauth2-introspection", "opa", "openid-connect", "rate-limiting", "rate-limiting-advanced"),
        *("request-size-limiting", "response-ratelimiting", "ai-rate-limiting-advanced"),
    }
)
_WORKERS: Final = frozenset(
    {"request-transformer", "request-transformer-advanced", "request-validator", "jq", "degraphql"}
)
"""Plugins that read or change bodies; those whose names begin with `ai-` as well."""
_TRANSFORMERS: Final = frozenset({"response-transformer", "response-transformer-advanced"})
_NOT_HTTP: Final = frozenset({"tcp", "tls", "tls_passthrough", "udp"})
_INJECTED: Final = ("nginx_http_", "nginx_proxy_")


def read(documents: Sequence[Tree], conf: Sequence[tuple[str, str, str]] = ()) -> Facts:
    """Read a Kong.

    Args:
        documents: its declarative files.
        conf: the lines of `kong.conf`: where, name, value.

    Raises:
        DoctorError: no file has a route to a service.
    """
    shared = tuple(_conf_settings(conf))
    plugins = [plugin for document in documents for plugin in document.items("plugins")]
    routes = [route for document in documents for route in document.items("routes")]
    services = [service for document in documents for service in document.items("services")]
    ways: list[Way] = []
    for service in services:
        names = {service.text("name"), service.text("id")} - {""}
        of_service = [route for route in routes if _named(route, "service") & names]
        ways += [
            Way(
                route.where,
                _host(service),
                _ports(service),
                (*shared, *_route_settings(service, route, plugins)),
            )
            for route in (*service.items("routes"), *of_service)
            if not set(route.texts("protocols")) & _NOT_HTTP
        ]
    if not ways:
        raise DoctorError(
            "no Kong route with a service, so nothing can be judged; allowed: a declarative file with "
            "`_format_version`, or its folder"
        )
    return Facts(len(documents) + bool(conf), tuple(ways), tuple(_unread(routes, services)))


def conf_lines(text: str, file: str) -> list[tuple[str, str, str]]:
    """Read `kong.conf`: where, name and value of each line, comments apart."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("#")[0].partition("=")
        if equals:
            lines.append((f"{file}:{number} {name.strip()}", name.strip(), value.strip()))
    return lines


def _named(tree: Tree, kind: str) -> set[str]:
    """The names by which a route or plugin refers to a service or route."""
    reference = tree.child(kind)
    return {tree.text(kind), reference.text("name"), reference.text("id")} - {""}


def _unread(routes: Sequence[Tree], services: Sequence[Tree]) -> Iterator[Unread]:
    names = {name for service in services for name in (service.text("name"), service.text("id"))}
    for route in routes:
        if (used := _named(route, "service")) and not used & names:
            yield Unread(route.where, f"service {', '.join(sorted(used))}")


def _host(service: Tree) -> str:
    return service.text("host") or service.text("url") or service.where


def _ports(service: Tree) -> frozenset[int] | None:
    url = service.text("url")
    port = service.number("port") or (url_port(url) if url else _PORT)
    return None if port is None else frozenset({int(port)})


def _conf_settings(conf: Sequence[tuple[str, str, str]]) -> Iterator[Setting]:
    """Settings of `kong.conf`, among them nginx directives that it injects."""
    for where, name, value in conf:
        count = size_of(value)
        if name == "upstream_keepalive_pool_size" and count is not None:
            yield Setting(_POOL, count, where, value)
        elif name == "upstream_keepalive_idle_timeout" and count is not None:
            yield Setting(_IDLE, count or math.inf, where, value)
        for prefix in _INJECTED:
            simple = SIMPLE.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
            number = simple.value(value.split()) if simple and value else None
            if simple and number is not None:
                yield Setting(simple.knob, number, where, value)


def _route_settings(service: Tree, route: Tree, plugins: Sequence[Tree]) -> Iterator[Setting]:
    buffers = route.flag("response_buffering") is not False
    text = "true" if route.has("response_buffering") else "not set, so true"
    yield Setting(_BUFFERING, buffers, route.place("response_buffering"), text)
    in_force = _in_force(service, route, plugins)
    timeout = in_force.get("upstream-timeout")
    config = timeout.child("config") if timeout else service
    if not config.has("read_timeout"):
        config = service
    limit = config.number("read_timeout")
    text = "not set, so 60000 ms" if limit is None else f"{limit:g} ms"
    seconds = (_READ_MILLISECONDS if limit is None else limit) / 1000
    yield Setting(_READ, seconds, config.place("read_timeout"), text)
    for name, plugin in in_force.items():
        yield from _plugin_settings(name, plugin.child("config"))
    yield from _late_guards(in_force)


def _in_force(service: Tree, route: Tree, plugins: Sequence[Tree]) -> dict[str, Tree]:
    """The plugins of a route by name: its own before the service's, and those before the global ones."""

    def applies(plugin: Tree) -> bool:
        own = ((route, "route"), (service, "service"))
        return not any(
            plugin.has(kind) and not _named(plugin, kind) & {tree.text("name"), tree.text("id")}
            for tree, kind in own
        )

    outside = sorted(
        filter(applies, plugins), key=lambda plugin: (plugin.has("route"), plugin.has("service"))
    )
    return {
        plugin.text("name"): plugin
        for plugin in (*outside, *service.items("plugins"), *route.items("plugins"))
        if plugin.flag("enabled") is not False and not plugin.has("consumer")
    }


def _plugin_settings(name: str, config: Tree) -> Iterator[Setting]:
    if name in _TRANSFORMERS:
        for change in config.data:
            if config.child(change).has("json"):
                yield Setting(_TRANSFORMS, 1, config.child(change).place("json"), "changes bodies")
    elif name == "ai-response-transformer":
        yield Setting(_TRANSFORMS, 1, config.where, "sends whole answers to a model")
    elif name == "request-size-limiting":
        size = config.number("allowed_payload_size")
        unit = config.text("size_unit") or "megabytes"
        shown = "not set, so 128 megabytes" if size is None else f"{size:g} {unit}"
        limit = (_PAYLOAD_SIZE if size is None else size) * _UNITS.get(unit, 1_000_000)
        yield Setting(_PAYLOAD, limit, config.place("allowed_payload_size"), shown)
    elif name.startswith("ai-") and name not in _GUARDS:
        size = config.number("max_request_body_size")
        limit = _AI_BODY_BYTES if size is None else (size or math.inf)
        shown = "not set, so 8192" if size is None else f"{size:g}"
        yield Setting(_AI_BODY, limit, config.place("max_request_body_size"), shown)
        if config.text("response_streaming") == "deny":
            yield Setting(_NO_STREAMS, 1, config.place("response_streaming"), "deny")


def _late_guards(in_force: Mapping[str, Tree]) -> Iterator[Setting]:
    """Guards that `ordering` puts behind plugins that work on bodies."""
    for name, plugin in in_force.items():
        ordering = plugin.child("ordering")
        before, after = ordering.child("before").texts("access"), ordering.child("after").texts("access")
        pairs = [(guard, name) for guard in before] + [(name, worker) for worker in after]
        for guard, worker in pairs:
            works = worker in _WORKERS or (worker.startswith("ai-") and worker not in _GUARDS)
            if guard in _GUARDS and works and {guard, worker} <= in_force.keys():
                yield Setting(_ORDER, 1, ordering.where, f"{guard} runs behind {worker}")
