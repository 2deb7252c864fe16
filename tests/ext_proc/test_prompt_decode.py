"""Whole bodies: every legal prompt shape is read, nothing hostile raises, equal prompts give equal text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.prompt.decode import Prompt, Unreadable
from ext_proc.prompt.envelope import Envelope
from ext_proc.prompt.outline import MAX_OPENERS
from ext_proc.prompt.path import model_in_path
from ext_proc.prompt.text import MEDIA_BYTES
from tests.ext_proc.worlds import read_prompt

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
            b'\x1e\x1c"item_reference"id\x1f"x"',
        ),
        ({"prompt": None, "messages": [{"role": "user", "content": "a"}]}, b"\x1euser\x1fa"),
        ({"messages": [{"role": "user"}]}, b"\x1euser\x1f"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}]},
            b'\x1eassistant\x1f\x1c[{"id":"c"}]',
        ),
        (
            {"messages": [{"role": "tool", "content": "4", "tool_call_id": "c"}]},
            b'\x1etool\x1f4\x1c"c"',
        ),
        ({"messages": [{"role": "developer", "content": "a"}]}, b"\x1edeveloper\x1fa"),
        ({"messages": [{"role": "critic", "content": "a"}]}, b"\x1ecritic\x1fa"),
        ({"inputs": "hi", "parameters": {"max_new_tokens": 5}}, b"hi"),
        ({"text": "hi", "sampling_params": {}}, b"hi"),
        ({"text": ["a", "b"]}, b"a\x1db"),
        ({"input_ids": [1, 2]}, b"\x1b1,2,"),
        ({"input_ids": [[1, 2], [], [3]]}, b"\x1b1,2,\x1d\x1d\x1b3,"),
        ({"token_ids": [1, 2], "sampling_params": {}}, b"\x1b1,2,"),
        ({"text_input": "hi", "max_tokens": 5}, b"hi"),
        ({"prompt": [1, 2, "a", 3]}, b"\x1b1,2,\x1da\x1b3,"),
        ({"prompt": ["a", 1, 2]}, b"a\x1b1,2,"),
        ({"prompt": [[1, "a"], "b"]}, b"\x1b1,\x1da\x1db"),
        ({"prompt": {"prompt_string": "hi"}}, b"hi"),
        ({"input": "hi", "text": {"format": {"type": "text"}}}, b"hi"),
        (
            {"system": [{"type": "text", "text": "S"}], "messages": [{"role": "user", "content": "a"}]},
            b"\x1asystem\x1fS\x1euser\x1fa",
        ),
        ({"instructions": "S", "input": "a"}, b"\x1ainstructions\x1fSa"),
        ({"previous_response_id": "r", "input": "a"}, b'\x1aprevious_response_id\x1f"r"a'),
        (
            {"previous_response_id": "r", "instructions": "i", "input": "a"},
            b'\x1ainstructions\x1fi\x1aprevious_response_id\x1f"r"a',
        ),
        ({"prompt": {"id": "p"}, "input": "a"}, b'\x1aprompt\x1f{"id":"p"}a'),
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
        {"prompt": [1.5]},
        {"prompt": [-1]},
        {"prompt": [None]},
        {"prompt": [[["a"]]]},
        {"prompt": ["a", -1]},
        {"text_input": 5},
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
        (b'{"model":' + b'{"a":' * 20_000, Unreadable.WRONG_SHAPE),
        (
            b'{"messages":[{"role":"a","content":' + b"[" * 20_000 + b"]" * 20_000 + b"}]}",
            Unreadable.TOO_DEEP,
        ),
        (b'{"model":"a","model":"b","prompt":"x"}', Unreadable.AMBIGUOUS),
        (b'{"model":"a","prompt":"x","model":"a"}', Unreadable.AMBIGUOUS),
        (b'{"model":"a","prompt":"x","mod\\u0065l":"b"}', Unreadable.AMBIGUOUS),
        (b'{"model":null,"prompt":"x","model":"b"}', Unreadable.AMBIGUOUS),
        (b'{"cache_salt":"a","prompt":"x","cache_salt":"b"}', Unreadable.AMBIGUOUS),
        (b'{"model":"a","x":[' + b"1," * 20_000 + b'1],"prompt":"x","model":"a"}', Unreadable.AMBIGUOUS),
        (b'{"model":[' + b"[]," * 20_000 + b'[]],"prompt":"x"}', Unreadable.WRONG_SHAPE),
        (b'{"prompt":"a\x00b"}', Unreadable.NOT_JSON),
        (b'{"messages":[{"role":"user","content":"a"}],"prompt":"b"}', Unreadable.AMBIGUOUS),
    ],
)
def test_hostile_bodies_are_refused_with_their_reason(body: bytes, reason: Unreadable) -> None:
    assert read_prompt(body, complete=True) is reason


def test_a_huge_number_where_nothing_is_read_does_not_matter() -> None:
    prompt = read_prompt(b'{"seed":' + b"9" * 5000 + b',"prompt":"a"}', complete=True)
    assert prompt == Prompt(None, "", b"a", complete=True)


@pytest.mark.parametrize("dense", ["[],", "{},", '"[{",'])
def test_of_a_body_dense_in_brackets_the_leading_part_is_read(dense: str) -> None:
    body = f'{{"model":"m","prompt":"a","x":[{dense * MAX_OPENERS}0],"input":"b"}}'.encode()
    assert read_prompt(body, complete=True) == Prompt("m", "", b"a", complete=False)


@pytest.mark.parametrize("space", [0, 1, 63, 64, 65, 200, 5000])
def test_white_space_before_a_cut_may_be_long(space: int) -> None:
    body = f'{{"model":"m","prompt":["a",{" " * space}"b"{" " * space},{" " * space}'.encode()
    assert read_prompt(body, complete=False) == Prompt("m", "", b"a\x1db", complete=False)
    key = b'{"prompt":"a",' + b" " * space + b'"model"' + b" " * space + b":" + b" " * space + b'"m'
    assert read_prompt(key, complete=False) == Prompt(None, "", b"a", complete=False)


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


IMAGES = [
    {"type": "image_url", "image_url": {"url": "https://x/1.png", "detail": "low"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
    {"type": "input_image", "image_url": "https://x/1.png"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    {"type": "image", "source": {"type": "url", "url": "https://x/1.png"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"file_data": "AAAA"}},
    {"type": "file", "file": {"file_id": "f"}},
]


def show(image: object) -> bytes:
    return text_of(
        chat(
            {
                "role": "user",
                "content": [{"type": "text", "text": "before"}, image, {"type": "text", "text": "after"}],
            }
        )
    )


def test_images_and_sounds_count_in_their_place_by_url_or_bytes() -> None:
    texts = [show(image) for image in IMAGES]
    assert len(set(texts)) == len(IMAGES)
    plain = len(text_of(chat({"role": "user", "content": "beforeafter"})))
    for shown in texts:
        assert shown.startswith(b"\x1euser\x1fbefore\x1c")
        assert shown.endswith(b"\x1dafter")
        assert 0 <= len(shown) - plain - MEDIA_BYTES < 100


def test_an_image_of_many_bytes_weighs_what_a_small_one_weighs() -> None:
    def data(size: int) -> dict[str, object]:
        return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}

    assert len(show(data(10))) == len(show(data(200_000)))
    assert show(data(10)) != show(data(200_000))


TOOL_TURN = [
    {"role": "user", "content": "weather?"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "w", "input": {"city": "Ulm"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "rain"}]},
]


def test_tool_uses_and_results_count() -> None:
    assert text_of(chat(*TOOL_TURN)).endswith(
        b'\x1euser\x1f\x1c"tool_result"tool_use_id\x1f"t"content\x1frain'
    )
    assert b'"tool_use"id\x1f"t"input\x1f{"city":"Ulm"}name\x1f"w"' in text_of(chat(*TOOL_TURN))


def test_moving_a_cache_breakpoint_changes_nothing() -> None:
    """Anthropic's clients mark the last block of each turn, and take the mark away in the next."""

    def marked(*blocks: Any, mark: int) -> bytes:
        spelled = [
            {**block, "cache_control": {"type": "ephemeral"}} if number == mark else block
            for number, block in enumerate(blocks)
        ]
        return text_of(chat({"role": "user", "content": spelled}))

    blocks = (
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "rain"}]},
        {"type": "text", "text": "and?"},
        IMAGES[3],
    )
    assert len({marked(*blocks, mark=mark) for mark in range(4)}) == 1


def test_a_result_of_a_tool_equals_its_single_text_part() -> None:
    part = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "rain"}]}
    assert text_of(chat(*TOOL_TURN)) == text_of(chat(*TOOL_TURN[:2], {"role": "user", "content": [part]}))


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("", "m"),
        ("/v1/chat/completions", "m"),
        ("/v2/models/llama/generate", "llama"),
        ("/v2/models/org%2Fllama/versions/1/generate_stream", "org/llama"),
        ("/gateway/openai/deployments/gpt/chat/completions?api-version=1", "gpt"),
    ],
)
def test_the_path_names_the_model_where_engines_read_it_there(path: str, model: str) -> None:
    prompt = read_prompt(json.dumps(chat(USER)).encode(), complete=True, path=path)
    assert isinstance(prompt, Prompt)
    assert prompt.model == model


def test_the_path_says_which_of_two_prompts_is_read() -> None:
    body = json.dumps({"messages": [USER], "prompt": "p", "input": "i"}).encode()

    def at(path: str) -> bytes | Unreadable:
        prompt = read_prompt(body, complete=True, path=path)
        return prompt.text if isinstance(prompt, Prompt) else prompt

    assert at("/v1/completions") == b"p"
    assert at("/completion?x=1") == b"p"
    assert at("/v1/responses") == b"i"
    assert at("/v1/chat/completions") == text_of(chat(USER)) == at("/v1/messages")
    assert at("/generate") is at("") is Unreadable.AMBIGUOUS


@pytest.mark.parametrize(
    "path",
    ["/tokenize", "/v1/messages/count_tokens", "/v1/rerank/", "/score?a=1", "/v1/chat/completions/render"],
)
def test_what_fills_no_cache_has_no_prompt(path: str) -> None:
    assert read_prompt(b'{"prompt":"a"}', complete=True, path=path) is Unreadable.NO_PROMPT


def test_images_beside_ids_make_another_prefix() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x/1.png"}}
    features = ({"features": {"a": [text]}} for text in "12")
    beside: list[dict[str, Any]] = [{}, *features, {"content_parts": [image]}]
    texts = [text_of({"token_ids": [1, 2, 3], **more}) for more in beside]
    assert len({text[:50] for text in texts}) == len(texts)
    assert max(map(len, texts)) < 2 * MEDIA_BYTES


@pytest.mark.parametrize(
    ("rest", "adapter"),
    [
        ({}, ""),
        ({"lora_path": "a"}, "a"),
        ({"lora_path": ["a", None]}, '["a",null]'),
        ({"adapter_id": "a"}, "a"),
        ({"parameters": {"adapter_id": "a", "top_k": 3}}, "a"),
        ({"parameters": {"top_k": 3}}, ""),
        ({"parameters": None}, ""),
        ({"parameters": "p"}, ""),
        ({"lora": [{"id": 0, "scale": 0.5}]}, '[{"id":0,"scale":0.5}]'),
        ({"lora_task_id": 7}, "7"),
    ],
)
def test_the_adapter_is_read_where_engines_read_it(rest: dict[str, object], adapter: str) -> None:
    prompt = read({"inputs": "a", **rest})
    assert isinstance(prompt, Prompt)
    assert prompt.adapter == adapter


@pytest.mark.parametrize(
    "field", ["lora", "lora_path", "adapter_id", "lora_task_id", "extra_key", "parameters"]
)
@pytest.mark.parametrize("marks", [0, 5, 300, 1000])
def test_bytes_that_are_no_utf8_inside_a_name_are_no_json(field: str, marks: int) -> None:
    """However long the name is, and so however it would be spelled."""
    value = b'["a"%b,"\xff"]' % (b",0" * marks)
    if field == "parameters":
        value = b'{"adapter_id":%b}' % value
    body = b'{"prompt":"x","%b":%b}' % (field.encode(), value)
    assert read_prompt(body, complete=True) is Unreadable.NOT_JSON
    assert read_prompt(body + b" ", complete=False) is Unreadable.NOT_JSON


def test_turns_with_stored_messages_share_tools_and_system() -> None:
    """What the engine has stored stands behind them in its prompt, and has another name at each turn."""
    shared = {"instructions": "Be brief.", "tools": [{"type": "function", "name": "f"}]}
    ahead = text_of({**shared, "input": ""})
    for stored in ({"previous_response_id": "r1"}, {"conversation": "c"}, {"prompt": {"id": "p"}}):
        for body in ({**stored, **shared, "input": "a"}, {"input": "a", **shared, **stored}):
            assert text_of(body).startswith(ahead)


def test_turns_of_a_stored_conversation_share_more_than_its_name() -> None:
    """Its past is in the engine: its turns belong together, more than they do with others' alike."""
    one, same = (text_of({"conversation": "c", "input": turn}) for turn in ("a", "b"))
    other = text_of({"conversation": "d", "input": "a"})
    assert one[:MEDIA_BYTES] == same[:MEDIA_BYTES]
    assert one[:100] != other[:100]


def test_an_extra_key_is_part_of_the_salt() -> None:
    salts = []
    for keys in ({}, {"cache_salt": "s"}, {"extra_key": "s"}, {"cache_salt": "s", "extra_key": "s"}):
        prompt = read({"prompt": "a", **keys})
        assert isinstance(prompt, Prompt)
        salts.append(prompt.salt)
    assert len(set(salts)) == 4


@pytest.mark.parametrize(
    ("field", "session"),
    [
        ("user", "u"),
        ("metadata.user_id", "mu"),
        ("metadata", ""),
        ("metadata.user_id.x", ""),
        ("absent.user_id", ""),
        ("model", "m"),
        ("n", ""),
    ],
)
def test_a_session_is_read_from_the_field_that_the_caller_names(field: str, session: str) -> None:
    body = chat(USER, user="u", metadata={"user_id": "mu"}, n=1)
    prompt = read_prompt(json.dumps(body).encode(), complete=True, session_field=field)
    assert isinstance(prompt, Prompt)
    assert prompt.session == session


@pytest.mark.parametrize("inner", ["", ".x", ".x.y"])
@pytest.mark.parametrize("field", Envelope.__struct_fields__)
def test_session_field_may_be_any_member_and_absent(field: str, inner: str) -> None:
    prompt_field = "prompt" if field == "input" else "input"

    prompt = read_prompt(
        json.dumps({prompt_field: "hello"}).encode(), complete=True, session_field=field + inner
    )

    assert isinstance(prompt, Prompt)
    assert prompt.session == ("hello" if field + inner == prompt_field else "")


def test_a_long_session_stands_as_a_digest() -> None:
    sessions = set()
    for letter in "ab":
        body = json.dumps(chat(USER, user=letter * 5000)).encode()
        prompt = read_prompt(body, complete=True, session_field="user")
        assert isinstance(prompt, Prompt)
        assert len(prompt.session) == 32
        sessions.add(prompt.session)
    assert len(sessions) == 2


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": [1, 2, 3]}, 3),
        ({"prompt": [[1, 2], [], [3]]}, 3),
        ({"input_ids": [7]}, 1),
        ({"prompt": "1,2"}, None),
        ({"prompt": [1, "a"]}, None),
        ({"prompt": ["a"]}, None),
    ],
)
def test_token_ids_are_counted(body: object, tokens: int | None) -> None:
    prompt = read(body)
    assert isinstance(prompt, Prompt)
    assert prompt.tokens == tokens


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

    parts = {"role": "user", "content": [{"type": "text", "text": "x"}, *IMAGES]}
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"a": {"type": "string"}, "b": 1}}}]
    body = chat(
        SYSTEM, USER, parts, {"role": "assistant", "content": None, "tool_calls": calls}, *TOOL_TURN,
        stream=True, cache_salt="s", stop=["a"], tools=tools, system="S", lora_path=["a", "b"],
    )  # fmt: skip
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
    assert text_of({"messages": [USER], key: value}) == ahead


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


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v2/models/llama:7b/infer", "llama:7b"),
        ("/v1beta/models/gemma-3:generateContent", "gemma-3"),
        ("/openai/deployments/my%20m/chat/completions", "my m"),
        ("/v1/chat/completions?model=m", "m"),
    ],
)
def test_a_path_names_the_same_model_with_and_without_a_body(path: str, model: str) -> None:
    prompt = read_prompt(b'{"prompt": "x"}', complete=True, path=path)
    assert isinstance(prompt, Prompt)
    assert prompt.model == model_in_path(path) == model


def test_engines_read_the_body_where_only_the_query_differs() -> None:
    """A path's segments choose the model at Triton and Azure; a query does not."""
    for path, model in (("/v1/chat/completions?model=query", "body"), ("/v2/models/path/generate", "path")):
        prompt = read_prompt(b'{"model": "body", "prompt": "x"}', complete=True, path=path)
        assert isinstance(prompt, Prompt)
        assert prompt.model == model
