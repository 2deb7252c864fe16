"""Prompts become the tokens that the engine makes of them, or nothing; cut and remembered or not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from ext_proc.kv.lookup import MAX_IDS, KvLookup, KvPrompt, ids_in
from ext_proc.kv.segments import SEARCHED_CHARS, SEGMENT_CHARS, Cutter
from ext_proc.kv.template import MAX_MESSAGES, ChatTemplate
from ext_proc.kv.tokens import INLINE_CHARS, MAX_MARKS, MAX_SEGMENTS, PoolReader
from ext_proc.kv.tools import TemplateFailedError
from ext_proc.kv.view import KvView
from ext_proc.prompt.decode import Prompt
from tests.ext_proc.kv_tokenizer import TEMPLATE, TEXT, files, tokenizer
from tests.ext_proc.kv_worlds import envelope_of, located
from tests.ext_proc.worlds import read_prompt

if TYPE_CHECKING:
    from pathlib import Path

LONG = TEXT * (8 * INLINE_CHARS // len(TEXT))


def chat(*contents: Any, **more: Any) -> bytes:
    roles = ("system", "user", "assistant")
    messages = [{"role": roles[n % 3], "content": content} for n, content in enumerate(contents)]
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def rendered(*contents: str) -> list[int]:
    roles = ("system", "user", "assistant")
    turns = [f"<|im_start|>{roles[n % 3]}\n{content}<|im_end|>\n" for n, content in enumerate(contents)]
    text = "".join(turns) + "<|im_start|>assistant\n"
    ids: list[int] = tokenizer().encode(text, add_special_tokens=False).ids
    return ids


def reader() -> PoolReader:
    return PoolReader(tokenizer(), ChatTemplate(TEMPLATE, {}))


def ids_of(made: PoolReader, body: bytes) -> list[int] | None:
    prompt = made.read(envelope_of(body))
    return None if prompt is None else prompt.ids.tolist()


def catch_up(made: PoolReader) -> None:
    while segments := made.take_waiting():
        made.keep(segments, made.tokenise(segments))


def test_chats_become_what_the_template_and_the_tokenizer_say() -> None:
    made = reader()
    for contents in (("Be brief.",), ("Be brief.", TEXT), ("Be brief.", TEXT, "Yes.", "Why? é…")):
        assert ids_of(made, chat(*contents)) == rendered(*contents)


def test_text_parts_are_joined_as_engines_join_them() -> None:
    parts = [{"type": "text", "text": "Which one?"}, {"type": "text", "text": "Why?"}]
    assert ids_of(reader(), chat("s", parts)) == rendered("s", "Which one?\nWhy?")


def test_a_template_that_looks_at_parts_gets_parts() -> None:
    source = (
        "{% for m in messages %}{% for part in m['content'] %}[{{ part['text'] }}]{% endfor %}{% endfor %}"
    )
    template = ChatTemplate(source, {})
    assert template.render({"messages": [{"role": "user", "content": "a"}]}) == "[a]"
    assert template.render({"messages": [{"role": "user", "content": ["a", {"text": "b"}]}]}) == "[a][b]"


def test_templates_get_what_hugging_face_gives_them() -> None:
    source = (
        "{{ bos_token }}{{ tools | tojson }}{% for m in messages %}{% if m.tool_calls %}"
        "{{ m.tool_calls[0].function.arguments.x }}{% endif %}{% generation %}{% endgeneration %}{% endfor %}"
        "{{ flag }}{{ add_generation_prompt }}{{ strftime_now('%%') }}"
    )
    calls = [{"type": "function", "function": {"name": "f", "arguments": '{"x": "é"}'}}]
    request = {
        "messages": [{"role": "assistant", "content": None, "tool_calls": calls}],
        "tools": [{"function": {"parameters": {}, "name": "f"}, "type": "function"}],
        "chat_template_kwargs": {"flag": 3},
        "add_generation_prompt": False,
    }
    tools_text = '[{"type": "function", "function": {"name": "f", "parameters": {}}}]'
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(request) == f"<s>{tools_text}é3False%"


@pytest.mark.parametrize("more", [
    {"chat_template": "x"},
    {"documents": [{"text": "x"}]},
    {"system": "Anthropic's"},
    {"continue_final_message": True},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    {"messages": [{"role": "user", "content": 3}]},
    {"messages": [{"content": "x"}]},
    {"messages": ["x"]},
    {"messages": "x"},
    {"messages": [{"role": "user", "content": "x"}] * (MAX_MESSAGES + 1)},
    {"chat_template_kwargs": "x"},
    {"tools": [3]},
    {"tools": 3},
])  # fmt: skip
def test_other_rendering_of_engines_is_not_guessed(more: dict[str, Any]) -> None:
    assert ids_of(reader(), chat("x", **more)) is None


def test_what_a_template_refuses_or_breaks_on_is_no_prompt() -> None:
    for source in ("{{ raise_exception('no') }}", "{{ messages[0].x.y.z }}", "{{ 1 / 0 }}",
                   "{% for i in range(10**9) %}{% endfor %}", "{{ messages.append(1) }}"):  # fmt: skip
        with pytest.raises(TemplateFailedError):
            ChatTemplate(source, {}).render({"messages": [{"role": "user", "content": "x"}]})


def test_a_template_cannot_reach_out_of_its_sandbox() -> None:
    source = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(TemplateFailedError):
        ChatTemplate(source, {}).render({"messages": []})


def test_without_a_template_chats_are_not_read() -> None:
    assert ids_of(PoolReader(tokenizer(), None), chat("x")) is None


def test_completions_begin_as_the_tokenizer_begins_texts() -> None:
    made = Tokenizer.from_str(tokenizer().to_str())
    made.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", special_tokens=[("<|im_start|>", 0), ("<|im_end|>", 1)]
    )
    bare = tokenizer().encode(TEXT).ids
    assert ids_of(PoolReader(made, None), json.dumps({"prompt": TEXT}).encode()) == [0, *bare]
    assert ids_of(PoolReader(tokenizer(), None), json.dumps({"text": TEXT}).encode()) == bare


def keys_of(body: str, reader: PoolReader | None = None) -> KvPrompt | None:
    lookup = KvLookup(KvView(100, lambda: 0.0), lambda: 0.0, 100)
    lookup.set_pool("p", ["a"], reader)
    return located(lookup, "p", "m", body.encode("latin-1"))


READERS = [None, PoolReader(tokenizer(), None)]


@pytest.mark.parametrize("made", READERS)
@pytest.mark.parametrize("body", [
    '{"model": "m", "prompt": [1, 2, 3]}',
    '{"input_ids": [1, 2, 3]}',
    '{"token_ids": [1 ,\n2, 3 ], "prompt": null, "messages": null}',
    '{"prompt": [[ 1, 2 ,3] ]}',
])  # fmt: skip
def test_token_ids_are_taken_as_they_are(made: PoolReader | None, body: str) -> None:
    prompt = keys_of(body, made)
    assert prompt is not None
    expected = KvView(100, lambda: 0.0).keys([1, 2, 3])
    assert expected is not None
    assert prompt.keys.tolist() == expected.tolist()
    assert (prompt.whole, prompt.total) == (True, 3)


@pytest.mark.parametrize("made", READERS)
@pytest.mark.parametrize("prompt", [
    "[]", "[[]]", "[ ]", "[1 2]", "[,]", "[1,]", f"[{2**64}]", "[01]", "[[1], [2, 3]]", "[1.5]",
    '["a", "b"]', "{}", "3", "null", '[1, "a"]',
])  # fmt: skip
def test_prompts_that_are_no_ids_are_not_guessed(made: PoolReader | None, prompt: str) -> None:
    assert keys_of(f'{{"prompt": {prompt}}}', made) is None


@pytest.mark.parametrize("made", READERS)
@pytest.mark.parametrize("body", ["", "[", "[1]", "{}", '{"prompt"', "[" * 100_000, '{"prompt": "\xff"}'])
def test_bodies_that_are_no_requests_are_not_guessed(made: PoolReader | None, body: str) -> None:
    assert keys_of(body, made) is None
    if made is not None:
        assert ids_of(made, body.encode("latin-1")) is None


def test_one_text_in_a_list_is_that_text() -> None:
    made = PoolReader(tokenizer(), None)
    assert ids_of(made, b'{"prompt": ["late"]}') == tokenizer().encode("late").ids


@pytest.mark.parametrize(("first", "count"), [
    (0, MAX_IDS), (0, MAX_IDS + 1), (0, 5 * MAX_IDS), (100_000, MAX_IDS + 1),
])  # fmt: skip
def test_of_many_ids_the_first_are_read_and_all_counted(first: int, count: int) -> None:
    ids = list(range(first, first + count))
    body = json.dumps({"prompt": ids}).encode()
    prompt = read_prompt(body, complete=True)
    assert isinstance(prompt, Prompt)
    assert prompt.tokens == count
    read = ids_in(prompt.text, prompt.tokens)
    assert read is not None
    assert read.ids.tolist() == ids[:MAX_IDS]
    assert (read.whole, read.total) == (count <= MAX_IDS, count)


@pytest.mark.parametrize(
    "body", ['{"prompt": [[1], [2]]}', '{"prompt": [18446744073709551616]}', '{"prompt": [01]}',
             '{"input_ids": [1, 2], "image_data": "x"}'],
)  # fmt: skip
def test_several_prompts_or_ids_with_images_are_not_guessed(body: str) -> None:
    assert keys_of(body) is None


def test_without_a_reader_texts_are_not_looked_up() -> None:
    assert keys_of('{"prompt":[1,2,3]}') is not None
    assert keys_of('{"prompt":"a"}') is None
    assert keys_of('{"prompt":"a"}', PoolReader(tokenizer(), None)) is not None


def test_of_a_long_text_that_is_known_the_first_tokens_are_read() -> None:
    made = reader()
    text = TEXT * (6 * MAX_IDS // len(TEXT))
    for _ in range(8):
        prompt = made.read(envelope_of(chat(text)))
        catch_up(made)
    assert prompt is not None
    whole = rendered(text)
    assert len(whole) > MAX_IDS
    assert prompt.ids.tolist() == whole[:MAX_IDS]
    assert not prompt.whole
    assert prompt.total == pytest.approx(len(whole), rel=0.5)


def test_dense_chat_uses_the_estimate() -> None:
    for dense in ({"tools": [{"type": "function", "function": {"x": [0] * MAX_MARKS}}]},
                  {"chat_template_kwargs": {"x": [[]] * MAX_MARKS}},
                  {"documents": [0] * MAX_MARKS}):  # fmt: skip
        assert ids_of(reader(), chat("x", **dense)) is None
    assert ids_of(reader(), chat("[" * (MAX_MARKS + 1))) is None
    assert ids_of(reader(), chat("x", metadata=[[]] * 5 * MAX_MARKS)) == rendered("x")


def test_no_more_pieces_of_a_text_are_looked_at_than_count() -> None:
    made = reader()
    for _ in range(200):
        prompt = made.read(envelope_of(chat("<|im_end|>a" * 5 * MAX_SEGMENTS)))
        catch_up(made)
    assert prompt is not None
    assert not prompt.whole
    assert len(prompt.ids) < 3 * MAX_SEGMENTS
    assert prompt.total > len(prompt.ids)


def test_a_text_without_places_to_cut_is_not_searched_for_ever() -> None:
    cutter = Cutter.of(tokenizer())
    dense = "[{" * SEARCHED_CHARS
    assert list(cutter.segments(dense)) == [dense]
    many = f"<|im_start|>{'[{' * 3000}" * 100
    pieces = list(cutter.segments(many + LONG))
    assert "".join(pieces) == many + LONG
    assert len(pieces) == 100, "nothing is searched in the last one, whatever would be found"


def test_of_a_long_new_text_only_the_beginning_is_known_at_first() -> None:
    """So that a request never waits for a long tokenisation; the next with that text knows all."""
    made = reader()
    woken: list[int] = []
    made.on_waiting = lambda: woken.append(1)
    whole = rendered("s", LONG)
    prompt = made.read(envelope_of(chat("s", LONG)))
    assert prompt is not None
    assert not prompt.whole
    assert prompt.ids.tolist() == whole[: len(prompt.ids)]
    assert 0 < len(prompt.ids) < len(whole)
    assert prompt.total > len(prompt.ids)
    assert woken
    catch_up(made)
    assert ids_of(made, chat("s", LONG + "And why?")) == rendered("s", LONG + "And why?")


def test_what_waits_to_be_tokenised_is_bounded_and_waits_once() -> None:
    made = reader()
    made.read(envelope_of(chat("s", LONG)))
    waiting = made._waiting_chars
    made.read(envelope_of(chat("s", LONG)))
    assert made._waiting_chars == waiting
    for n in range(200):
        made.read(envelope_of(chat(str(n), LONG.replace("train", f"tra{n}in"))))
    assert made._waiting_chars <= 2_000_000
    taken = made.take_waiting()
    assert sum(map(len, taken)) < 65_536 + 2 * SEGMENT_CHARS


def test_memory_of_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ext_proc.kv.tokens.MAX_CACHED_TOKENS", 1000)
    made = reader()
    for n in range(100):
        made.read(envelope_of(chat(f"number {n} of " + TEXT)))
    assert made._cached_tokens <= 1000
    assert made._cached_tokens == sum(len(ids) + 1 for ids in made._cache.values())


def test_cuts_never_change_tokens_where_a_tokenizer_allows_them() -> None:
    cutter = Cutter.of(tokenizer())
    assert cutter.soft
    pieces = list(cutter.segments(LONG))
    assert len(pieces) > 10
    assert "".join(pieces) == LONG
    assert max(map(len, pieces)) < 2 * SEGMENT_CHARS


def test_a_tokenizer_that_joins_over_lines_is_not_cut_there() -> None:
    cutter = Cutter.of(tokenizer(split=False))
    assert not cutter.soft
    assert list(cutter.segments(TEXT)) == [TEXT]
    assert list(cutter.segments(f"<|im_start|>{TEXT}<|im_end|>x")) == [f"<|im_start|>{TEXT}", "<|im_end|>x"]


def test_text_is_not_cut_for_an_unusual_tokenizer() -> None:
    """Such as those that put a space before whatever they are given."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.add_special_tokens(["<s>", "</s>"])
    cutter = Cutter.of(made)
    text = f"<s>{TEXT}</s>{TEXT}"
    pieces = [made.encode(piece, add_special_tokens=False).ids for piece in cutter.segments(text)]
    assert [number for piece in pieces for number in piece] == made.encode(text, add_special_tokens=False).ids


_ALPHABET = st.sampled_from(
    ["the", " ", "\n", "late", "<|im_end|>", "é", ".", "\t", "A", "9", "'s", "日", "  "]
)


@given(st.lists(_ALPHABET, max_size=60).map("".join))
def test_pieces_have_the_tokens_of_the_whole(text: str) -> None:
    """For the finest cuts there are."""
    cutter = Cutter(Cutter.of(tokenizer()).specials, soft=True, every=1)
    pieces = list(cutter.segments(text))
    assert "".join(pieces) == text
    ids = [number for piece in pieces for number in tokenizer().encode(piece, add_special_tokens=False).ids]
    assert ids == tokenizer().encode(text, add_special_tokens=False).ids


def test_equal_beginnings_are_cut_alike() -> None:
    cutter = Cutter.of(tokenizer())
    one, other = list(cutter.segments(LONG + "x y z")), list(cutter.segments(LONG + TEXT))
    assert one[:-1] == other[: len(one) - 1]


def test_files_are_read_in_the_forms_that_models_come_in(tmp_path: Path) -> None:
    one, config = files(tmp_path)
    assert ids_of(PoolReader.load(one, config), chat("x")) == rendered("x")
    (tmp_path / "chat_template.jinja").write_text("{{ eos_token }}" + TEMPLATE)
    ids = ids_of(PoolReader.load(one, tmp_path / "chat_template.jinja"), chat("x"))
    assert ids == [1, *rendered("x")]
    config.write_text(json.dumps({"chat_template": [{"name": "default", "template": TEMPLATE}]}))
    assert ids_of(PoolReader.load(one, config), chat("x")) == rendered("x")
    config.write_text("{}")
    with pytest.raises(ValueError, match="chat_template"):
        PoolReader.load(one, config)
