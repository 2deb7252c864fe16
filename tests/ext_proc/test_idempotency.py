"""Keys of requests that may be repeated: the same for the same request only; and who is in flight."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client import CollectorRegistry

from ext_proc.director.prompts import RequestReader
from ext_proc.idempotency.guard import DUPLICATE, Idempotency, RequestKey
from ext_proc.idempotency.key import MOST_BODY_BYTES, idempotency_key, repeatable
from ext_proc.idempotency.store import Claim, Claims
from ext_proc.prompt.decode import BodyReader
from ext_proc.protocol.attributes import CROWDED, HttpRequest
from fleet.settings import parse_settings
from tests.ext_proc.worlds import http_request

PATH = "/v1/chat/completions"
PATHS = frozenset([PATH])
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'
PARTS = st.tuples(
    st.text(max_size=4), st.text(max_size=4), st.binary(max_size=4), st.text(max_size=4), st.text()
)


@given(PARTS, PARTS)
def test_equal_requests_and_only_they_have_the_same_key(one: Any, other: Any) -> None:
    assert (idempotency_key(*one) == idempotency_key(*other)) == (one == other)


def test_a_key_is_the_same_everywhere_and_for_ever() -> None:
    """Workers of different versions must agree during an upgrade."""
    assert idempotency_key("POST", PATH, BODY, "t", "c") == "18513e6d7d3ab5ad45328e8d20c72aa4"
    assert len(idempotency_key("POST", PATH, BODY)) == 32


def key(body: bytes = BODY, path: str = PATH, method: str = "POST", *, complete: bool = True) -> Any:
    envelope = BodyReader().read(body, complete=complete, path=path).envelope
    return repeatable(method, path, body, envelope, PATHS)


@pytest.mark.parametrize(
    ("body", "streams"),
    [
        (BODY, False),
        (b'{"stream": false}', False),
        (b'{"stream": null, "store": null}', False),
        (b'{"stream": true}', True),
        (b'{"store": false, "background": false, "stream": true}', True),
    ],
)
def test_what_only_computes_may_be_repeated(body: bytes, streams: bool) -> None:
    told = key(body)
    assert told is not None
    assert told.streams is streams


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"store": true}',
        b'{"background": true}',
        b'{"stream": "true"}',
        b'{"stream": 1}',
        b'{"store": "yes"}',
        b"[" * 100_000,
    ],
)
def test_in_doubt_there_is_no_key(body: bytes) -> None:
    assert key(body) is None


def test_a_body_that_would_hold_up_all_others_has_no_key() -> None:
    fitting = BODY + b" " * (MOST_BODY_BYTES - len(BODY))
    assert key(fitting) is not None
    assert key(fitting + b" ") is None


def test_only_whole_posts_to_the_listed_paths_have_a_key() -> None:
    assert key(complete=False) is None
    assert key(method="PUT") is None
    assert key(path="/v1/responses") is None
    assert key(path=f"{PATH}/x") is None
    assert key(path=f"{PATH}?a=1") is not None


# Who is in flight.


def test_a_twin_is_known_until_the_first_one_ends() -> None:
    flights = Claims(10, 60.0)
    first = flights.claim("k", 0.0)
    assert first is not None
    assert flights.claim("k", 1.0) is None
    assert flights.claim("other", 1.0) is not None
    flights.release(first)
    assert flights.claim("k", 2.0) is not None


def test_old_owner_does_not_release_expired_key() -> None:
    flights = Claims(10, 60.0)
    first = flights.claim("k", 0.0)
    second = flights.claim("k", 60.0)
    assert first is not None
    assert second is not None
    flights.release(first)
    assert flights.claim("k", 61.0) is None


def test_a_full_table_lets_newcomers_through_and_forgets_nobody() -> None:
    flights = Claims(1, 60.0)
    first = flights.claim("a", 0.0)
    newcomer = flights.claim("b", 1.0)
    assert newcomer == Claim("b", 0)
    assert flights.claim("b", 1.0) == Claim("b", 0)
    flights.release(newcomer)
    assert flights.claim("a", 2.0) is None
    assert first is not None
    assert flights.claim("b", 60.0) != Claim("b", 0), "what has expired makes room"


class InFlight(RuleBasedStateMachine):
    """Against a plain model: at most one claim of a key within its time, never more entries than allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.flights = Claims(4, 10.0)
        self.now = 0.0
        self.claims: dict[str, tuple[Claim, float]] = {}
        self.old: list[Claim] = []

    @rule(key=st.sampled_from("abcdef"))
    def claim(self, key: str) -> None:
        held = self.claims.get(key)
        alive = held is not None and self.now < held[1]
        told = self.flights.claim(key, self.now)
        assert (told is None) == alive
        if told is not None and told.token:
            if held is not None:
                self.old.append(held[0])
            self.claims[key] = (told, self.now + 10.0)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.claims)))
        self.flights.release(self.claims.pop(key)[0])

    @precondition(lambda self: self.old)
    @rule()
    def release_again(self) -> None:
        self.flights.release(self.old.pop())

    @rule(seconds=st.floats(0, 12))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def bounded(self) -> None:
        assert len(self.flights) <= 4


TestInFlight = InFlight.TestCase


# What Envoy is told, and who is refused.


TENANTS: tuple[dict[str, str], ...] = ({}, {}, {"x-tenant": "a"}, {"x-tenant": "b"})


def guard(registry: CollectorRegistry | None = None, sla: bool = True, **keys: Any) -> Idempotency:
    pools: list[dict[str, Any]] = [{"name": "plain"}, {"name": "keyed"}]
    if sla:
        pools[1]["sla"] = {
            "first_token_p95_seconds": 0.8,
            "tolerated_error_ratio": 0.15,
            "base_round_trip_seconds": 0.02,
            "repeats": "keyed",
        }
    written = {
        "pools": pools,
        "listeners": [{"name": "l", "address": "127.0.0.1:10000", "pool": "plain"}],
        "ext_proc": {
            "idempotency": {"enabled": True, **keys},
            "pick": {"tenant_header": "x-tenant"},
        },
    }
    settings = parse_settings(json.dumps(written))
    return Idempotency(settings, registry or CollectorRegistry(), lambda: 0.0, "worker")


def request(body: bytes = BODY, cluster: str = "keyed", **more: Any) -> HttpRequest:
    return http_request(body, complete=True, cluster=cluster, path=PATH, **more)


SETTINGS = parse_settings("pools: [{name: a}]\nlisteners: [{name: l, address: '127.0.0.1:1', pool: a}]\n")


def key_of(keys: Idempotency, asks: HttpRequest) -> RequestKey | None:
    """The key that a request gets after its one parse."""
    return keys.key_of(asks, RequestReader(SETTINGS, lambda: 0.0).read(asks))


def test_off_by_default() -> None:
    assert key_of(guard(sla=False, enabled=False), request()) is None


def test_envoy_is_told_the_key_and_what_may_be_repeated_with_it() -> None:
    streamed = b'{"stream": true, "messages": []}'
    held = guard(streaming=True)
    plain, whole, stream = (
        key_of(held, request(cluster="plain")),
        key_of(held, request()),
        key_of(held, request(streamed)),
    )
    assert plain is not None
    assert whole is not None
    assert stream is not None
    assert plain.metadata == {"idempotency": plain.key}
    assert whole.metadata == {"idempotency": whole.key, "retry_on": "reset,retriable-status-codes"}
    assert stream.metadata == {
        "idempotency": stream.key,
        "retry_on": "reset,retriable-status-codes",
        "first_byte_ms": "260",
    }
    # A whole answer has its headers at its end, so it has no limit.
    assert key_of(guard(), request(streamed)) is None, "streams only where they are asked for"


def test_tenants_and_clients_keys_make_other_requests() -> None:
    held = guard()
    headers = [{}, {"x-tenant": "a"}, {"x-tenant": "b"}, {"idempotency-key": "a"}, {"x-tenant": "a" * 300}]
    keys = {mark.key for told in headers if (mark := key_of(held, request(headers=told)))}
    assert len(keys) == len(headers)


@pytest.mark.parametrize(
    "asks",
    [
        request(content_encoding="gzip"),
        request(headers_only=True),
        request(headers={":method": "PUT"}),
        http_request(BODY, complete=False, path=PATH),
        http_request(BODY, complete=True, path="/v1/files"),
        request(headers={CROWDED: "yes"}),
    ],
)
def test_what_is_not_certain_has_no_mark(asks: HttpRequest) -> None:
    assert key_of(guard(), asks) is None


async def test_a_duplicate_is_told_so_until_the_first_one_has_ended() -> None:
    registry = CollectorRegistry()
    held = guard(registry, duplicates="reject")
    mark = key_of(held, request())
    assert mark is not None
    assert held.refuses(mark)
    first = held.begin(mark)
    assert first is not None
    assert await held.confirm(first)
    assert held.begin(mark) is None
    assert registry.get_sample_value("warmroute_duplicates_total") == 1
    assert registry.get_sample_value("warmroute_idempotency_in_flight") == 1
    held.end(first)
    assert held.begin(mark) is not None
    assert (DUPLICATE.status, DUPLICATE.retry_after_seconds) == (409, 1.0)
    await held.close()


def test_nobody_is_refused_by_default_and_streams_never() -> None:
    streamed = b'{"stream": true, "messages": []}'
    for held, body in ((guard(), BODY), (guard(streaming=True, duplicates="reject"), streamed)):
        mark = key_of(held, request(body))
        assert mark is not None
        assert not held.refuses(mark)


def test_named_refuses_only_requests_with_client_key() -> None:
    held = guard(duplicates="named")
    theirs, nobodys = key_of(held, request(headers={"idempotency-key": "a"})), key_of(held, request())
    assert theirs is not None
    assert nobodys is not None
    assert held.refuses(theirs)
    assert not held.refuses(nobodys)


def test_clients_are_told_apart_by_tenant_alone() -> None:
    """Two who choose one key for one body are the same without it, and the answer says what to change."""
    held = guard(duplicates="named")
    told = [key_of(held, request(headers={"idempotency-key": "1", **more})) for more in TENANTS]
    keys = [mark.key for mark in told if mark is not None]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert "idempotency-key" in DUPLICATE.message
    assert "body" in DUPLICATE.message
