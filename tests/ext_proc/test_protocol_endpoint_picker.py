"""What the endpoint-picker protocol demands: only who is allowed, always somebody, else 503."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.pick import PickResult, Reason, Refusal
from ext_proc.pick.subset import subset
from ext_proc.processor import RequestStream
from ext_proc.prompt.path import model_in_path
from ext_proc.protocol import exchange
from ext_proc.protocol.endpoint_picker import NOT_READY, EndpointPickerProtocol, Target
from fleet.endpoint import Endpoint, Pool
from fleet.names import SERVED_KEY, SUBSET_KEY, SUBSET_NAMESPACE
from fleet.store import FleetStore, FleetView
from tests.ext_proc.fake_envoy import DUPLEX, FakeEnvoy, Seen, answer
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.worlds import chat, http_request, pool_of, view_of

if TYPE_CHECKING:
    from ext_proc.protocol.attributes import HttpRequest

ALL = tuple(f"10.0.0.{number}:80" for number in range(4))
MODES = ["NONE", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX]


def play(
    stage: Stage,
    body: bytes,
    mode: str = "BUFFERED",
    *,
    allowed: list[str] | None = None,
    served: dict[str, Any] | None = None,
) -> Seen:
    """One request, with its headers, and its response when somebody is told to have served."""
    stream = RequestStream(stage.service)
    metadata: dict[str, Any] = {} if allowed is None else {SUBSET_NAMESPACE: {SUBSET_KEY: allowed}}
    envoy = FakeEnvoy(partial(answer, stream), mode, may_refuse=True, metadata=metadata | (served or {}))
    envoy.headers([(":method", b"POST"), ("content-type", b"application/json")])
    if mode != "NONE" and envoy.seen.refusal is None:
        envoy.body(body, end_of_stream=True)
    if served is not None:
        envoy.respond([(":status", b"200")])
    stream.close()
    return envoy.finish(b"" if mode == "NONE" else body)


def enforced(
    protocol: EndpointPickerProtocol,
    result: PickResult,
    request: HttpRequest,
    fallbacks: int,
    model: str | None = None,
) -> PickResult:
    """What the protocol makes of a result; a model that is not given is that of the path."""
    target = Target(request.cluster, model or model_in_path(request.path) or None)
    return protocol.enforce(result, target, request.subset, fallbacks)


def named(seen: Seen) -> list[str]:
    return (seen.destination or "").split(",")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("body", [chat("hi " * 300), b"no JSON", b"", chat("hi", model="unknown")])
@pytest.mark.parametrize(
    "allowed", [["10.0.0.2:80"], ["10.0.0.1", "10.0.0.3:80"], ["10.0.0.2", "10.9.9.9:1"]]
)
def test_never_outside_of_what_is_allowed(mode: str, body: bytes, allowed: list[str]) -> None:
    """In every mode and for every body: a pick of ours, or one by weights, but of these only."""
    stage = Stage()
    admits = subset(tuple(allowed)).admits
    for number in range(6):
        seen = play(stage, body.replace(b"hi", b"%d hi" % number, 1), mode, allowed=allowed)
        assert seen.refusal is None
        assert all(admits(address) for address in named(seen)), seen.destination


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("allowed", [[], ["10.9.9.9"], ["10.0.0.1:81"], ["junk", ":", "[::1]:80"]])
def test_nobody_allowed_is_there(mode: str, allowed: list[str]) -> None:
    """503, as the protocol says, counted by its reason, with nothing in flight."""
    stage = Stage()
    seen = play(stage, chat("hi"), mode, allowed=allowed)
    assert seen.refusal is not None
    assert seen.refusal.status.code == 503
    assert json.loads(seen.refusal.body)["error"]["code"] == "no_endpoint_ready"
    assert stage.picks("not_ready") == 1
    assert stage.in_flight() == 0


@pytest.mark.parametrize("mode", MODES)
def test_without_a_hint_nothing_is_ever_refused(mode: str) -> None:
    """Not even where no fleet is known: whoever runs Envoy decides by weights."""
    stage = Stage()
    stage.world.store.view = None
    seen = play(stage, chat("hi"), mode)
    assert seen.refusal is None
    assert seen.destination is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("body", [b"no JSON", b""])
def test_whoever_must_be_told_somebody_is(mode: str, body: bytes) -> None:
    """`name_always`: by weights where nothing is picked, and as many as a pick of ours would name."""
    stage = Stage(ext_proc={"name_always": True, "pick": {"fallbacks": 1}})
    seen = play(stage, body, mode)
    assert seen.reason == "named"
    assert set(named(seen)) <= set(ALL)
    assert len(named(seen)) == 2
    assert seen.set_headers["x-gateway-destination-endpoint"].decode() == seen.destination
    assert "x-warmroute-prefix" not in seen.set_headers, "no header without a value"


def test_whoever_must_be_told_somebody_gets_503_where_nobody_is() -> None:
    stage = Stage(ext_proc={"name_always": True})
    stage.world.store.publish(FleetView())
    seen = play(stage, b"no JSON")
    assert seen.refusal is not None
    stage.world.store.view = None
    assert play(stage, b"no JSON").refusal is not None


@pytest.mark.parametrize("allowed", [["10.0.0.2"], None])
def test_a_fault_of_ours_leaves_the_duty(monkeypatch: pytest.MonkeyPatch, allowed: list[str] | None) -> None:
    """The request goes by weights, to somebody who is allowed."""
    stage = Stage(ext_proc={"name_always": True})
    monkeypatch.setattr(stage.world.director, "pick", None)
    seen = play(stage, chat("hi"), allowed=allowed)
    assert seen.reason == "named"
    assert allowed is None or named(seen) == ["10.0.0.2:80"]
    assert stage.picks("named") == 1
    assert stage.value("warmroute_ext_proc_faults_total", kind="TypeError") == 1


def test_a_fault_in_the_duty_itself_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(ext_proc={"name_always": True})
    monkeypatch.setattr(stage.service.picker_protocol, "enforce", None)
    assert play(stage, b"no JSON").reason == "fault"


def test_over_the_limit_of_streams_the_duty_holds() -> None:
    stage = Stage(limits={"ext_proc_streams": 1}, ext_proc={"name_always": True})
    open_one = RequestStream(stage.service)
    assert play(stage, chat("hi")).reason == "named"
    assert named(play(stage, chat("hi"), allowed=["10.0.0.3"])) == ["10.0.0.3:80"]
    open_one.close()


def test_weights_decide_who_is_named() -> None:
    """In their proportion; whoever has no weight gets nothing."""
    store = FleetStore()
    view = view_of(pool_of(), pool_of("other", base=1))
    store.publish(FleetView(view.membership, {ALL[0]: 300, ALL[1]: 100, "10.0.1.0:80": 5}))
    draws = iter([number / 1000 for number in range(1000)] * 2)
    protocol = EndpointPickerProtocol(store, lambda: next(draws))
    request = http_request(b"", complete=True, cluster="p")
    chosen = Counter(
        enforced(protocol, PickResult.none(Reason.NOT_JSON), request, 0).endpoints[0] for _ in range(1000)
    )
    assert chosen == {ALL[0]: 750, ALL[1]: 250}
    unknown = http_request(cluster="outbound|80||gateway")
    assert enforced(protocol, PickResult.none(Reason.NOT_JSON), unknown, 0).endpoints[0] in {
        *ALL[:2],
        "10.0.1.0:80",
    }


def two_models(*, loaded: bool) -> dict[str, Stage]:
    """Engines of two models, four in all: in two pools that only the model tells apart, and in one pool."""
    ends = [(address, ("ma",) if address in ALL[:2] else ("mb",)) for address in ALL]
    pools = {
        "two pools": [Pool(models[0], (Endpoint(at, models[0], models),)) for at, models in ends[1:3]],
        "one pool": [Pool("p", tuple(Endpoint(at, "p", models) for at, models in ends))],
    }
    stages = {}
    for name, those in pools.items():
        stage = Stage(ext_proc={"name_always": True, "pick": {"fallbacks": 0}})
        stage.world.store.publish(view_of(*those, loaded=loaded))
        draws = iter(range(1000))
        stage.service.picker_protocol._draw = lambda draws=draws: next(draws) % 10 / 10  # type: ignore[misc]
        stages[name] = stage
    return stages


@pytest.mark.parametrize("pools", ["one pool", "two pools"])
@pytest.mark.parametrize("allowed", [None, ALL[1:], ("10.0.0.1", "10.0.0.2")])
def test_who_is_named_serves_the_model(pools: str, allowed: tuple[str, ...] | None) -> None:
    """As with picks, where the model is known and nothing is picked: others would answer 404."""
    protocol = two_models(loaded=False)[pools].service.picker_protocol
    request = http_request(b"", complete=True, subset=allowed)
    for model, serving in (("ma", {*ALL[:2]}), ("mb", {*ALL[2:]})):
        for _ in range(10):
            named_instead = enforced(protocol, PickResult.none(Reason.FAULT), request, 0, model)
            assert named_instead.reason is Reason.NAMED
            assert {*named_instead.endpoints} <= serving


def test_a_path_tells_the_model_as_well() -> None:
    """Where nothing else can be read of the request, and where nobody looks at it."""
    stage = two_models(loaded=True)["two pools"]
    for request in (
        http_request(b"a=b", complete=True, path="/v1beta/models/mb:generateContent"),
        http_request(b"", complete=False, path="/openai/deployments/mb/chat", headers_only=True),
    ):
        for pick in (stage.world.route(request), PickResult.none(Reason.FAULT)):
            fulfilled = enforced(stage.service.picker_protocol, pick, request, 0)
            assert (fulfilled.reason, fulfilled.endpoints) == (Reason.NAMED, (ALL[2],))


@pytest.mark.parametrize("pools", ["one pool", "two pools"])
def test_allowed_endpoint_is_named_without_the_model(pools: str) -> None:
    """What the settings say of models may be late, and an engine's 404 says more than our 503."""
    stage = two_models(loaded=False)[pools]
    assert named(play(stage, chat("hi", model="zzz"), allowed=[ALL[2]])) == [ALL[2]]
    assert named(play(stage, chat("hi", model="ma"), allowed=[ALL[2]])) == [ALL[2]]
    assert {*named(play(stage, chat("hi", model="zzz")))} <= {*ALL}


def test_endpoint_without_weight_is_not_replaced() -> None:
    stage = two_models(loaded=False)["one pool"]
    view = stage.world.store.view
    assert view is not None
    stage.world.store.publish(replace(view, weights={ALL[0]: 0, ALL[1]: 0, ALL[2]: 9, ALL[3]: 9}))
    request = http_request(b"", complete=True)
    instead = {
        model: enforced(stage.service.picker_protocol, PickResult.none(Reason.FAULT), request, 0, model)
        for model in ("ma", "mb")
    }
    assert instead["ma"].refusal is not None
    assert instead["mb"].refusal is None


def test_models_that_clients_invent_are_kept_as_one() -> None:
    stage = two_models(loaded=False)["one pool"]
    for number in range(20):
        play(stage, chat("hi", model=f"invented {number}"))
    assert len(stage.service.picker_protocol._cache) == 1


def test_a_new_view_is_taken_over() -> None:
    store = FleetStore()
    store.publish(view_of(pool_of()))
    protocol = EndpointPickerProtocol(store, lambda: 0.99)
    request = http_request(b"", complete=True, subset=("10.0.0.3", "10.0.0.0"))
    assert enforced(protocol, PickResult.none(Reason.NOT_JSON), request, 0).endpoints == (ALL[3],)
    store.publish(view_of(pool_of(count=2)))
    assert enforced(protocol, PickResult.none(Reason.NOT_JSON), request, 0).endpoints == (ALL[0],)
    store.publish(view_of(pool_of(count=1, base=5)))
    assert enforced(protocol, PickResult.none(Reason.NOT_JSON), request, 0).refusal is NOT_READY


def test_a_pick_keeps_what_is_allowed_of_it() -> None:
    """The rest of its list goes; where the first goes, what was told of the first goes too."""
    protocol = EndpointPickerProtocol(FleetStore(), lambda: 0.5)
    pick = PickResult(ALL[:3], Reason.WARM, 0.5, "ff", 0.1)
    request = http_request(b"", complete=True)
    first = enforced(protocol, pick, request._replace(subset=(ALL[0], ALL[2])), 2)
    assert (first.endpoints, first.reason, first.matched_share) == ((ALL[0], ALL[2]), Reason.WARM, 0.5)
    later = enforced(protocol, pick, request._replace(subset=(ALL[2],)), 2)
    assert (later.endpoints, later.reason, later.matched_share) == ((ALL[2],), Reason.NAMED, 0.0)
    refused = PickResult.refuse(Reason.OVER_LIMIT, Refusal(429, "later"))
    assert enforced(protocol, refused, request._replace(subset=()), 2) is refused


@pytest.mark.parametrize(
    ("entry", "address", "admitted"),
    [
        ("10.0.0.1:80", "10.0.0.1:80", True),
        ("10.0.0.1:80", "10.0.0.1:81", False),
        ("10.0.0.1", "10.0.0.1:81", True),
        ("10.0.0.1", "10.0.0.10:81", False),
        ("2001:db8::1", "[2001:db8::1]:80", True),
        ("2001:DB8:0::1", "[2001:db8::1]:80", True),
        ("[2001:db8::1]:80", "[2001:db8::1]:80", True),
        ("[2001:db8::1]", "[2001:db8::1]:80", True),
        ("[2001:db8::1]:81", "[2001:db8::1]:80", False),
        ("engine.svc:80", "engine.svc:80", True),
        ("", "10.0.0.1:80", False),
    ],
)
def test_ports_count_where_they_are_given(entry: str, address: str, admitted: bool) -> None:
    """Several engines may share an address: a bare address allows each of them."""
    assert subset((entry,)).admits(address) is admitted
    assert subset((entry,)) is subset((entry,)), "results can be kept beside it"


@given(st.lists(st.text(max_size=30), max_size=5))
def test_no_entry_breaks_anything(entries: list[str]) -> None:
    """Whatever a gateway sends."""
    assert subset(tuple(entries)).admits("10.0.0.1:80") in {True, False}


@pytest.mark.parametrize(("where", "outcome"), [(0, "first"), (1, "fallback"), (None, "elsewhere")])
@pytest.mark.parametrize("mode", MODES)
def test_served_endpoint_is_counted(mode: str, where: int | None, outcome: str) -> None:
    """From the metadata of the response's headers, once a request."""
    stage = Stage(ext_proc={"name_always": True})
    stream = RequestStream(stage.service)
    envoy = FakeEnvoy(partial(answer, stream), mode)
    envoy.headers([(":method", b"POST")])
    if mode != "NONE":
        envoy.body(chat("hi"), end_of_stream=True)
    address = "10.8.8.8:1" if where is None else named(envoy.seen)[where]
    envoy._metadata = {"envoy.lb": {SERVED_KEY: address}}
    envoy.respond([(":status", b"200")])
    envoy.respond([(":status", b"200")])
    assert stage.value("warmroute_served_told_total", outcome=outcome) == 1


def test_served_endpoint_in_response_header() -> None:
    """It counts without a pick as well."""
    stage = Stage()
    stream = RequestStream(stage.service)
    envoy = FakeEnvoy(partial(answer, stream), "NONE")
    envoy.headers()
    envoy.respond([(":status", b"200"), (SERVED_KEY, b"10.0.0.1:80")])
    assert stage.value("warmroute_served_told_total", outcome="unpicked") == 1


def test_fault_while_served_endpoint_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of the response gets its reply all the same."""

    def broken(*_: Any) -> Any:
        raise ValueError

    monkeypatch.setattr(exchange, "served_of", broken)
    stage = Stage()
    seen = play(stage, chat("hi"), served={"envoy.lb": {SERVED_KEY: ALL[0]}})
    assert seen.destination is not None
    assert stage.value("warmroute_ext_proc_faults_total", kind="ValueError") == 1


def test_fault_while_served_endpoint_is_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    monkeypatch.setattr(stage.world.director, "answered", None)
    seen = play(stage, chat("hi"), served={"envoy.lb": {SERVED_KEY: ALL[0]}})
    assert seen.destination is not None
    assert stage.value("warmroute_ext_proc_faults_total", kind="TypeError") == 1


def test_responses_that_tell_nobody_are_not_counted() -> None:
    stage = Stage()
    play(stage, chat("hi"), served={})
    assert all(
        stage.value("warmroute_served_told_total", outcome=outcome) == 0
        for outcome in ("first", "fallback", "elsewhere", "unpicked")
    )


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/realtime?model=gpt-x", "gpt-x"),
        ("/v1/realtime?a=b&model=org%2Fm#f", "org/m"),
        ("/openai/deployments/my%20m/chat/completions?api-version=1", "my m"),
        ("/v1beta/models/gemma-3:generateContent", "gemma-3"),
        ("/v2/models/llama/infer", "llama"),
        ("/v1/models", ""),
        ("/v1/chat/completions", ""),
        ("", ""),
        ("/?model=" + "m" * 9000, "m" * 512),
    ],
)
def test_a_model_in_the_path_is_read(path: str, model: str) -> None:
    assert model_in_path(path) == model
