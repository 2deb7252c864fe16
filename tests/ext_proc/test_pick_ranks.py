"""Picks among data-parallel ranks: the endpoint and the rank of each request, and what follows from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ext_proc.kv.lookup import KvPrompt
from fleet.ranks import RANK_SIGNALS, PoolRanks
from fleet.store import Missed
from tests.ext_proc.worlds import World, chat, http_request, pool_of, view_of, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick import PickResult
    from fleet.store import FleetView

ENDS = ("10.0.0.0:80", "10.0.0.1:80", "10.0.0.2:80")
RANKS = 2


def loads(**of_ranks: dict[tuple[int, int], float]) -> NDArray[np.float64]:
    """Return signals of ranks: 0 but for those by endpoint and rank."""
    values = np.zeros((len(RANK_SIGNALS), len(ENDS), RANKS))
    for name, numbers in of_ranks.items():
        for (endpoint, rank), number in numbers.items():
            values[RANK_SIGNALS.index(name), endpoint, rank] = number
    return values


def view(*, named: bool = True, **of_ranks: dict[tuple[int, int], float]) -> FleetView:
    values = loads(**of_ranks)
    state = view_of(pool_of(count=len(ENDS)))
    signals = replace(state.signals, observed_at=np.full_like(state.signals.values, 1000.0))
    signals = signals.with_row("queue_depth", values[0].sum(axis=1))
    signals = signals.with_row("running", values[1].sum(axis=1))
    signals = signals.with_row("memory_used_ratio", values[2].max(axis=1))
    return replace(state, signals=signals, ranks={"p": PoolRanks(named, values)})


def world(of: FleetView | None = None, **sections: Any) -> World:
    return World(view() if of is None else of, **sections)


def text_of(conversation: int) -> str:
    return f"Conversation {conversation}. " + f"You are assistant {conversation}. " * 200


def ask(state: World, conversation: int, **more: Any) -> PickResult:
    return state.route(whole(chat(text_of(conversation)), **more))


def test_a_second_turn_goes_to_the_rank_of_the_first() -> None:
    state = world()
    first = [ask(state, number) for number in range(12)]
    again = [ask(state, number) for number in range(12)]
    assert [(pick.endpoints[0], pick.rank) for pick in again] == [
        (pick.endpoints[0], pick.rank) for pick in first
    ]
    assert {pick.reason.value for pick in again} == {"warm"}
    assert len(Counter((pick.endpoints[0], pick.rank) for pick in first)) == len(ENDS) * RANKS


def test_a_pick_names_each_endpoint_once_by_its_address() -> None:
    pick = ask(world(), 1)
    assert sorted(pick.endpoints) == sorted(ENDS)
    assert pick.rank in {"0", "1"}


def test_a_full_rank_is_left_out_while_its_endpoint_is_not() -> None:
    state = world(view(memory_used_ratio={(0, 1): 0.99}))
    picks = {(pick.endpoints[0], pick.rank) for pick in (ask(state, number) for number in range(12))}
    assert (ENDS[0], "0") in picks
    assert (ENDS[0], "1") not in picks


def test_a_long_queue_at_one_rank_sends_requests_to_the_other() -> None:
    state = world()
    first = ask(state, 1)
    place = ENDS.index(first.endpoints[0]), int(first.rank)
    state.store.publish(view(queue_depth={place: 60.0}))
    state.clock.now += 0.1
    assert (ask(state, 1).endpoints[0], ask(state, 1).rank) != (first.endpoints[0], first.rank)


def test_without_leave_to_name_ranks_only_the_endpoint_is_named() -> None:
    state = world(view(named=False))
    first = [ask(state, number) for number in range(6)]
    assert {pick.rank for pick in first} == {""}
    assert [ask(state, number).endpoints[0] for number in range(6)] == [pick.endpoints[0] for pick in first]


def test_no_rank_is_named_after_long_silence() -> None:
    state = world()
    place = ask(state, 1).endpoints[0]
    state.clock.now += state.settings.signals.stale_after_seconds + 1
    again = ask(state, 1)
    assert (again.endpoints[0], again.rank) == (place, "")


def test_a_refused_prompt_is_warm_at_no_rank() -> None:
    state = world(signals={"access_log": True})
    first = ask(state, 1)
    picked = first.endpoints[0]
    state.director.missed(Missed(first.prompt, picked, "", first.serial, first.request))
    again = ask(state, 1)
    assert (again.reason.value, again.endpoints[0] == picked) == ("cold", False)


def test_a_retry_makes_the_same_rank_of_another_endpoint_warm() -> None:
    state = world(signals={"access_log": True})
    first = ask(state, 1)
    served = next(address for address in ENDS if address != first.endpoints[0])
    state.director.missed(Missed(first.prompt, first.endpoints[0], served, first.serial, first.request))
    again = ask(state, 1)
    assert (again.endpoints[0], again.rank, again.reason.value) == (served, first.rank, "warm")


def test_traffic_is_reported_by_endpoint() -> None:
    state = world()
    for number in range(12):
        state.director.started(ask(state, number).rank_name)
    reported = {entry.address: entry for entry in state.director.traffic.snapshot()}
    assert reported.keys() == {*ENDS}
    assert sum(entry.in_flight for entry in reported.values()) == 12
    assert all(entry.prefill_seconds_total for entry in reported.values())


def test_status_shows_the_traffic_of_each_rank() -> None:
    state = world()
    ask(state, 1)
    name = f"{ENDS[1]}#1"
    state.director.traffic.finished(state.director.started(name))
    status = state.director.status()["p"]
    assert {column: entry["started_total"] for column, entry in status.items() if entry["started_total"]} == {
        name: 1
    }
    assert status[name]["duration_p99_seconds"] is not None


def test_a_restarted_engine_is_cold_at_all_of_its_ranks() -> None:
    state = world()
    for number in range(12):
        ask(state, number)
    state.director.pools.emptied(ENDS[0], 1)
    counts = state.director.warmth.index.block_count
    assert (counts(f"{ENDS[0]}#1"), counts(f"{ENDS[0]}#0") > 0) == (0, True)
    for reachable in (0.0, 1.0):
        of = view()
        row = np.array([reachable, np.nan, np.nan])
        state.store.publish(replace(of, signals=of.signals.with_row("reachable", row)))
        state.director.pools.follow()
    assert counts(f"{ENDS[0]}#0") == 0
    assert counts(f"{ENDS[1]}#0") > 0


def test_a_hard_session_stays_at_its_endpoint_and_its_rank() -> None:
    state = world(ext_proc={"pick": {"sessions": {"mode": "hard"}}})
    headers = {"x-session-id": "s"}
    first = ask(state, 1, headers=headers)
    again = ask(state, 1, headers=headers)
    assert (again.reason.value, again.endpoints[0], again.rank) == ("session", first.endpoints[0], first.rank)
    assert len(again.endpoints) == len({*again.endpoints}) == len(ENDS)


def test_a_gateway_may_allow_endpoints_by_address() -> None:
    state = world()
    picks = [state.route(http_request(chat(text_of(n)), subset=(ENDS[2],))) for n in range(6)]
    assert {pick.endpoints for pick in picks} == {(ENDS[2],)}
    assert {pick.rank for pick in picks} == {"0", "1"}


def test_endpoints_are_the_columns_again_without_ranks() -> None:
    state = world()
    ask(state, 1)
    state.store.publish(view_of(pool_of(count=len(ENDS))))
    pick = ask(state, 1)
    assert (pick.rank, pick.rank_name, pick.reason.value) == ("", "", "cold")
    state.store.publish(view())
    assert ask(state, 1).reason.value == "warm"


def test_a_request_may_outlast_a_change_to_ranks_and_back() -> None:
    without = view_of(pool_of(count=len(ENDS)))
    state = world(without)
    for before, after in ((without, view()), (view(), without)):
        state.store.publish(before)
        request = whole(chat(text_of(1)))
        decision = state.director.pick(request, state.director.reader.read(request))
        sent = state.director.book(decision)
        pick = decision.result
        token = state.director.started(pick.rank_name or pick.endpoints[0], sent)
        state.store.publish(after)
        state.director.pools.follow()
        state.director.finished(token)
        assert [entry.in_flight for entry in state.director.traffic.snapshot()] == [0]


@pytest.mark.parametrize("rank", range(RANKS))
def test_kv_events_of_a_rank_make_that_rank_warm(rank: int) -> None:
    state = world()
    state.director._kv = _Events(f"{ENDS[1]}#{rank}")  # type: ignore[assignment]
    pick = ask(state, 1)
    assert (pick.endpoints[0], pick.rank) == (ENDS[1], str(rank))


class _Events:
    """Events by which one rank has half of every prompt."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.view = self

    def locate(self, *_: object) -> Any:
        return KvPrompt("p", np.zeros(1, np.uint64), whole=True, total=100)

    def merged(self, _prompt: object, local: object, blocks: int, ranks: int) -> dict[str, int]:
        assert ranks == RANKS
        return {self.holder: blocks // 2}

    def expect(self, address: str, *_: object) -> int:
        assert address in ENDS
        return 0
