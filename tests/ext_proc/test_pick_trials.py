"""Trials of an endpoint in doubt: enough for its recovery at any load, and no more than it would have got."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ext_proc.pick import Reason
from testing.signals import Signal, loads_of, table_of
from tests.ext_proc.worlds import World, chat, pool_of, view_of, whole
from xds_server.signals.passive.trust import FLOOR, Trust

pytestmark = pytest.mark.untraced

ENDS = [f"10.0.0.{n}:80" for n in range(4)]
LONG = "You are a helpful assistant. " * 200


def ask(made: World, text: str, trust: dict[str, float], seconds: float) -> str:
    """Ask for a request that has ended before the next one comes."""
    made.clock.now += seconds
    view = view_of(pool_of(), now=made.clock.now)
    loads = {
        address: replace(load, trust_ratio=Signal(trust.get(address, 1.0), made.clock.now, "x"))
        for address, load in loads_of(view.signals).items()
    }
    made.store.publish(replace(view, signals=table_of(view.membership.addresses, loads)))
    pick = made.route(whole(chat(text)))
    made.director.finished(made.director.started(pick.endpoints[0]))
    assert (pick.matched_share == 0.0) == (pick.reason is Reason.COLD)
    return pick.endpoints[0]


@pytest.mark.parametrize("seconds", [1.0, 0.2])
@pytest.mark.parametrize("ratio", [FLOOR, 0.9])
def test_at_light_load_it_gets_half_its_fair_share(seconds: float, ratio: float) -> None:
    """Of one request a second it got all, and an engine that fails each third answer keeps failing them."""
    made = World(view_of(pool_of()))
    asked = [ask(made, f"{n} {LONG}", {ENDS[0]: ratio}, seconds) for n in range(200)]
    assert 200 / 8 <= asked.count(ENDS[0]) <= 200 / 8 + 2


def test_all_in_doubt_together_get_a_quarter() -> None:
    made = World(view_of(pool_of()))
    doubted = dict.fromkeys(ENDS[:3], FLOOR)
    asked = [ask(made, f"{n} {LONG}", doubted, 1.0) for n in range(240)]
    counts = [asked.count(address) for address in ENDS]
    assert sum(counts[:3]) <= 240 / 4 + 2
    assert max(counts[:3]) - min(counts[:3]) <= 1, "in turn"


def test_warm_conversations_are_tried_half_as_often() -> None:
    made = World(view_of(pool_of()))
    home = ask(made, LONG, {}, 1.0)
    doubted = {next(address for address in ENDS if address != home): FLOOR}
    asked = [ask(made, LONG + " turn" * n, doubted, 1.0) for n in range(160)]
    assert 160 / 16 - 1 <= sum(address != home for address in asked) <= 160 / 16 + 2


def test_a_prompt_that_nobody_holds_is_preferred() -> None:
    made = World(view_of(pool_of()))
    home = ask(made, LONG, {}, 1.0)
    other = next(address for address in ENDS if address != home)
    tried = []
    for n in range(160):
        text = f"{n} {LONG}" if n % 8 == 7 else LONG + " turn" * n
        tried += [n] * (ask(made, text, {other: FLOOR}, 1.0) == other)
    assert sum(n % 8 == 7 for n in tried) > len(tried) / 2


@pytest.mark.parametrize("rate", [1, 2, 5, 20, 50])
def test_once_it_answers_half_its_fair_share_comes_at_any_load(rate: int) -> None:
    """Requests of 5 s, or as many as make 16 at light load: trust comes from the answers that it gives."""
    made, trust = World(view_of(pool_of())), Trust()
    trust.remap_rows(np.full(4, -1))
    ratio, asked, step = np.ones(4), [], 1 / rate
    healed = 20 * rate
    wanted = max(5 * rate, 16)
    for n in range(healed + 2 * wanted):
        chosen = ask(made, f"{n} {LONG}", dict(zip(ENDS, ratio.tolist(), strict=True)), step)
        asked.append(chosen)
        fails = chosen == ENDS[0] and n < healed
        came = np.array([int(address == chosen) for address in ENDS])
        ratio = trust.step(came * (not fails), came * fails, made.clock.now)
    soon, later = asked[healed : healed + wanted], asked[healed + wanted :]
    assert soon.count(ENDS[0]) >= wanted / 16, "some of it at once"
    assert later.count(ENDS[0]) >= wanted / 8, "half its fair share from then on"
