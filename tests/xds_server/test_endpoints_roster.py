"""Who is served when not everything is known."""

from __future__ import annotations

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import Settings, parse_settings
from xds_server.endpoints.roster import assemble

NOBODY: frozenset[str] = frozenset()


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
    given = settings("p", "q")
    assert assemble(given, members(p="", q=""), NOBODY, frozenset("pq"), None) is None


def test_undiscovered_pool_delays_no_other() -> None:
    given = settings("p", "q")
    first = assemble(given, members(p="a", q=""), NOBODY, frozenset("q"), None)
    assert first is not None
    assert (shown(first.membership), first.undiscovered) == ({"p": "a"}, frozenset("q"))
    assert assemble(given, members(p="a", q=""), NOBODY, frozenset("q"), first) is first
    changed = settings("p", "q")
    after_reload = assemble(changed, members(p="ab", q=""), NOBODY, frozenset("q"), first)
    assert after_reload is not None
    assert (after_reload.settings is changed, after_reload.undiscovered) == (True, frozenset("q"))
    discovered = assemble(changed, members(p="ab", q="c"), NOBODY, NOBODY, after_reload)
    assert discovered is not None
    assert (shown(discovered.membership), discovered.undiscovered) == ({"p": "ab", "q": "c"}, NOBODY)


def test_a_pool_known_to_be_empty_is_told_as_empty() -> None:
    given = settings("p", "q")
    roster = assemble(given, members(p="a", q=""), NOBODY, NOBODY, None)
    assert roster is not None
    assert shown(roster.membership) == {"p": "a", "q": ""}, "known to be empty is told as empty"


def test_unknown_pool_keeps_all_but_leaving_endpoints() -> None:
    given = settings("p", "q")
    before = assemble(given, members(p="a", q="bc"), frozenset("c"), NOBODY, None)
    roster = assemble(given, members(p="ad", q=""), NOBODY, frozenset("q"), before)
    assert roster is not None
    assert shown(roster.membership) == {"p": "ad", "q": "b"}
    assert roster.leaving == NOBODY


def test_unknown_new_pool_delays_no_other() -> None:
    """Settings from before stay in force for Envoys, with a pool that left them; the rest goes on."""
    old, new = settings("p", "q"), settings("p", "r")
    before = assemble(old, members(p="a", q="b"), NOBODY, NOBODY, None)
    roster = assemble(new, members(p="ac", r=""), NOBODY, frozenset("r"), before)
    assert roster is not None
    assert roster.settings is old
    assert shown(roster.membership) == {"p": "ac", "q": "b"}
    discovered = assemble(new, members(p="ac", r="d"), NOBODY, NOBODY, roster)
    assert discovered is not None
    assert discovered.settings is new
    assert shown(discovered.membership) == {"p": "ac", "r": "d"}


def test_an_address_never_stands_twice() -> None:
    old, new = settings("p", "q"), settings("p", "r")
    before = assemble(old, members(p="a", q="b"), NOBODY, NOBODY, None)
    roster = assemble(new, members(p="ab", r=""), NOBODY, frozenset("r"), before)
    assert roster is not None
    assert shown(roster.membership) == {"p": "ab", "q": ""}


def test_leaving_endpoints_are_sent_but_not_active() -> None:
    roster = assemble(settings("p"), members(p="abc"), frozenset("b"), NOBODY, None)
    assert roster is not None
    assert (shown(roster.membership), shown(roster.active)) == ({"p": "abc"}, {"p": "ac"})
    assert roster.leaving == {"b"}


def test_it_is_the_same_object_while_nothing_differs() -> None:
    given = settings("p")
    first = assemble(given, members(p="abc"), frozenset("b"), NOBODY, None)
    assert assemble(given, members(p="abc"), frozenset("b"), NOBODY, first) is first
    gone = assemble(given, members(p="ac"), NOBODY, NOBODY, first)
    assert first is not None
    assert gone is not None
    assert gone.active is first.active, "picks are not disturbed by the end of a drain"
    again = assemble(settings("p"), members(p="ac"), NOBODY, NOBODY, gone)
    assert again is not None
    assert again.membership is gone.membership


def test_last_endpoint_of_a_pool_is_never_drained() -> None:
    given = settings("p", "q")
    drained = frozenset("abc")
    roster = assemble(given, members(p="abd", q="c"), NOBODY, NOBODY, None, drained)
    assert roster is not None
    assert shown(roster.membership) == {"p": "abd", "q": "c"}
    assert shown(roster.active) == {"p": "d", "q": "c"}
    assert roster.leaving == frozenset("ab")
    # The one that is not drained leaves by itself: as if nobody was drained.
    left = assemble(given, members(p="abd", q="c"), frozenset("d"), NOBODY, roster, drained)
    assert left is not None
    assert (shown(left.active), left.leaving) == ({"p": "ab", "q": "c"}, frozenset("d"))
    assert assemble(given, members(p="abd", q="c"), frozenset("d"), NOBODY, left, drained) is left


def test_drained_endpoint_serves_if_no_other_would() -> None:
    """A drain lasts for hours, and the others may fail meanwhile."""
    given, drained = settings("p", "q"), frozenset("a")
    roster = None
    for unfit, active in (("", "bc"), ("b", "bc"), ("bc", "abc"), ("abc", "abc"), ("c", "bc")):
        roster = assemble(given, members(p="abc", q="d"), NOBODY, NOBODY, roster, drained, frozenset(unfit))
        assert roster is not None
        assert shown(roster.active) == {"p": active, "q": "d"}
    left = assemble(given, members(p="abc", q="d"), frozenset("c"), NOBODY, None, drained, frozenset("b"))
    assert left is not None
    assert shown(left.active)["p"] == "ab", "one that leaves anyway does not serve"
