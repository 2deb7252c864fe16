"""Admission of requests of which no prompt is read: by their headers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ext_proc.pick import Pick, Reason
from ext_proc.request import METHOD, RouteRequest
from fleet.load import Load, Signal
from tests.ext_proc.worlds import World, pool_of, view_of, whole

OVERLOADED = {f"e{n}": 50.0 for n in range(4)}
LIMIT = {"most_queue": 10, "priority_header": "x-priority"}


def publish(made: World, **queues: float) -> None:
    """Publish queues by the endpoints' numbers."""
    now, view = made.clock.now, made.store.view
    assert view is not None
    held = {
        f"10.0.0.{name.removeprefix('e')}:80": Load(queue_depth=Signal(queue, now, "x"))
        for name, queue in queues.items()
    }
    made.store.publish(replace(view, loads=held, table=None))


UNREAD = {
    "two models": RouteRequest(b'{"model":"m","model":"m","prompt":"a"}', complete=True),
    "no JSON": RouteRequest(b"a=b", complete=True),
    "unknown coding": RouteRequest(b"{}", complete=True, content_encoding="snappy"),
    "no body yet": RouteRequest(b"", complete=False, headers={METHOD: "POST"}, headers_only=True),
    "a handshake": RouteRequest(
        b"", complete=False, headers={METHOD: "GET", "upgrade": "websocket"}, headers_only=True
    ),
}


@pytest.mark.parametrize("request_", UNREAD.values(), ids=UNREAD)
@pytest.mark.parametrize("models", [(), ("m",)])
def test_who_is_past_its_priority_is_refused_by_headers_where_no_prompt_is_read(
    request_: RouteRequest, models: tuple[str, ...]
) -> None:
    """A client gets around admission neither by what it writes in a body, nor by sending it late."""
    made = World(view_of(pool_of(models=models)), ext_proc={"pick": {"admission": LIMIT}})
    publish(made, **OVERLOADED)

    def ask(priority: str) -> Pick:
        return made.router.route(request_._replace(headers={**request_.headers, "x-priority": priority}))

    assert ask("-1").reason is Reason.SHED
    assert ask("0").refusal is None
    publish(made, **{**OVERLOADED, "e2": 3.0})
    assert ask("-1").refusal is None


def test_nobody_is_refused_where_it_is_unknown_whose_engines_are_meant_or_nothing_is_asked_of_them() -> None:
    made = World(view_of(pool_of(models=("m", "n"))), ext_proc={"pick": {"admission": LIMIT}})
    publish(made, **OVERLOADED)
    low = {"x-priority": "-1"}
    assert made.router.route(whole(b"a=b", headers=low)).reason is Reason.NOT_JSON

    made = World(view_of(pool_of()), ext_proc={"pick": {"admission": LIMIT}})
    publish(made, **OVERLOADED)
    listing = RouteRequest(b"", complete=False, headers={METHOD: "GET", **low}, headers_only=True)
    assert made.router.route(listing).reason is Reason.NO_PROMPT
