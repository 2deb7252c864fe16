"""Reads routes, and what kinds of requests each of them can meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from warmroute.doctor.envoy.facts import DEFAULT_ROUTE_TIMEOUT_SECONDS, HeaderMatch, Retry, Route
from warmroute.doctor.envoy.plain import Node

_FURTHER: Final = (
    "query_parameters",
    "runtime_fraction",
    "grpc",
    "dynamic_metadata",
    "filter_state",
    "tls_context",
    "cookies",
)
_BODY: Final = frozenset({"content-type", "content-length", "transfer-encoding"})
_WITH_BODIES: Final = ("POST", "PUT", "PATCH")

Overrides = Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """A route to one cluster, its filter overrides, and the kinds of requests that it serves."""

    route: Route
    levels: tuple[Overrides, ...]
    ordinary: bool
    """Requests with a body can come along."""
    upgrade: bool
    """WebSocket handshakes can."""
    upgrades: Mapping[str, bool]
    """Upgrade types that the route itself allows or forbids, in small letters."""


def targets_of(config: Node) -> Iterator[RouteTarget]:
    """Every way to a cluster through a route configuration, without those behind a route that takes all."""
    for host in config.items("virtual_hosts"):
        ordinary = upgrade = True
        for node in host.items("routes"):
            match = node.child("match")
            if match.has("connect_matcher"):
                continue
            headers = tuple(_header(header) for header in match.items("headers"))
            takes_upgrade = upgrade and not match.has("grpc") and _meets_upgrades(headers)
            takes_ordinary = ordinary and _meets_bodies(headers)
            yield from _to_clusters(
                config, host, node, headers, takes_ordinary=takes_ordinary, takes_upgrade=takes_upgrade
            )
            if _every_path(match) and all(_of_upgrade(header) for header in headers):
                upgrade = False
                ordinary = ordinary and bool(headers)


def _to_clusters(
    config: Node,
    host: Node,
    node: Node,
    headers: tuple[HeaderMatch, ...],
    *,
    takes_ordinary: bool,
    takes_upgrade: bool,
) -> Iterator[RouteTarget]:
    action = node.child("route")
    if not action.data:
        return
    weighted = list(action.child("weighted_clusters").items("clusters"))
    upgrades = {
        upgrade.text("upgrade_type").lower(): upgrade.flag("enabled") is not False
        for upgrade in action.items("upgrade_configs")
    }
    general = tuple(_overrides(level) for level in (config, host, node))
    for target in weighted or [action]:
        levels = (*general, _overrides(target)) if weighted else general
        cluster = target.text("name" if weighted else "cluster")
        route = _route(config, host, node, headers, cluster)
        yield RouteTarget(route, levels, takes_ordinary, takes_upgrade, upgrades)


def _overrides(node: Node) -> Overrides:
    return dict(node.entries("typed_per_filter_config"))


def _route(config: Node, host: Node, node: Node, headers: tuple[HeaderMatch, ...], cluster: str) -> Route:
    action = node.child("route")
    timeout = action.seconds("timeout")
    return Route(
        where=node.where,
        cluster=cluster,
        cluster_header=action.text("cluster_header").lower(),
        every_path=_every_path(node.child("match")),
        grpc=node.child("match").has("grpc"),
        headers=headers,
        timeout_seconds=DEFAULT_ROUTE_TIMEOUT_SECONDS if timeout is None else timeout,
        timeout_is_set=timeout is not None,
        idle_seconds=action.seconds("idle_timeout"),
        max_stream_seconds=action.child("max_stream_duration").seconds("max_stream_duration"),
        buffer_bytes=_buffer_bytes(node) or _buffer_bytes(host),
        retry=_retry(action) or _retry(host),
        hash_headers=frozenset(
            name
            for policy in action.items("hash_policy")
            if (name := policy.child("header").text("header_name").lower())
        ),
        adds=frozenset(
            header.child("header").text("key").lower()
            for level in (config, host, node)
            for header in level.items("request_headers_to_add")
        ),
        removes=frozenset(
            name.lower()
            for level in (config, host, node)
            for name in level.texts("request_headers_to_remove")
        ),
    )


def _buffer_bytes(node: Node) -> int | None:
    return node.whole("request_body_buffer_limit") or node.whole("per_request_buffer_limit_bytes")


def _retry(node: Node) -> Retry | None:
    if not node.has("retry_policy"):
        return None
    policy = node.child("retry_policy")
    times = policy.whole("num_retries")
    return Retry(
        where=policy.where,
        on=frozenset(word.strip() for word in policy.text("retry_on").split(",") if word.strip()),
        times=1 if times is None else times,
        status_codes=frozenset(
            code for code in policy.each("retriable_status_codes") if isinstance(code, int)
        ),
        per_try_seconds=policy.seconds("per_try_timeout") or 0.0,
    )


def _header(node: Node) -> HeaderMatch:
    match = node.child("string_match")
    exact = match.text("exact") or node.text("exact_match")
    ranged = node.child("range_match")
    conditions = ("string_match", "range_match", "exact_match", "safe_regex_match", "prefix_match")
    return HeaderMatch(
        name=node.text("name").lower(),
        present=not any(node.has(name) for name in (*conditions, "suffix_match", "contains_match")),
        inverted=bool(node.flag("invert_match")) or node.flag("present_match") is False,
        exact=exact,
        end=ranged.whole("end") if node.has("range_match") else None,
    )


def _every_path(match: Node) -> bool:
    return match.text("prefix") == "/" and not any(match.has(name) for name in _FURTHER)


def _of_upgrade(match: HeaderMatch) -> bool:
    asks = match.present or match.exact.lower() == "websocket"
    return match.name == "upgrade" and not match.inverted and asks


def _meets_upgrades(headers: tuple[HeaderMatch, ...]) -> bool:
    """Whether a WebSocket handshake can match: a GET with `upgrade` and without a body."""
    for match in headers:
        if match.name == ":method" and match.exact and (match.exact == "GET") == match.inverted:
            return False
        if match.name in _BODY and not match.inverted:
            return False
        if match.name == "upgrade" and match.inverted:
            return False
    return True


def _meets_bodies(headers: tuple[HeaderMatch, ...]) -> bool:
    """Whether an ordinary request with a body can match."""
    for match in headers:
        if match.name == ":method" and match.exact and (match.exact in _WITH_BODIES) == match.inverted:
            return False
        if match.name == "upgrade" and not match.inverted:
            return False
    return True
