"""The router with everything that it asks: sessions, tenants, gateways, KV events, restarts, admission."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ext_proc.kv.lookup import KvPrompt
from ext_proc.pick import Reason
from ext_proc.prompt.decode import Prompt
from ext_proc.protocol.attributes import METHOD
from testing.signals import Load, Signal, table_of
from tests.ext_proc.worlds import World, chat, http_request, pool_of, settings_with, view_of, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ext_proc.prompt.envelope import Members

LONG = "You are a helpful assistant. " * 100
SHORT = "ping"
ENDS = [f"10.0.0.{n}:80" for n in range(4)]


def world(count: int = 4, **pick: Any) -> World:
    return World(view_of(pool_of(count=count)), ext_proc={"pick": pick})


def busy(made: World, address: str, requests: int) -> None:
    """Let so many requests be in flight to one endpoint."""
    for _ in range(requests):
        made.director.traffic.started(address)
    made.director.pools.note_in_flight(address)


def publish(made: World, **loads: Mapping[str, float]) -> None:
    """Publish loads by the endpoints' numbers; the others are idle."""
    now = made.clock.now
    told = {f"10.0.0.{number.removeprefix('e')}:80": signals for number, signals in loads.items()}
    held = {
        address: Load(
            **{
                name: Signal(value, now, "x")
                for name, value in {"queue_depth": 0.0, **told.get(address, {})}.items()
            }
        )
        for address in ENDS
    }
    view = made.store.view
    assert view is not None
    made.store.publish(replace(view, signals=table_of(view.membership.addresses, held)))


# Sessions.


def test_session_stays_with_unrelated_prompts() -> None:
    made = world()
    firsts = {
        made.route(whole(chat(f"{n} {SHORT}"), headers={"x-session-id": "s1"})).endpoints[0]
        for n in range(30)
    }
    assert len(firsts) == 1
    others = {made.route(whole(chat(f"{n} {SHORT}"))).endpoints[0] for n in range(30)}
    assert len(others) > 1


def test_body_field_names_the_session_without_a_header() -> None:
    made = world(sessions={"field": "metadata.user_id"})
    bodies = [chat(f"{n} {SHORT}", metadata={"user_id": "u"}) for n in range(20)]
    assert len({made.route(whole(body)).endpoints[0] for body in bodies}) == 1


def test_a_session_of_another_pool_or_tenant_is_another_one() -> None:
    made = world(tenant_header="x-tenant")
    for tenant in ("a", "b"):
        headers = {"x-session-id": "s", "x-tenant": tenant}
        made.route(whole(chat(SHORT), headers=headers))
    assert len(made.director.sessions) == 2


def test_sessions_can_be_switched_off() -> None:
    made = world(sessions={"bonus_seconds": 0.0})
    made.route(whole(chat(SHORT), headers={"x-session-id": "s1"}))
    assert len(made.director.sessions) == 0


def test_a_session_does_not_follow_a_trial() -> None:
    made = world()
    headers = {"x-session-id": "s1"}
    home = made.route(whole(chat(SHORT), headers=headers)).endpoints[0]
    number = ENDS.index(home)
    other = (number + 1) % 4
    made.clock.now += 1
    publish(made, **{f"e{other}": {"trust_ratio": 0.1}})
    tried = made.decide(whole(chat(SHORT), headers=headers))
    assert (tried.trial, tried.result.endpoints[0]) == (True, ENDS[other])
    assert made.route(whole(chat(SHORT), headers=headers)).endpoints[0] == home


def test_headers_alone_need_a_session_for_a_pick() -> None:
    made = world()
    told = {METHOD: "POST", "x-session-id": "s1"}

    def ask(headers: Mapping[str, str]) -> Any:
        return made.route(http_request(b"", complete=False, headers=headers, headers_only=True))

    first = ask(told)
    assert (first.reason, len(first.endpoints)) == (Reason.HEADERS, 3)
    assert {ask(told).endpoints[0] for _ in range(20)} == {first.endpoints[0]}
    assert ask({METHOD: "POST"}).endpoints == ()
    assert ask({**told, METHOD: "GET"}).endpoints == ()


# Tenants and adapters.


def test_tenants_share_warmth_unless_engines_separate_them() -> None:
    for apart, reason in ((False, Reason.WARM), (True, Reason.COLD)):
        made = world(tenant_header="x-tenant", tenants_apart=apart)
        made.route(whole(chat(LONG), headers={"x-tenant": "a"}))
        second = made.route(whole(chat(LONG), headers={"x-tenant": "b"}))
        assert second.reason is reason


def test_an_adapter_goes_where_it_was_loaded() -> None:
    made = world()
    bodies = [chat(f"{n} {SHORT}", lora_path="poet") for n in range(20)]
    assert len({made.route(whole(body)).endpoints[0] for body in bodies[:5]}) == 1


def test_further_models_of_an_engine_are_adapters() -> None:
    made = World(view_of(pool_of(models=("m", "poet", "coder"))))
    chosen = {
        model: {made.route(whole(chat(f"{n} {SHORT}", model))).endpoints[0] for n in range(4)}
        for model in ("poet", "coder")
    }
    assert [len(found) for found in chosen.values()] == [1, 1]


# What the index has forgotten.


def test_earlier_holder_of_a_beginning_is_preferred() -> None:
    """The engine may still have it in host memory: a guess that costs nothing where all else is equal."""
    hashed = world().route(whole(chat(LONG))).endpoints[0]
    made = World(view_of(pool_of(), capacity=2000.0))

    def evict() -> None:
        for number in range(40):
            made.route(whole(chat(f"{made.clock.now} {number} {LONG}")))
            made.clock.now += 0.01

    tokens = [made.director.traffic.started(hashed) for _ in range(200)]
    made.director.pools.note_in_flight(hashed)
    for _ in range(2):
        elsewhere = made.route(whole(chat(LONG))).endpoints[0]
        evict()
    for token in tokens:
        made.director.finished(token)
    made.clock.now += 2
    again = made.route(whole(chat(LONG)))
    assert again.reason is Reason.COLD
    assert again.endpoints[0] == elsewhere != hashed


# Gateways.


def test_a_pick_names_only_endpoints_that_the_gateway_allows() -> None:
    made = world()
    made.route(whole(chat(LONG)))
    for allowed in (("10.0.0.1:80", "10.0.0.3"), ("10.0.0.2",)):
        pick = made.route(whole(chat(LONG), subset=allowed))
        assert {address.rpartition(":")[0] for address in pick.endpoints} == {
            entry.removesuffix(":80") for entry in allowed
        }
    assert made.route(whole(chat(LONG), subset=("10.9.9.9",))).reason is Reason.NO_ENDPOINT
    assert made.route(whole(chat(LONG), subset=())).reason is Reason.NO_ENDPOINT


def test_new_subsets_do_not_grow_the_tables() -> None:
    made = world()
    for number in range(500):
        made.route(whole(chat(SHORT), subset=("10.0.0.1", f"10.9.9.{number}")))
    pool = made.director.pools.find("", "m")
    assert pool is not None
    assert len(pool._profiles) <= 65


def test_who_really_served_is_warm_from_then_on() -> None:
    """A retry went elsewhere: the next turn finds its cache there, once anybody tells of such things."""
    made = world()
    made.director.answered(None, "10.0.0.1:80", refused=False)
    pick = made.route(whole(chat(LONG)))
    other = next(address for address in ENDS if address != pick.endpoints[0])
    made.director.answered(pick, other, refused=False)
    assert made.director.warmth.index.block_count(other) > 0
    assert made.director.warmth.index.block_count(pick.endpoints[0]) == 0
    made.director.answered(pick, "10.9.9.9:1", refused=False)
    assert made.director.warmth.index.block_count("10.9.9.9:1") == 0


# Restarts.


@pytest.mark.parametrize(
    ("before", "after"),
    [({"progress_total": 5000.0}, {"progress_total": 3.0}), ({"reachable": 0.0}, {"reachable": 1.0})],
)
def test_an_engine_that_restarted_is_cold_at_once(before: dict[str, float], after: dict[str, float]) -> None:
    made = world()
    first = made.route(whole(chat(LONG))).endpoints[0]
    name = f"e{ENDS.index(first)}"
    publish(made, **{name: before})
    made.director.pools.follow()
    assert made.director.warmth.index.block_count(first) > 0
    publish(made, **{name: after})
    assert made.route(whole(chat(LONG))).reason is Reason.COLD
    assert made.director.warmth.add_remote(first, [1, 2]) == 0, "it is still known, only empty"


# KV events.


class Events:
    """Events by which one engine has half of every prompt."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.view = self
        self.asked: list[tuple[str, str, Prompt, Members | None]] = []
        self.expected_at: list[str] = []

    def locate(self, pool: str, model: str, prompt: Prompt, envelope: Members | None) -> KvPrompt | None:
        self.asked.append((pool, model, prompt, envelope))
        return KvPrompt(pool, np.zeros(1, np.uint64), whole=True, total=100)

    def merged(
        self, _prompt: KvPrompt, local: Mapping[str, int], blocks: int, _ranks: int
    ) -> Mapping[str, int]:
        assert all(address in ENDS for address in local)
        return {self.holder: blocks // 2, "gone:1": blocks}

    def expect(self, address: str, _keys: Any, _shape: int) -> None:
        self.expected_at.append(address)


def test_picks_use_kv_events() -> None:
    made = world()
    events = Events("10.0.0.2:80")
    made.director._kv = events  # type: ignore[assignment]
    pick = made.route(whole(chat(LONG, cache_salt="s")))
    assert pick.endpoints[0] == "10.0.0.2:80"
    assert pick.matched_share == pytest.approx(0.5, abs=0.1)
    assert events.expected_at == ["10.0.0.2:80"]
    (pool, model, prompt, _envelope) = events.asked[0]
    assert (pool, model) == ("p", "m")
    assert prompt.text.endswith(b"assistant. ")
    assert prompt._replace(text=b"") == Prompt("m", "s", b"", complete=True)


# Settings.


def test_another_index_goes_on_telling_others_what_is_added() -> None:
    made = world()
    told: list[str] = []
    made.director.warmth.on_added = lambda address, _blocks: told.append(address)
    made.director.reconfigure(settings_with(ext_proc={"pick": {"block_bytes": 512}}))
    first = made.route(whole(chat(LONG))).endpoints[0]
    assert told == [first]


def test_settings_of_sessions_hold_at_once() -> None:
    made = world()
    made.route(whole(chat(SHORT), headers={"x-session-id": "s1"}))
    pick = {"sessions": {"expiry_seconds": 1.0, "entries": 7}}
    made.director.reconfigure(settings_with(ext_proc={"pick": pick}))
    assert (made.director.sessions.entries, made.director.sessions.expiry_seconds) == (7, 1.0)


# Admission.

OVERLOADED = {f"e{n}": {"queue_depth": 50.0} for n in range(4)}
LIMIT = {"most_queue": 10, "priority_header": "x-priority"}


def test_by_default_nobody_is_refused_however_full_all_are() -> None:
    made = world()
    publish(made, **OVERLOADED)
    for address in ENDS:
        busy(made, address, 10_000)
    pick = made.route(whole(chat(LONG), headers={"x-priority": "-100"}))
    assert (pick.refusal, len(pick.endpoints)) == (None, 3)


def test_low_priorities_are_refused_past_the_limit() -> None:
    made = world(admission=LIMIT)
    publish(made, **OVERLOADED)

    def ask(priority: str) -> Any:
        return made.route(whole(chat(LONG), headers={"x-priority": priority}))

    shed = ask("-1")
    assert shed.reason is Reason.SHED
    assert shed.refusal is not None
    assert (shed.endpoints, shed.refusal.status) == ((), 429)
    assert ask("0").endpoints
    assert ask("").endpoints
    publish(made, **{**OVERLOADED, "e2": {"queue_depth": 3.0}})
    assert ask("-1").endpoints[0] == "10.0.0.2:80"


def test_tenant_priority_and_own_waits_count() -> None:
    limit = {"most_wait_seconds": 5.0, "tenant_priorities": {"batch": -1}}
    made = world(admission=limit, tenant_header="x-tenant")
    request = whole(chat(LONG), headers={"x-tenant": "batch"})
    assert made.route(request).endpoints
    for address in ENDS:
        busy(made, address, 700)
    assert made.route(request).reason is Reason.SHED
    assert made.route(whole(chat(LONG), headers={"x-tenant": "other"})).endpoints


def test_a_queue_that_will_shrink_below_its_limit_is_no_overload() -> None:
    made = world(admission=LIMIT)
    request = whole(chat(LONG), headers={"x-priority": "-1"})

    def ask(forecast: float) -> Any:
        loads = {name: {**load, "queue_depth_forecast_p50": forecast} for name, load in OVERLOADED.items()}
        publish(made, **loads)
        return made.route(request)

    assert ask(4.0).endpoints
    assert ask(11.0).reason is Reason.SHED
    publish(made, **{f"e{n}": {"queue_depth": 4.0, "queue_depth_forecast_p50": 50.0} for n in range(4)})
    assert made.route(request).endpoints, "a forecast alone refuses nobody"
