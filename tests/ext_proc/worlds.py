"""A small fleet, a clock that stands, and a director over them."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from ext_proc.director.director import Director
from ext_proc.pick import Decision, PickResult, Reason
from ext_proc.prompt.decode import BodyReader, Prompt, Unreadable
from ext_proc.protocol.attributes import CLUSTER, ENCODING, PATH, REQUEST_ID, TRACEPARENT, HttpRequest
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import Settings, parse_settings
from fleet.store import FleetStore, FleetView
from testing.signals import Load, Signal, view_with

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS_TEXT = """
pools: [{name: p, models: [m], endpoints: [{address: "127.0.0.1:8000"}]}]
listeners: [{name: l, address: "127.0.0.1:9000", pool: p}]
"""


def settings_with(**sections: Any) -> Settings:
    return _parsed(
        SETTINGS_TEXT + "".join(f"{name}: {json.dumps(value)}\n" for name, value in sections.items())
    )


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Settings:
    """Settings are frozen, so that whoever says the same shares them."""
    return parse_settings(text, environ={})


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def view_of(
    *pools: Pool, loaded: bool = True, now: float = 1000.0, capacity: float | None = None
) -> FleetView:
    membership = Membership(pools)
    known = None if capacity is None else Signal(capacity, now, "scrape")
    load = Load(queue_depth=Signal(0.0, now, "scrape"), kv_capacity_tokens=known)
    loads = dict.fromkeys(membership.by_address, load) if loaded else {}
    return view_with(membership, {}, loads)


def pool_of(name: str = "p", count: int = 4, models: tuple[str, ...] = ("m",), base: int = 0) -> Pool:
    return Pool(name, tuple(Endpoint(f"10.0.{base}.{n}:80", name, models) for n in range(count)))


class World:
    """A director with its store, clock and registry."""

    def __init__(self, view: FleetView | None = None, **sections: Any) -> None:
        self.clock = Clock()
        self.store = FleetStore()
        self.registry = CollectorRegistry()
        self.settings = settings_with(**sections)
        self.director = Director(self.store, self.settings, self.registry, self.clock)
        if view is not None:
            self.store.publish(view)

    def decide(self, request: HttpRequest, *, explain: bool = False) -> Decision:
        """Pick, as the processor does, and book the decision."""
        return decided(self.director, request, explain=explain)

    def route(self, request: HttpRequest) -> PickResult:
        """As `decide`, for its result."""
        return self.decide(request).result


def decided(director: Director, request: HttpRequest, *, explain: bool = False) -> Decision:
    """One request at a director, as the processor sends it."""
    decision = director.pick(request, director.reader.read(request), explain=explain)
    director.book(decision)
    return decision


class Picked:
    """A decision with its result's fields within reach."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def __getattr__(self, name: str) -> Any:
        holder = self.decision if hasattr(self.decision, name) and name != "request" else self.decision.result
        return getattr(holder, name)


def chat(text: str, model: str | None = "m", **more: Any) -> bytes:
    named = {} if model is None else {"model": model}
    return json.dumps({**named, **more, "messages": [{"role": "user", "content": text}]}).encode()


def http_request(
    body: bytes = b"",
    *,
    complete: bool = True,
    cluster: str = "",
    path: str = "",
    content_encoding: str = "",
    request_id: str = "",
    traceparent: str = "",
    headers: Mapping[str, str] | None = None,
    subset: tuple[str, ...] | None = None,
    headers_only: bool = False,
) -> HttpRequest:
    """A request as an exchange hands it over; `headers_only`: it has no body."""
    named = {
        CLUSTER: cluster,
        PATH: path,
        ENCODING: content_encoding,
        REQUEST_ID: request_id,
        TRACEPARENT: traceparent,
    }
    attributes = {name: value for name, value in named.items() if value} | dict(headers or {})
    return HttpRequest(body, complete, attributes, subset, Reason.NO_PROMPT if headers_only else None)


def whole(body: bytes, **more: Any) -> HttpRequest:
    return http_request(body, **more)


def read_prompt(
    body: bytes, *, complete: bool, path: str = "", session_field: str = ""
) -> Prompt | Unreadable:
    return (
        BodyReader([session_field] if session_field else []).read(body, complete=complete, path=path).prompt
    )
