"""Whole bodies: every legal prompt shape is read, nothing hostile raises, equal prompts give equal text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.prompt.decode import Prompt, Unreadable, read_prompt

if TYPE_CHECKING:
    import random


def read(body: object) -> Prompt | Unreadable:
    return read_prompt(json.dumps(body).encode(), complete=True)


def text_of(body: object) -> bytes:
    prompt = read(body)
    assert isinstance(prompt, Prompt), prompt
    return prompt.text


def chat(*messages: object, **rest: object) -> dict[str, object]:
    return {"model": "m", "messages": list(messages), **rest}


SYSTEM = {"role": "system", "content": "You are terse."}
USER = {"role": "user", "content": "Name a river."}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"prompt": "hi"}, b"hi"),
        ({"prompt": ["hi"]}, b"hi"),
        ({"prompt": ["a", "b"]}, b"a\x1db"),
        ({"prompt": [1, 2, 3]}, b"\x1b1,2,3,"),
        ({"prompt": [[1, 2, 3]]}, b"\x1b1,2,3,"),
        ({"prompt": [[1, 2], [3]]}, b"\x1b1,2,\x1d\x1b3,"),
        ({"input": "hi"}, b"hi"),
        ({"input": ["a", "b"]}, b"a\x1db"),
        ({"input": [1, 2]}, b"\x1b1,2,"),
        ({"input": [[1], [2]]}, b"\x1b1,\x1d\x1b2,"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}, b"\x1euser\x1fa"),
        (
            {"input": [{"type": "item_reference", "id": "x"}]},
            b'\x1e\x1c{"type": "item_reference", "id": "x"}',
        ),
        ({"prompt": None, "messages": [{"role": "user", "content": "a"}]}, b"\x1euser\x1fa"),
        ({"messages": [{"role": "user"}]}, b"\x1euser\x1f"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}]},
            b'\x1eassistant\x1f\x1c[{"id": "c"}]',
        ),
        (
            {"messages": [{"role": "tool", "content": "4", "tool_call_id": "c"}]},
            b'\x1etool\x1f4\x1c"c"',
        ),
    ],
)
def test_every_legal_prompt_shape_is_read(body: object, text: bytes) -> None:
    assert text_of(body) == text


@pytest.mark.parametrize(
    "body",
    [{}, {"model": "m"}, {"prompt": ""}, {"prompt": []}, {"prompt": None}, {"input": ""}, {"messages": []}],
)
def test_nothing_to_read_is_no_prompt(body: object) -> None:
    assert read(body) is Unreadable.NO_PROMPT


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        5,
        None,
        {"model": 5, "prompt": "a"},
        {"cache_salt": ["s"], "prompt": "a"},
        {"prompt": True},
        {"prompt": {"a": 1}},
        {"prompt": 1},
        {"prompt": [1, "a"]},
        {"prompt": ["a", 1]},
        {"prompt": [1.5]},
        {"prompt": [-1]},
        {"prompt": [None]},
        {"prompt": [[1], "a"]},
        {"prompt": [["a"]]},
        {"messages": "a"},
        {"messages": {"role": "user"}},
        {"messages": [1]},
        {"messages": [[]]},
        {"messages": [{"role": 1, "content": "a"}]},
        {"messages": [{"role": None, "content": "a"}]},
        {"messages": [{"role": "user", "content": 1}]},
        {"messages": [{"role": "user", "content": {"text": "a"}}]},
        {"messages": [{"role": "user", "content": [1]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"system": 1, "messages": [{"role": "user", "content": "a"}]},
    ],
)
def test_wrong_types_are_a_wrong_shape(body: object) -> None:
    assert read(body) is Unreadable.WRONG_SHAPE


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", Unreadable.NOT_JSON),
        (b"{", Unreadable.NOT_JSON),
        (b"--boundary\r\n", Unreadable.NOT_JSON),
        (b'\xef\xbb\xbf{"prompt":"a"}', Unreadable.NOT_JSON),
        ('{"prompt":"a"}'.encode("utf-16"), Unreadable.NOT_JSON),
        ('{"prompt":"a"}'.encode("utf-16-le"), Unreadable.NOT_JSON),
        (b'{"prompt":"\\ud835"}', Unreadable.NOT_JSON),
        (b'{"model":"\\ud835","prompt":"a"}', Unreadable.NOT_JSON),
        (b'{"model":"\xff","prompt":"a"}', Unreadable.NOT_JSON),
        (b'{"temperature":NaN,"prompt":"a"}', Unreadable.NOT_JSON),
        (b'{"prompt":"a"}{}', Unreadable.NOT_JSON),
        (b'{"prompt":[1,2', Unreadable.NOT_JSON),
        (b'{"model":' + b"9" * 5000 + b',"prompt":"a"}', Unreadable.WRONG_SHAPE),
        (b'{"x":' + b"[" * 20_000 + b"]" * 20_000 + b',"prompt":"a"}', Unreadable.TOO_DEEP),
        (b'{"x":' + b"[" * 40_000, Unreadable.TOO_DEEP),
        (b'{"messages":' + b"[" * 40_000, Unreadable.TOO_DEEP),
        (b'{"model":' + b'{"a":' * 40_000, Unreadable.TOO_DEEP),
        (b'{"model":"a","model":"b","prompt":"x"}', Unreadable.AMBIGUOUS),
        (b'{"model":"a","prompt":"x","model":"a"}', Unreadable.AMBIGUOUS),
        (b'{"model":"a","prompt":"x","mod\\u0065l":"b"}', Unreadable.AMBIGUOUS),
        (b'{"model":null,"prompt":"x","model":"b"}', Unreadable.AMBIGUOUS),
        (b'{"cache_salt":"a","prompt":"x","cache_salt":"b"}', Unreadable.AMBIGUOUS),
        (b'{"messages":[{"role":"user","content":"a"}],"prompt":"b"}', Unreadable.AMBIGUOUS),
    ],
)
def test_hostile_bodies_are_refused_with_their_reason(body: bytes, reason: Unreadable) -> None:
    assert read_prompt(body, complete=True) is reason


def test_a_huge_number_where_nothing_is_read_does_not_matter() -> None:
    prompt = read_prompt(b'{"seed":' + b"9" * 5000 + b',"prompt":"a"}', complete=True)
    assert prompt == Prompt(None, "", b"a", complete=True)


def test_model_named_elsewhere_is_not_ambiguous() -> None:
    body = chat(USER, metadata={"model": "x"}, tool_choice={"name": "model"})
    prompt = read(body)
    assert isinstance(prompt, Prompt)
    assert prompt.model == "m"


def test_model_and_salt_are_decoded() -> None:
    prompt = read_prompt(b'{"model":"m\\u00e9","cache_salt":"t\\n1","prompt":"a"}', complete=True)
    assert prompt == Prompt("mé", "t\n1", b"a", complete=True)


def test_each_turn_extends_the_text_of_the_turn_before() -> None:
    messages: list[object] = [SYSTEM]
    last = b""
    for turn in range(10):
        messages.append({"role": "user", "content": f"question {turn}"})
        text = text_of(chat(*messages))
        assert text.startswith(last)
        assert len(text) > len(last)
        last = text
        messages.append({"role": "assistant", "content": f"answer {turn}", "tool_calls": [{"id": turn}]})
        messages.append({"role": "tool", "content": [{"type": "text", "text": "4"}], "tool_call_id": "c"})


def test_string_content_equals_its_single_text_part() -> None:
    parts = {"role": "user", "content": [{"text": "Name a river.", "type": "text", "cache_control": {}}]}
    assert text_of(chat(SYSTEM, USER)) == text_of(chat(SYSTEM, parts))


def test_images_count_in_their_place() -> None:
    def ask(url: str) -> bytes:
        image = {"type": "image_url", "image_url": {"url": url}}
        content = [{"type": "text", "text": "before"}, image, {"type": "text", "text": "after"}]
        return text_of(chat({"role": "user", "content": content}))

    assert ask("a") != ask("b")
    assert ask("a").index(b"before") < ask("a").index(b'"a"') < ask("a").index(b"after")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            [{"role": "user", "content": "ab"}],
            [{"role": "user", "content": "a"}, {"role": "b", "content": ""}],
        ),
        ([{"role": "user", "content": "a"}], [{"role": "system", "content": "a"}]),
        (
            [{"role": "user", "content": "ab"}],
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        ),
        ([{"role": "user", "content": "\x1eb\x1f"}], [{"role": "user", "content": ""}, {"role": "b"}]),
    ],
)
def test_different_prompts_differ(one: list[object], other: list[object]) -> None:
    assert text_of(chat(*one)) != text_of(chat(*other))


def test_ids_do_not_share_with_a_string_of_the_same_digits() -> None:
    assert text_of({"prompt": [1, 2]}) != text_of({"prompt": "1,2,"})


def test_an_id_is_no_prefix_of_a_longer_id() -> None:
    assert not text_of({"prompt": [12, 345]}).startswith(text_of({"prompt": [12, 34]}))


@given(
    st.randoms(use_true_random=False), st.sampled_from([None, 2]), st.sampled_from([(",", ":"), (", ", ": ")])
)
def test_key_order_and_white_space_change_nothing(
    shuffle: random.Random, indent: int | None, separators: tuple[str, str]
) -> None:
    def shuffled(value: object) -> object:
        if isinstance(value, dict):
            items = [(key, shuffled(inner)) for key, inner in value.items()]
            shuffle.shuffle(items)
            return dict(items)
        return [shuffled(inner) for inner in value] if isinstance(value, list) else value

    parts = {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}
    body = chat(SYSTEM, USER, parts, stream=True, cache_salt="s", stop=["a"], stream_options={"a": 1})
    spelled = json.dumps(shuffled(body), indent=indent, separators=separators).encode()
    assert read_prompt(spelled, complete=True) == read(body)


def test_white_space_between_ids_changes_nothing() -> None:
    assert read_prompt(b'{"prompt": [ 1 ,\n2,\t3 ] }', complete=True) == read({"prompt": [1, 2, 3]})


@pytest.mark.parametrize("key", ["tools", "system", "instructions"])
def test_what_stands_ahead_of_the_messages_counts_ahead_of_them(key: str) -> None:
    value = [{"type": "function"}] if key == "tools" else "Be brief."
    ahead = text_of({key: value, "messages": [USER]})
    assert ahead.startswith(b"\x1a" + key.encode())
    assert ahead.endswith(text_of({"messages": [USER]}))
    behind = text_of({"messages": [USER], key: value})
    assert behind == text_of({"messages": [USER]})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "tool_calls", "model"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
_KEYS = st.sampled_from(["model", "cache_salt", "messages", "prompt", "input", "tools", "system", "x"])


@given(st.dictionaries(_KEYS, _JSON, max_size=4) | _JSON, st.booleans())
def test_no_json_raises(body: object, complete: bool) -> None:
    result = read_prompt(json.dumps(body).encode(), complete=complete)
    assert isinstance(result, Prompt | Unreadable)


@given(
    st.binary(max_size=60) | st.text('{}[]",:\\u0 1"mesagprot', max_size=60).map(str.encode), st.booleans()
)
def test_no_bytes_raise(body: bytes, complete: bool) -> None:
    result = read_prompt(body, complete=complete)
    assert isinstance(result, Prompt | Unreadable)
