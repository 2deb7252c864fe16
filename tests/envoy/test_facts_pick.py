"""What the real Envoy does with a pick: the ordered list of endpoints in metadata."""

from __future__ import annotations

from typing import Any

import pytest


async def test_pick_is_honoured(world: Any) -> None:
    """The engine named in metadata serves, whatever the weights say."""
    for address in world.pools["live"] * 3:
        world.ext_proc.pick = address
        answer = await world.post()
        assert (answer.status, answer.engine) == (200, address), answer.headers
        assert answer.headers["x-warmroute-attempts"] == "1"


async def test_first_known_endpoint_of_the_list_serves(world: Any) -> None:
    """Endpoints that are not in EDS are skipped, without an attempt."""
    known = world.pools["live"][2]
    for pick in (f"10.9.9.9:1,{known}", f"{known},{world.pools['live'][0]}", f"nonsense,{known}"):
        world.ext_proc.pick = pick
        answer = await world.post()
        assert (answer.status, answer.engine) == (200, known)
        assert answer.headers["x-warmroute-attempts"] == "1"


@pytest.mark.parametrize("pick", ["", ",,;", "nonsense", "10.9.9.9:1", "x" * 5000, "1.2.3.4:99999999"])
async def test_useless_pick_goes_by_weights(world: Any, pick: Any) -> None:
    """Junk is ignored and costs nobody an answer."""
    world.ext_proc.pick = pick
    for _ in range(3):
        answer = await world.post()
        assert answer.status == 200
        assert answer.engine in world.pools["live"]


async def test_retries_walk_the_list(world: Any) -> None:
    """A refused connection moves on to the second of the list, with the body, up to the buffer's size."""
    dead, second, third = world.pools["mixed"]
    for following in (second, third):
        world.ext_proc.pick = f"{dead},{following}"
        for size in (10, 200_000, 900_000):
            answer = await world.post({"prompt": "x" * size}, listener="mixed")
            assert (answer.status, answer.engine) == (200, following)
            assert answer.headers["x-warmroute-attempts"] == "2"
            assert answer.seen["bytes"] > size


async def test_retry_after_the_end_of_the_list_goes_elsewhere(world: Any) -> None:
    """A list of one endpoint that fails ends, at the second attempt, at one that has not been tried."""
    failing, *others = world.pools["retrying"]
    world.engines.statuses[failing] = 503
    world.ext_proc.pick = failing
    answers = [await world.post(listener="retrying") for _ in range(15)]
    assert {answer.status for answer in answers} == {200}
    assert {answer.engine for answer in answers} == set(others)
    assert {answer.headers["x-warmroute-attempts"] for answer in answers} == {"2"}


async def test_refusal_goes_to_the_next_engine(world: Any) -> None:
    """By default; the client gets the refusal once all engines have refused."""
    first, second, third = world.pools["live"]
    world.ext_proc.pick = f"{first},{second}"
    world.engines.statuses[first] = 503
    answer = await world.post()
    assert (answer.status, answer.engine) == (200, second)
    world.engines.statuses.update({second: 503, third: 503})
    answer = await world.post()
    assert (answer.status, answer.headers["x-warmroute-attempts"]) == (503, "3")


async def test_retry_leaves_a_failing_endpoint_with_nearly_all_weight(world: Any) -> None:
    """It draws by weight, and one that was tried already is drawn again at once, up to a limit."""
    failing, *others = world.pools["retrying"]
    await world.weights_taken("retrying", {failing: 1900, **dict.fromkeys(others, 50)})
    try:
        world.engines.statuses[failing] = 503
        world.ext_proc.pick = failing
        answers = [await world.post(listener="retrying") for _ in range(15)]
        assert {answer.status for answer in answers} == {200}
        assert {answer.engine for answer in answers} <= set(others)
    finally:
        world.set_weights({})


async def test_dead_pick_goes_elsewhere(world: Any) -> None:
    """The same with a refused connection and the default `retry_on`."""
    dead, *alive = world.pools["mixed"]
    world.ext_proc.pick = dead
    answers = [await world.post(listener="mixed") for _ in range(6)]
    assert {answer.status for answer in answers} == {200}
    assert {answer.engine for answer in answers} <= set(alive)


async def test_no_second_run_of_what_may_have_been_processed(world: Any) -> None:
    """An engine that cuts the connection after reading the request has perhaps worked on it."""
    cutting, other = world.pools["live"][:2]
    world.engines.resets.add(cutting)
    world.ext_proc.pick = f"{cutting},{other}"
    answer = await world.post()
    assert answer.status == 503
    assert world.engines.served == {cutting: 1}


async def test_answers_of_an_engine_are_passed_on(world: Any) -> None:
    """By default, only a 503 is retried; statuses eject no endpoint."""
    busy = world.pools["live"][0]
    world.ext_proc.pick = ",".join(world.pools["live"])
    for status in (429, 500, 502):
        world.engines.statuses[busy] = status
        for _ in range(6):
            answer = await world.post()
            assert (answer.status, answer.engine) == (status, busy)
    assert "failed_outlier_check" not in (await world.envoy.clusters())["live"][busy]["health_status"]


async def test_pick_of_an_ejected_endpoint_is_still_tried_first(world: Any) -> None:
    """override_host does not look at outlier ejection: the fallback does. A retry costs milliseconds."""
    dead, second, third = world.pools["ejecting"]
    world.ext_proc.pick = f"{dead},{third}"
    for _ in range(4):
        answer = await world.post(listener="ejecting")
        assert (answer.status, answer.engine) == (200, third)
    hosts = (await world.envoy.clusters())["ejecting"]
    assert hosts[dead]["health_status"].get("failed_outlier_check")
    assert answer.headers["x-warmroute-attempts"] == "2"
    world.ext_proc.pick = ""
    unpicked = [await world.post(listener="ejecting") for _ in range(12)]
    assert {answer.headers["x-warmroute-attempts"] for answer in unpicked} == {"1"}
    assert {answer.engine for answer in unpicked} == {second, third}


async def test_unhealthy_endpoint_gets_nothing_by_weights(world: Any) -> None:
    """EDS's UNHEALTHY takes an endpoint out of the fallback; a pick may still name it."""
    down, *others = world.pools["marked"]
    world.set_weights({}, frozenset([down]))
    await world.eds_health("marked", down, healthy=False)
    try:
        unpicked = [await world.post(listener="marked") for _ in range(15)]
        assert {answer.engine for answer in unpicked} == set(others)
        world.ext_proc.pick = f"{down},{others[0]}"
        assert (await world.post(listener="marked")).engine == down
    finally:
        world.set_weights({})
        await world.eds_health("marked", down, healthy=True)


async def test_all_unhealthy_is_panic_not_an_outage(world: Any) -> None:
    """When more than half are marked, Envoy stops believing the marks and uses everyone."""
    everyone = frozenset(world.pools["marked"])
    world.set_weights({}, everyone)
    for address in everyone:
        await world.eds_health("marked", address, healthy=False)
    try:
        answers = [await world.post(listener="marked") for _ in range(15)]
        assert {answer.status for answer in answers} == {200}
    finally:
        world.set_weights({})
        for address in everyone:
            await world.eds_health("marked", address, healthy=True)
