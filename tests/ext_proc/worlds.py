"""A small fleet, a clock that stands, and a router over them."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry

from ext_proc.director.director import Router
from ext_proc.protocol.request import RouteRequest
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import Settings, parse_settings
from fleet.store import FleetStore, FleetView
from testing.signals import Load, Signal, view_with

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
    """A router with its store, clock and registry."""

    def __init__(self, view: FleetView | None = None, **sections: Any) -> None:
        self.clock = Clock()
        self.store = FleetStore()
        self.registry = CollectorRegistry()
        self.settings = settings_with(**sections)
        self.router = Router(self.store, self.settings, self.registry, self.clock)
        if view is not None:
            self.store.publish(view)


def chat(text: str, model: str | None = "m", **more: Any) -> bytes:
    named = {} if model is None else {"model": model}
    return json.dumps({**named, **more, "messages": [{"role": "user", "content": text}]}).encode()


def whole(body: bytes, **more: Any) -> RouteRequest:
    return RouteRequest(body, complete=True, **more)
