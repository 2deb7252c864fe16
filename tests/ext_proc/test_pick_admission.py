"""Admission of requests of which no prompt is read, or no known model: by their headers and the pool."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ext_proc.director import admission
from ext_proc.pick import PickResult, Reason, Refusal
from ext_proc.pick.candidates import MOST_APART
from ext_proc.protocol.attributes import METHOD, HttpRequest
from fleet.endpoint import Endpoint, Pool
from testing.signals import Load, Signal, table_of
from tests.ext_proc.worlds import World, chat, http_request, pool_of, view_of, whole

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
    made.store.publish(replace(view, signals=table_of(view.membership.addresses, held)))


UNREAD = {
    "two models": http_request(b'{"model":"m","model":"m","prompt":"a"}', complete=True),
    "no JSON": http_request(b"a=b", complete=True),
    "unknown coding": http_request(b"{}", complete=True, content_encoding="snappy"),
    "no body yet": http_request(b"", complete=False, headers={METHOD: "POST"}, headers_only=True),
    "a handshake": http_request(
        b"", complete=False, headers={METHOD: "GET", "upgrade": "websocket"}, headers_only=True
    ),
}


@pytest.mark.parametrize("request_", UNREAD.values(), ids=UNREAD)
@pytest.mark.parametrize("models", [(), ("m",)])
def test_low_priority_is_refused_by_headers_alone(request_: HttpRequest, models: tuple[str, ...]) -> None:
    """A client gets around admission neither by what it writes in a body, nor by sending it late."""
    made = World(view_of(pool_of(models=models)), ext_proc={"pick": {"admission": LIMIT}})
    publish(made, **OVERLOADED)
    assert asked(made, request_).reason is Reason.SHED
    assert asked(made, request_, "0").refusal is None
    publish(made, **{**OVERLOADED, "e2": 3.0})
    assert asked(made, request_).refusal is None


UNCERTAIN = {
    **UNREAD,
    "a model that nobody names": whole(chat("hi", model="other")),
    "a model behind the cut": http_request(b'{"messages":[{"role":"user","content":"hi', complete=False),
    "a path that names another": http_request(b"a=b", complete=True, path="/v1/models/other:generate"),
}


def asked(made: World, request: HttpRequest, priority: str = "-1") -> PickResult:
    """Route a request of a low priority."""
    return made.route(request._replace(attributes={**request.attributes, "x-priority": priority}))


@pytest.mark.parametrize("request_", UNCERTAIN.values(), ids=UNCERTAIN)
@pytest.mark.parametrize("apart", [True, False])
def test_naming_no_known_model_does_not_get_around_admission(request_: HttpRequest, *, apart: bool) -> None:
    """Whichever model is meant, it is refused once all its engines are past their limit, and not before."""
    models = [("m",), ("m",), ("n",), ("n",)] if apart else [("m", "n")] * 4
    ends = tuple(Endpoint(f"10.0.0.{n}:80", "p", names) for n, names in enumerate(models))
    made = World(view_of(Pool("p", ends)), ext_proc={"pick": {"admission": LIMIT}})
    publish(made, **OVERLOADED)
    refused = asked(made, request_)
    assert (refused.reason, refused.endpoints) == (Reason.SHED, ())
    assert asked(made, request_, "0").refusal is None
    only_one = request_._replace(subset=("10.0.0.3",))
    assert asked(made, only_one).reason is Reason.SHED
    publish(made, **{**OVERLOADED, "e2": 3.0})
    assert asked(made, request_).refusal is None
    assert asked(made, only_one).reason is Reason.SHED, "the gateway allows no other"


def test_one_that_takes_every_model_counts_for_all() -> None:
    ends = (Endpoint("10.0.0.0:80", "p", ("m",)), Endpoint("10.0.0.1:80", "p", ()))
    made = World(view_of(Pool("p", ends)), ext_proc={"pick": {"admission": LIMIT}})
    other = UNCERTAIN["a model that nobody names"]
    publish(made, e0=3.0, e1=50.0)
    assert asked(made, other).reason is Reason.SHED, "the idle one serves m alone"
    assert asked(made, UNCERTAIN["a model behind the cut"]).refusal is None, "it may be m"
    publish(made, e0=50.0, e1=3.0)
    assert asked(made, other).refusal is None


def test_idle_engine_of_another_model_may_be_meant() -> None:
    """Filters leave out whom they do among those of each model: an engine of its own kind is not left out."""
    ends = (Endpoint("10.0.0.0:80", "p", ("m",)), Endpoint("10.0.0.1:80", "p", ("n",)))
    made = World(view_of(Pool("p", ends)), ext_proc={"pick": {"admission": LIMIT}})
    view = made.store.view
    assert view is not None
    told = {"queue_depth": (3.0, 50.0), "trust_ratio": (0.1, 1.0)}
    loads = {
        end.address: Load(**{name: Signal(each[place], made.clock.now, "x") for name, each in told.items()})
        for place, end in enumerate(ends)
    }
    made.store.publish(replace(view, signals=table_of(view.membership.addresses, loads)))
    assert asked(made, UNCERTAIN["a model behind the cut"]).refusal is None


def test_by_default_nobody_is_refused_whatever_model_is_named() -> None:
    made = World(view_of(pool_of()))
    publish(made, **OVERLOADED)
    assert {asked(made, request).refusal for request in UNCERTAIN.values()} == {None}


def test_soonest_of_several_refusals_counts() -> None:
    late, soon, at_once = (Refusal(429, "later", seconds) for seconds in (9.0, 0.5, None))
    assert admission.first([late, soon, late]) is soon
    assert admission.first([at_once, soon]) is admission.first([soon, at_once]) is at_once
    assert admission.first([late, None, soon]) is None
    assert admission.first([]) is None


def test_a_pool_of_very_many_kinds_is_not_asked_for_each() -> None:
    """It would take long, for each request."""
    kinds = [(f"m{n}",) for n in range(MOST_APART + 1)]
    for count, reason in ((MOST_APART, Reason.SHED), (MOST_APART + 1, Reason.UNKNOWN_MODEL)):
        ends = tuple(Endpoint(f"10.0.0.{n}:80", "p", names) for n, names in enumerate(kinds[:count]))
        made = World(view_of(Pool("p", ends)), ext_proc={"pick": {"admission": LIMIT}})
        publish(made, **{f"e{n}": 50.0 for n in range(count)})
        assert asked(made, UNCERTAIN["a model that nobody names"]).reason is reason


def test_unknown_engines_refuse_no_request() -> None:
    made = World(view_of(pool_of("p"), pool_of("q", base=1)), ext_proc={"pick": {"admission": LIMIT}})
    publish(made, **OVERLOADED)
    assert asked(made, whole(b"a=b")).reason is Reason.NOT_JSON
    assert asked(made, UNCERTAIN["a model that nobody names"]).reason is Reason.NO_POOL

    made = World(view_of(pool_of()), ext_proc={"pick": {"admission": LIMIT}})
    publish(made, **OVERLOADED)
    listing = http_request(b"", complete=False, headers={METHOD: "GET"}, headers_only=True)
    assert asked(made, listing).reason is Reason.NO_PROMPT
