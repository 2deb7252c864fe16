"""Duplicates are merged by one rule: the source listed first has the address, then the pool listed first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.endpoint import Endpoint, Pool
from xds_server.endpoints.merge import identity, merge


def endpoint(address: str, pool: str = "p", *models: str) -> Endpoint:
    return Endpoint(address, pool, models)


def test_within_a_pool_the_source_listed_first_has_it() -> None:
    listed, discovered = endpoint("10.0.0.1:80", "p", "a"), endpoint("10.0.0.1:80", "p", "b")
    other = endpoint("10.0.0.2:80")
    merged = merge([("p", [[listed], [discovered, other]])], 10)
    assert merged.pools == (Pool("p", (listed, other)),)
    assert (merged.duplicates, merged.over_limit) == (1, 0)


def test_over_the_pools_the_pool_listed_first_has_it() -> None:
    merged = merge([("p", [[], [endpoint("10.0.0.1:80", "p")]]), ("q", [[endpoint("10.0.0.1:80", "q")]])], 10)
    assert merged.pools == (Pool("p", (endpoint("10.0.0.1:80", "p"),)), Pool("q"))
    assert merged.duplicates == 1


def test_ipv6_is_one_address_however_it_is_spelt() -> None:
    merged = merge([("p", [[endpoint("[2001:db8:0:0::1]:80")], [endpoint("[2001:DB8::1]:80")]])], 10)
    assert [e.address for e in merged.pools[0].endpoints] == ["[2001:db8:0:0::1]:80"]
    assert merged.duplicates == 1


def test_last_endpoints_over_the_limit_are_left_out() -> None:
    merged = merge([("p", [[endpoint("10.0.0.1:80")], [endpoint("10.0.0.2:80")]])], 1)
    assert [e.address for e in merged.pools[0].endpoints] == ["10.0.0.1:80"]
    assert merged.over_limit == 1


ENDPOINTS = st.lists(
    st.builds(
        endpoint,
        st.sampled_from(["10.0.0.1:80", "10.0.0.2:80", "10.0.0.1:81", "[::1]:80", "[0::1]:80"]),
        st.just("p"),
        st.sampled_from(["a", "b"]),
    ),
    max_size=6,
)


@given(st.lists(st.lists(ENDPOINTS, max_size=3), max_size=3), st.integers(1, 6))
def test_every_address_stands_once_and_nothing_is_lost(
    sources: list[list[list[Endpoint]]], limit: int
) -> None:
    merged = merge([(f"p{i}", pool) for i, pool in enumerate(sources)], limit)
    kept = [identity(e) for pool in merged.pools for e in pool.endpoints]
    order = [identity(e) for pool in sources for source in pool for e in source]
    assert len(kept) == len(set(kept)) <= limit
    assert len(kept) + merged.duplicates + merged.over_limit == len(order)
    if not merged.over_limit:
        assert set(kept) == set(order)


@given(ENDPOINTS, st.randoms())
def test_order_within_a_source_has_no_effect(discovered: list[Endpoint], random: object) -> None:
    shuffled = list(discovered)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = (merge([("p", [order])], 10) for order in (discovered, shuffled))
    assert {identity(e) for e in first.pools[0].endpoints} == {identity(e) for e in second.pools[0].endpoints}
