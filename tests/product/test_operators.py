"""What an operator sets by hand, and what an engine refuses: both move picks, through the real Envoy."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from fleet.names import HEADER_ENDPOINT
from tests.product.conftest import until
from warmroute.cli.overriding import UPDATE_WEIGHTS

if TYPE_CHECKING:
    from tests.product.conftest import Answer, Product

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def override(product: Product, weights: dict[str, int | None]) -> None:
    url = f"http://{product.cluster.admin_address}{UPDATE_WEIGHTS}"
    async with product.session.post(url, json={"weights": weights, "expires_seconds": 600}) as response:
        assert response.status == 200, await response.text()


def prompt_of(name: str) -> str:
    return f"conversation {name} " * 300


@pytest.mark.parametrize("weight", [1, 0], ids=["weight 1", "drained"])
async def test_what_is_warm_goes_elsewhere_when_an_operator_says_so(product: Product, weight: int) -> None:
    prompt = prompt_of(f"at weight {weight}")
    home = (await product.picked(prompt)).engine
    assert (await product.picked(prompt)).engine == home
    await override(product, {home: weight})
    try:

        async def moved() -> bool:
            return (await product.picked(prompt)).engine != home

        await until(moved)
        later = [await product.picked(f"{prompt} turn {number}") for number in range(8)]
        assert home not in {answer.engine for answer in later}
    finally:
        await override(product, {home: None})

    async def back() -> bool:
        return bool((await product.weights())[home])

    await until(back)


@pytest.mark.parametrize("status", [401, 404, 429])
async def test_a_repeat_of_what_was_refused_is_answered_elsewhere(product: Product, status: int) -> None:
    """The engine that refuses would be warm for it, had it not."""
    refusing = product.cluster.engines[0]
    await product.fault(refusing, kind="status", code=status)
    prompt, numbers = "", count()

    async def refused() -> bool:
        nonlocal prompt
        prompt = prompt_of(f"{status} {next(numbers)}")
        answer = await product.chat(prompt)
        return answer.status == status and HEADER_ENDPOINT in answer.headers

    answers: list[Answer] = []

    async def answered() -> bool:
        answers.append(await product.chat(prompt))
        return answers[-1].status == 200

    try:
        await until(refused)
        await until(answered)
        assert answers[-1].engine != refusing
        again = await product.picked(prompt)
        assert (again.engine, again.headers["x-warmroute-reason"]) == (answers[-1].engine, "warm")
    finally:
        await product.fault(refusing, kind="none")
