"""Reads HTTP filters, as they are in force behind the overrides of a route."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.facts import DEFAULT_MESSAGE_TIMEOUT_SECONDS, ExtProc, Filter, Mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from warmroute.doctor.envoy.plain import Node

_HEADER_MODES: Final = ("DEFAULT", "SEND", "SKIP")
_BODY_MODES: Final = ("NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED")
_APPEND: Final = (
    "APPEND_IF_EXISTS_OR_ADD",
    "ADD_IF_ABSENT",
    "OVERWRITE_IF_EXISTS_OR_ADD",
    "OVERWRITE_IF_EXISTS",
)
_WRAPPER: Final = ".FilterConfig"


def filters_in_force(
    chain: Sequence[Node], levels: Sequence[Mapping[str, Node]], discovered: Mapping[str, Node]
) -> tuple[Filter, ...]:
    """Read a chain of filters without those that are off.

    Args:
        chain: the filters, in order.
        levels: overrides by filter name, from the most general (the route configuration) to the most special.
        discovered: configurations by filter name that came by extension discovery.
    """
    made = (_in_force(node, levels, discovered) for node in chain)
    return tuple(entry for entry in made if entry is not None)


def _in_force(
    node: Node, levels: Sequence[Mapping[str, Node]], discovered: Mapping[str, Node]
) -> Filter | None:
    name = node.text("name")
    config = node.extension()
    if not config.data and name in discovered:
        config = discovered[name]
    entry = filter_of(node, config)
    on = not node.flag("disabled")
    for override in (level[name] for level in levels if name in level):
        inner = override
        if override.kind.endswith(_WRAPPER):
            inner = override.child("config")
        on = not (override.flag("disabled") or inner.flag("disabled"))
        entry = _overridden(entry, inner)
    return entry if on else None


def filter_of(node: Node, config: Node) -> Filter:
    """Read one filter without overrides."""
    kind = _kind(node, config)
    entry = Filter(node.text("name"), kind, node.where)
    if kind == "ext_proc":
        return replace(entry, ext_proc=_ext_proc(config))
    if kind == "buffer":
        return replace(entry, buffer_bytes=config.whole("max_request_bytes"))
    if kind == "header_mutation":
        mutations = config.child("mutations").items("request_mutations")
        return replace(entry, removes=frozenset(cleared(mutations)))
    return entry


def _kind(node: Node, config: Node) -> str:
    _, separator, rest = config.kind.partition("filters.http.")
    return rest.partition(".")[0] if separator else node.text("name").rpartition(".")[2]


def cleared(mutations: Iterator[Node]) -> Iterator[str]:
    """The headers, in lower case, that are removed or overwritten."""
    for mutation in mutations:
        if removed := mutation.text("remove"):
            yield removed.lower()
        added = mutation.child("append")
        if added.enum("append_action", _APPEND).startswith("OVERWRITE"):
            yield added.child("header").text("key").lower()


def _ext_proc(config: Node) -> ExtProc:
    timeout = config.seconds("message_timeout")
    return ExtProc(
        cluster=config.child("grpc_service", "envoy_grpc").text("cluster_name"),
        mode=_mode(config.child("processing_mode")),
        failure_mode_allow=bool(config.flag("failure_mode_allow")),
        message_timeout_seconds=DEFAULT_MESSAGE_TIMEOUT_SECONDS if timeout is None else timeout,
        receives=_receives(config),
        observes=bool(config.flag("observability_mode")),
    )


def _receives(config: Node) -> frozenset[str]:
    namespaces = config.child("metadata_options", "receiving_namespaces")
    return frozenset((*namespaces.texts("untyped"), *namespaces.texts("typed")))


def _mode(node: Node) -> Mode:
    def headers(name: str) -> str:
        mode = node.enum(name, _HEADER_MODES)
        return "SEND" if mode == "DEFAULT" else mode

    return Mode(
        request_headers=headers("request_header_mode"),
        request_body=node.enum("request_body_mode", _BODY_MODES),
        response_headers=headers("response_header_mode"),
        response_body=node.enum("response_body_mode", _BODY_MODES),
    )


def _overridden(entry: Filter, inner: Node) -> Filter:
    if entry.kind == "buffer" and inner.child("buffer").has("max_request_bytes"):
        return replace(entry, buffer_bytes=inner.child("buffer").whole("max_request_bytes"))
    if entry.ext_proc is None or not inner.has("overrides"):
        return entry
    overrides, ext_proc = inner.child("overrides"), entry.ext_proc
    if overrides.has("processing_mode"):
        ext_proc = replace(ext_proc, mode=_mode(overrides.child("processing_mode")))
    if cluster := overrides.child("grpc_service", "envoy_grpc").text("cluster_name"):
        ext_proc = replace(ext_proc, cluster=cluster)
    if (allow := overrides.flag("failure_mode_allow")) is not None:
        ext_proc = replace(ext_proc, failure_mode_allow=allow)
    if overrides.has("metadata_options"):
        ext_proc = replace(ext_proc, receives=_receives(overrides))
    return replace(entry, ext_proc=ext_proc)
