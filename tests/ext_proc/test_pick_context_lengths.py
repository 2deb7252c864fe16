"""Prompts that certainly do not fit an endpoint's context go where they do."""

from __future__ import annotations

import json

import pytest

from ext_proc.pick import Reason
from ext_proc.prompt.decode import Prompt
from ext_proc.prompt.length import least_tokens
from fleet.endpoint import Membership
from testing.signals import Load, Signal, view_with
from tests.ext_proc.worlds import World, chat, pool_of, read_prompt, whole

POOL = pool_of(count=3)
SHORT, MIDDLE, LONG = (endpoint.address for endpoint in POOL.endpoints)


def world(**lengths: float | None) -> World:
    """Endpoints by context length; None: unknown."""
    loads = {
        address: Load(
            queue_depth=Signal(0.0, 1000.0, "scrape"),
            context_tokens=None if tokens is None else Signal(tokens, 1000.0, "probe"),
        )
        for address, tokens in zip((SHORT, MIDDLE, LONG), lengths.values(), strict=True)
    }
    return World(view_with(Membership((POOL,)), {}, loads))


def served(of: World, words: int) -> set[str]:
    """All endpoints that prompts of this length are picked for or may be retried at."""
    results = [of.route(whole(chat(f"{n} " + "word " * words))) for n in range(20)]
    assert all(result.reason in (Reason.COLD, Reason.WARM) for result in results)
    return {address for result in results for address in result.endpoints}


def test_a_prompt_goes_where_it_fits() -> None:
    fleet = world(a=1000.0, b=2000.0, c=4000.0)
    assert served(fleet, 900) == {SHORT, MIDDLE, LONG}
    assert served(fleet, 1500) == {MIDDLE, LONG}
    assert served(fleet, 3000) == {LONG}


def test_a_prompt_that_fits_nowhere_goes_anywhere() -> None:
    assert served(world(a=1000.0, b=2000.0, c=4000.0), 5000) == {SHORT, MIDDLE, LONG}
    assert served(world(a=1000.0, b=1000.0, c=1000.0), 5000) == {SHORT, MIDDLE, LONG}


def test_unknown_is_no_bound() -> None:
    assert served(world(a=1000.0, b=None, c=None), 5000) == {MIDDLE, LONG}
    assert served(world(a=None, b=None, c=None), 5000) == {SHORT, MIDDLE, LONG}


def read(body: dict[str, object], path: str = "") -> Prompt:
    prompt = read_prompt(json.dumps({"model": "m", **body}).encode(), complete=True, path=path)
    assert isinstance(prompt, Prompt)
    return prompt


@pytest.mark.parametrize(
    ("body", "least"),
    [
        ({"prompt": "one two three"}, 2),
        ({"prompt": list(range(300))}, 300),
        ({"prompt": [[1, 2, 3], [4, 5, 6]]}, 0),
        ({"prompt": ["one two", "three four"]}, 0),
        ({"prompt": " " * 1000 + "x"}, 1),
        ({"prompt": "一二三四" * 100}, 0),
        ({"prompt": "one @ [ ` { 5 \n"}, 0),
        ({"prompt": "Aa Za zA Zz"}, 3),
        ({"messages": [{"role": "user", "content": "one two"}, {"role": "user", "content": "a b"}]}, 2),
    ],
)
def test_the_bound_is_never_above_the_tokens(body: dict[str, object], least: int) -> None:
    assert least_tokens(read(body)) == least


def test_texts_that_a_template_may_leave_out_do_not_count() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "many words " * 50}}]
    messages = [{"role": "user", "content": "one two"}]
    assert least_tokens(read({"messages": messages, "tools": tools})) == 1
    assert least_tokens(read({"input": "one two", "tools": tools}, "/v1/responses")) == 0
