"""The served endpoints while some pools are unknown."""

from __future__ import annotations

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import Settings, parse_settings
from xds_server.endpoints.roster import assemble

NONE: frozenset[str] = frozenset()


def settings(*pools: str) -> Settings:
    listed = ", ".join(f"{{name: {pool}}}" for pool in pools)
    return parse_settings(
        f"pools: [{listed}]\nlisteners: [{{name: l, address: '127.0.0.1:1', pool: {pools[0]}}}]\n"
    )


def members(**pools: str) -> Membership:
    return Membership(tuple(Pool(n, tuple(Endpoint(a, n) for a in letters)) for n, letters in pools.items()))


def shown(membership: Membership) -> dict[str, str]:
    return {pool.name: "".join(e.address for e in pool.endpoints) for pool in membership.pools}


def test_nothing_is_served_while_every_pool_is_unknown() -> None:
    roster_settings = settings("p", "q")
    assert assemble(roster_settings, members(p="", q=""), NONE, frozenset("pq"), None) is None


def test_undiscovered_pool_delays_no_other() -> None:
    roster_settings = settings("p", "q")
    first = assemble(roster_settings, members(p="a", q=""), NONE, frozenset("q"), None)
    assert first is not None
    assert (shown(first.membership), first.undiscovered) == ({"p": "a"}, frozenset("q"))
    assert assemble(roster_settings, members(p="a", q=""), NONE, frozenset("q"), first) is first
    changed = settings("p", "q")
    after_reload = assemble(changed, members(p="ab", q=""), NONE, frozenset("q"), first)
    assert after_reload is not None
    assert (after_reload.settings is changed, after_reload.undiscovered) == (True, frozenset("q"))
    discovered = assemble(changed, members(p="ab", q="c"), NONE, NONE, after_reload)
    assert discovered is not None
    assert (shown(discovered.membership), discovered.undiscovered) == ({"p": "ab", "q": "c"}, NONE)


def test_empty_pool_is_served_as_empty() -> None:
    roster_settings = settings("p", "q")
    roster = assemble(roster_settings, members(p="a", q=""), NONE, NONE, None)
    assert roster is not None
    assert shown(roster.membership) == {"p": "a", "q": ""}, "an empty pool is served as empty"


def test_unknown_pool_keeps_all_but_leaving_endpoints() -> None:
    roster_settings = settings("p", "q")
    before = assemble(roster_settings, members(p="a", q="bc"), frozenset("c"), NONE, None)
    roster = assemble(roster_settings, members(p="ad", q=""), NONE, frozenset("q"), before)
    assert roster is not None
    assert shown(roster.membership) == {"p": "ad", "q": "b"}
    assert roster.leaving == NONE


def test_unknown_new_pool_delays_no_other() -> None:
    """Settings from before stay in force for Envoys, with a pool that left them; the rest goes on."""
    old, new = settings("p", "q"), settings("p", "r")
    before = assemble(old, members(p="a", q="b"), NONE, NONE, None)
    roster = assemble(new, members(p="ac", r=""), NONE, frozenset("r"), before)
    assert roster is not None
    assert roster.settings is old
    assert shown(roster.membership) == {"p": "ac", "q": "b"}
    discovered = assemble(new, members(p="ac", r="d"), NONE, NONE, roster)
    assert discovered is not None
    assert discovered.settings is new
    assert shown(discovered.membership) == {"p": "ac", "r": "d"}


def test_address_is_in_one_pool_only() -> None:
    old, new = settings("p", "q"), settings("p", "r")
    before = assemble(old, members(p="a", q="b"), NONE, NONE, None)
    roster = assemble(new, members(p="ab", r=""), NONE, frozenset("r"), before)
    assert roster is not None
    assert shown(roster.membership) == {"p": "ab", "q": ""}


def test_leaving_endpoints_are_sent_but_not_active() -> None:
    roster = assemble(settings("p"), members(p="abc"), frozenset("b"), NONE, None)
    assert roster is not None
    assert (shown(roster.membership), shown(roster.active)) == ({"p": "abc"}, {"p": "ac"})
    assert roster.leaving == {"b"}


def test_it_is_the_same_object_while_nothing_differs() -> None:
    roster_settings = settings("p")
    first = assemble(roster_settings, members(p="abc"), frozenset("b"), NONE, None)
    assert assemble(roster_settings, members(p="abc"), frozenset("b"), NONE, first) is first
    gone = assemble(roster_settings, members(p="ac"), NONE, NONE, first)
    assert first is not None
    assert gone is not None
    assert gone.active is first.active, "picks are not disturbed by the end of a drain"
    again = assemble(settings("p"), members(p="ac"), NONE, NONE, gone)
    assert again is not None
    assert again.membership is gone.membership


def test_last_endpoint_of_a_pool_is_never_drained() -> None:
    roster_settings = settings("p", "q")
    drained = frozenset("abc")
    roster = assemble(roster_settings, members(p="abd", q="c"), NONE, NONE, None, drained)
    assert roster is not None
    assert shown(roster.membership) == {"p": "abd", "q": "c"}
    assert shown(roster.active) == {"p": "d", "q": "c"}
    assert roster.leaving == frozenset("ab")
    # The one that is not drained leaves by itself: as if nobody was drained.
    left = assemble(roster_settings, members(p="abd", q="c"), frozenset("d"), NONE, roster, drained)
    assert left is not None
    assert (shown(left.active), left.leaving) == ({"p": "ab", "q": "c"}, frozenset("d"))
    assert assemble(roster_settings, members(p="abd", q="c"), frozenset("d"), NONE, left, drained) is left


def test_drained_endpoint_serves_if_no_other_would() -> None:
    """A drain lasts for hours, and the others may fail meanwhile."""
    roster_settings, drained = settings("p", "q"), frozenset("a")
    roster = None
    for unfit, active in (("", "bc"), ("b", "bc"), ("bc", "abc"), ("abc", "abc"), ("c", "bc")):
        roster = assemble(
            roster_settings, members(p="abc", q="d"), NONE, NONE, roster, drained, frozenset(unfit)
        )
        assert roster is not None
        assert shown(roster.active) == {"p": active, "q": "d"}
    left = assemble(
        roster_settings, members(p="abc", q="d"), frozenset("c"), NONE, None, drained, frozenset("b")
    )
    assert left is not None
    assert shown(left.active)["p"] == "ab", "one that leaves anyway does not serve"
