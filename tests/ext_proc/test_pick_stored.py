"""Picks of stored state and of hard sessions: the endpoint that has it, as long as it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ext_proc.pick import Reason
from ext_proc.protocol.attributes import METHOD
from fleet.store import Missed
from tests.ext_proc.test_pick_wiring import ENDS, busy, publish, world
from tests.ext_proc.worlds import World, chat, http_request, pool_of, view_of, whole

if TYPE_CHECKING:
    from ext_proc.pick import PickResult
    from fleet.store import Placement

LONG = "word " * 400


def follow_up(made: World, name: str, text: str = "And then?") -> PickResult:
    return made.route(whole(chat(text, previous_response_id=name)))


def get(made: World, path: str, **more: Any) -> PickResult:
    headers = {METHOD: "GET"}
    return made.route(http_request(path=path, headers=headers, headers_only=True, **more))


def counted(made: World, outcome: str) -> float | None:
    return made.registry.get_sample_value("warmroute_stored_names_total", {"outcome": outcome})


def test_load_and_warmth_do_not_lead_a_follow_up_away() -> None:
    made = world()
    home = made.route(whole(chat(LONG))).endpoints[0]
    other = next(end for end in ENDS if end != home)
    made.director.stored("resp_1", other)
    busy(made, other, 200)
    result = follow_up(made, "resp_1", LONG)
    assert (result.endpoints[0], result.reason) == (other, Reason.STORED)
    assert len(result.endpoints) == 3


def test_a_failing_engine_still_has_what_it_stored() -> None:
    for signals in ({"trust_ratio": 0.0}, {"reachable": 0.0}, {"stalled": 1.0}):
        made = world()
        made.director.pools.follow()
        made.director.stored("resp_1", ENDS[2])
        made.clock.now += 1
        publish(made, e2=signals)
        assert follow_up(made, "resp_1").endpoints[0] == ENDS[2]
        assert get(made, "/v1/responses/resp_1").endpoints == (ENDS[2],)


def test_what_has_left_or_is_not_allowed_falls_back() -> None:
    made = world()
    made.director.pools.follow()
    made.director.stored("resp_1", ENDS[3])
    assert get(made, "/v1/responses/resp_1", subset=(ENDS[0],)).endpoints == ()
    assert get(made, "/v1/responses/resp_1", subset=(ENDS[3],)).reason is Reason.STORED
    made.clock.now += 1
    made.store.publish(view_of(pool_of(count=3), now=made.clock.now))
    assert get(made, "/v1/responses/resp_1").reason is Reason.NO_PROMPT
    assert follow_up(made, "resp_1").reason is Reason.COLD
    assert follow_up(made, "resp_2").reason is Reason.COLD
    assert [counted(made, outcome) for outcome in ("present", "gone", "unknown")] == [1, 3, 1]


def test_names_are_bounded_and_can_be_off() -> None:
    made = world(stored_names=3)
    made.director.pools.follow()
    for number in range(5):
        made.director.stored(f"resp_{number}", ENDS[0])
    assert len(made.director.places) == 3
    assert [made.director.stored_at(f"/v1/responses/resp_{n}") for n in (1, 4)] == ["", ENDS[0]]
    assert made.director.stored_at("/v1/responses") == ""
    assert get(made, "/v1/responses/resp_4").reason is Reason.STORED
    off = world(stored_names=0)
    off.director.pools.follow()
    off.director.stored("resp_1", ENDS[0])
    off.director.stored("resp_1", "10.9.9.9:80")
    assert len(off.director.places) == 0


def hard(made: World, session: str = "s", text: str = "ping") -> PickResult:
    return made.route(whole(chat(text), headers={"x-session-id": session}))


def test_a_hard_session_leaves_an_engine_that_is_not_well() -> None:
    made = world(sessions={"mode": "hard", "bonus_seconds": 0.0})
    first = hard(made).endpoints[0]
    busy(made, first, 200)
    assert (hard(made).endpoints[0], hard(made).reason) == (first, Reason.SESSION)
    made.clock.now += 1
    publish(made, **{f"e{ENDS.index(first)}": {"reachable": 0.0}})
    then = hard(made)
    assert then.endpoints[0] != first
    publish(made)
    assert hard(made).endpoints[0] == then.endpoints[0]


def test_a_hard_session_follows_who_served_it() -> None:
    made = world(sessions={"mode": "hard"})
    result = hard(made)
    picked, served = result.endpoints[:2]
    made.director._sent.tracks = True
    result = hard(made)
    made.director.missed(Missed(result.prompt, picked, served, result.serial, result.request))
    assert hard(made).endpoints[0] == served


def test_workers_that_place_one_session_apart_agree() -> None:
    """Each gets all placements in one order, its own included."""
    workers = [world(sessions={"mode": "hard"}) for _ in range(2)]
    sent: list[Placement] = []
    for number, made in enumerate(workers):
        busy(made, ENDS[number], 50)
        made.director.places.on_placed = sent.append
    busy(workers[0], ENDS[2], 50)
    busy(workers[0], ENDS[3], 50)
    busy(workers[1], ENDS[2], 60)
    busy(workers[1], ENDS[3], 60)
    apart = [hard(made).endpoints[0] for made in workers]
    assert apart == [ENDS[1], ENDS[0]]
    for made in workers:
        for placement in sent:
            made.director.places.take(placement)
    assert [hard(made).endpoints[0] for made in workers] == [ENDS[0], ENDS[0]]


def test_a_soft_session_is_no_pin() -> None:
    made = world()
    first = hard(made).endpoints[0]
    busy(made, first, 200)
    assert hard(made).endpoints[0] != first
    assert len(made.director.places) == 0
