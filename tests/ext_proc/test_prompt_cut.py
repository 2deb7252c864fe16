"""Cut bodies: their text is a byte prefix of the whole body's, and reading them takes linear time."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ext_proc.prompt import cut as cut_prompts
from ext_proc.prompt import outline, parts, prompts, text
from ext_proc.prompt.blocks import block_hashes, blocks_within
from ext_proc.prompt.cut import add_open, add_value
from ext_proc.prompt.decode import Prompt, Unreadable
from ext_proc.prompt.outline import MAX_VALUES, leading_members, leading_values
from ext_proc.prompt.text import MAX_PIECES
from ext_proc.prompt.unreadable import UnreadableError
from tests.ext_proc.worlds import read_prompt

if TYPE_CHECKING:
    from collections.abc import Callable

AWKWARD = st.text(st.sampled_from('a,b:"\\{}[]é😀\n\x1e '), max_size=8)
TEXT_PART = st.fixed_dictionaries({"type": st.just("text"), "text": AWKWARD})
IMAGE_PART = st.fixed_dictionaries(
    {"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": AWKWARD})}
)
LATE_PART = st.fixed_dictionaries({"text": AWKWARD, "type": st.sampled_from(["text", "custom"])})
PARTS = st.lists(TEXT_PART | IMAGE_PART | LATE_PART | AWKWARD, max_size=3)
CONTENT = AWKWARD | PARTS | st.none()
CALLS = st.lists(
    st.fixed_dictionaries({"id": AWKWARD, "function": st.dictionaries(AWKWARD, AWKWARD)}), max_size=2
)
ROLE = st.sampled_from(["user", "assistant", "system"])
MESSAGE = (
    st.fixed_dictionaries({"role": ROLE, "content": CONTENT})
    | st.fixed_dictionaries({"content": CONTENT, "role": ROLE})
    | st.fixed_dictionaries({"role": ROLE, "tool_calls": CALLS, "content": CONTENT})
    | st.fixed_dictionaries({"role": ROLE, "content": CONTENT, "tool_call_id": AWKWARD, "name": AWKWARD})
)
IDS = st.lists(st.integers(0, 200_000), max_size=4)
PROMPT = AWKWARD | st.lists(AWKWARD, max_size=3) | IDS | st.lists(IDS, max_size=3)
ITEM = MESSAGE | st.fixed_dictionaries({"type": st.just("reasoning"), "summary": PARTS})
PROMPT_MEMBER = (
    st.tuples(st.just("messages"), st.lists(MESSAGE, max_size=3))
    | st.tuples(st.just("prompt"), PROMPT)
    | st.tuples(st.just("input"), PROMPT | st.lists(ITEM, max_size=3))
)
OTHER = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | AWKWARD,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(AWKWARD, inner, max_size=2),
    max_leaves=4,
)
MEMBER = (
    st.tuples(st.just("model"), AWKWARD)
    | st.tuples(st.just("cache_salt"), AWKWARD)
    | st.tuples(AWKWARD, OTHER)
)
LEADS = st.lists(
    st.tuples(st.just("tools"), st.lists(OTHER, max_size=2))
    | st.tuples(st.sampled_from(["system", "instructions"]), CONTENT)
    | st.tuples(st.sampled_from(["conversation", "previous_response_id"]), st.text("ab", max_size=3)),
    max_size=3,
)

TWO_ROLES = b'{"messages":[{"role":"user","content":""},{"role":"user","content":null}]}'


@st.composite
def bodies(draw: st.DrawFn, led_by: st.SearchStrategy[list[tuple[str, Any]]] = LEADS) -> bytes:
    """Bodies that a client may send, escaped or not, dense or wide; what leads stands ahead and in order.

    Clients put ahead of all what a conversation is stored under.
    """
    leads = sorted(draw(led_by), key=lambda lead: "cptsi".index(lead[0][0]))
    before = draw(st.lists(MEMBER, max_size=2))
    after = draw(st.lists(MEMBER, max_size=2))
    body = dict([*leads, *before, draw(PROMPT_MEMBER), *after])
    indent = draw(st.sampled_from([None, 1]))
    separators = draw(st.sampled_from([(",", ":"), (" , ", " : ")]))
    spelled = json.dumps(body, indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    return spelled.encode()


@pytest.mark.untraced
@given(bodies())
@settings(deadline=None)
def test_at_every_cut_the_text_is_a_prefix_of_the_whole_text(body: bytes) -> None:
    text_is_a_prefix_at_every_cut(body, read_prompt(body, complete=True))


# A lead that is dense in marks is spelled another way than one that is not, which moves the limit.
@pytest.mark.untraced
@given(bodies(led_by=st.just([])), st.integers(1, 12), st.integers(1, 40), st.integers(1, 12))
@example(TWO_ROLES, 5, 5, 4)
@settings(deadline=None, max_examples=40)
def test_limits_that_are_met_anywhere_leave_the_text_a_prefix(
    body: bytes, values: int, marks: int, pieces: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outline, "MAX_VALUES", values)
        patch.setattr(outline, "_STEP_BYTES", 7)
        for module in (prompts, parts, cut_prompts):
            patch.setattr(module, "MAX_PIECES", pieces)
        unlimited = read_prompt(body, complete=False)
        whole = read_prompt(body, complete=True)
        patch.setattr(outline, "MAX_MARKS", marks)
        # Marks are counted by steps from where reading begins: a whole prompt may end a step sooner.
        text_is_a_prefix_at_every_cut(body, whole, grows=False)
        limited = read_prompt(body, complete=False)
        if isinstance(limited, Prompt) and isinstance(unlimited, Prompt):
            assert unlimited.text.startswith(limited.text)


def text_is_a_prefix_at_every_cut(body: bytes, whole: Prompt | Unreadable, *, grows: bool = True) -> None:
    length = 0
    for cut in range(len(body)):
        part = read_prompt(body[:cut], complete=False)
        if isinstance(whole, Prompt) and isinstance(part, Prompt):
            assert whole.text.startswith(part.text), cut
            assert part.model in (None, whole.model)
            assert part.salt in ("", whole.salt)
            assert not part.complete
            # More of the body never tells less of the prompt.
            assert len(part.text) >= length or not grows, cut
            length = len(part.text)
        elif isinstance(whole, Prompt):
            assert part in (Unreadable.NO_PROMPT, Unreadable.NOT_JSON), cut
            assert length == 0 or not grows, cut


@given(bodies())
def test_leading_part_of_full_length_equals_the_whole(body: bytes) -> None:
    whole = read_prompt(body, complete=True)
    part = read_prompt(body, complete=False)
    if isinstance(whole, Prompt):
        assert part == whole._replace(complete=False)
    else:
        assert part is whole


def cut(body: str) -> bytes:
    prompt = read_prompt(body.encode(), complete=False)
    assert isinstance(prompt, Prompt), prompt
    return prompt.text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"messages":[{"role":"user","content":"abc', b"\x1euser\x1fabc"),
        ('{"messages":[{"role":"user","content":"abc\\', b"\x1euser\x1fabc\\"),
        ('{"messages":[{"role":"user","content":"abc"', b"\x1euser\x1fabc"),
        ('{"messages":[{"role":"user","content":[{"type":"text","text":"abc', b"\x1euser\x1fabc"),
        ('{"messages":[{"role":"user","content":"a"},{"content":"b', b"\x1euser\x1fa"),
        ('{"messages":[{"role":"user","content":"a"},{"role":"us', b"\x1euser\x1fa"),
        ('{"messages":[{"role":"user","content":"a"},', b"\x1euser\x1fa"),
        ('{"messages":[{"role":"user","content":[{"text":"abc', b"\x1euser\x1f"),
        ('{"messages":[{"role":"user","content":[{"type":"custom","text":"abc', b"\x1euser\x1f"),
        ('{"prompt":"abc', b"abc"),
        ('{"prompt":["a","bc', b"a\x1dbc"),
        ('{"prompt":[12,345,67', b"\x1b12,345,"),
        ('{"prompt":[[1,2],[3,45', b"\x1b1,2,\x1d\x1b3,"),
        ('{"m\\"x": 1, "mess\\u0061ges" : [{"role":"user","content":"abc', b"\x1euser\x1fabc"),
        ('{"system":"Be br', b"\x1asystem\x1fBe br"),
        ('{"prompt":{"id":"p"},"input":"ab', b'\x1aprompt\x1f{"id":"p"}ab'),
        ('{"input":"ab","text":{"format":{"type":"te', b"ab"),
        ('{"prompt":[1,2,"a', b"\x1b1,2,\x1da"),
        ('{"prompt":[1,2,"a",34', b"\x1b1,2,\x1da"),
        ('{"prompt":[[1,2,"a', b"\x1b1,2,\x1da"),
        ('{"input_ids":[[1],[2', b"\x1b1,\x1d"),
        ('{"prompt":"caf\\u00e9 \\/ a', b"caf\\u00e9 \\/ a"),
        ('{"tools":[1],"messages":[{"role":"user","content":"a', b"\x1atools\x1f[1]\x1euser\x1fa"),
    ],
)
def test_cut_keeps_the_certain_text(body: str, text: bytes) -> None:
    assert cut(body) == text


def test_a_cut_inside_a_character_keeps_its_first_bytes() -> None:
    body = '{"messages":[{"role":"user","content":"aé'.encode()[:-1]
    prompt = read_prompt(body, complete=False)
    assert prompt == Prompt(None, "", b"\x1euser\x1fa\xc3", complete=False)


def test_a_model_behind_the_cut_is_none_and_before_it_is_known() -> None:
    behind = read_prompt(b'{"messages":[{"role":"user","content":"a', complete=False)
    before = read_prompt(b'{"model":"m","messages":[{"role":"user","content":"a', complete=False)
    assert isinstance(behind, Prompt)
    assert isinstance(before, Prompt)
    assert (behind.model, before.model) == (None, "m")
    assert behind.text == before.text


def test_long_conversation_and_its_cut_share_blocks() -> None:
    messages = [{"role": "user" if i % 2 else "assistant", "content": f"é{i} " * 400} for i in range(200)]
    body = json.dumps({"messages": messages, "model": "m"}, ensure_ascii=False).encode()
    whole = read_prompt(body, complete=True)
    part = read_prompt(body[:300_001], complete=False)
    assert isinstance(whole, Prompt)
    assert isinstance(part, Prompt)
    assert len(part.text) > 290_000
    all_blocks = block_hashes(whole.text, identity=b"", block_bytes=256, max_blocks=10_000)
    blocks = block_hashes(part.text, identity=b"", block_bytes=256, max_blocks=10_000)
    assert len(blocks) == blocks_within(len(part.text) // 256)
    assert all_blocks[: len(blocks)] == blocks


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", Unreadable.NOT_JSON),
        (b"abc", Unreadable.NOT_JSON),
        (b'"abc', Unreadable.NOT_JSON),
        (b'x{"prompt":"a', Unreadable.NOT_JSON),
        (b'\xef\xbb\xbf{"prompt":"a', Unreadable.NOT_JSON),
        ('{"prompt":"a'.encode("utf-16"), Unreadable.NOT_JSON),
        (b'{"prompt":"a"]', Unreadable.NOT_JSON),
        (b'{"prompt":["a"}', Unreadable.NOT_JSON),
        (b'{"prompt" "a', Unreadable.NOT_JSON),
        (b'{prompt:"a', Unreadable.NOT_JSON),
        (b'["a", {"prompt":"a', Unreadable.WRONG_SHAPE),
        (b'{"messages":"a', Unreadable.WRONG_SHAPE),
        (b'{"messages":{"role":"user","content":"a', Unreadable.WRONG_SHAPE),
        (b'{"messages":["a', Unreadable.WRONG_SHAPE),
        (b'{"prompt":"a","messages":[{"role":"user","content":"b', Unreadable.AMBIGUOUS),
        (b'{"model":"a","model":"b","prompt":"x', Unreadable.AMBIGUOUS),
        (b'{"model":"a","pro', Unreadable.NO_PROMPT),
        (b'{"x":' + b"[" * 100, Unreadable.TOO_DEEP),
        (b'{"x":[' + b"[[]]," * 100_000, Unreadable.NO_PROMPT),
    ],
)
def test_hostile_parts_are_refused_with_their_reason(body: bytes, reason: Unreadable) -> None:
    assert read_prompt(body, complete=False) is reason


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "open brackets": lambda n: b'{"x":' + b"[" * n,
    "objects in objects": lambda n: b'{"x":' * (n // 5),
    "brackets opened and closed": lambda n: b'{"x":[' + b"[]," * (n // 3),
    "two levels": lambda n: b'{"x":[' + b"[[]]," * (n // 5),
    "quotes": lambda n: b'{"' + b'"' * n,
    "escaped quotes": lambda n: b'{"prompt":"' + b'\\"' * (n // 2),
    "escaped quotes in a key": lambda n: b'{"' + b'\\"' * (n // 2) + b'":"a',
    "backslashes": lambda n: b'{"prompt":"' + b"\\" * n,
    "backslashes in a key": lambda n: b'{"' + b"\\\\" * (n // 2) + b'":"a',
    "white space": lambda n: b'{"prompt":[' + b" " * n,
    "white space before": lambda n: b" " * n + b'{"prompt":"a',
    "commas": lambda n: b'{"prompt":[' + b"," * n,
    "ids": lambda n: b'{"prompt":[' + b"1," * (n // 2),
    "one long id": lambda n: b'{"prompt":[' + b"1" * n,
    "strings": lambda n: b'{"prompt":[' + b'"",' * (n // 3),
    "unfinished objects": lambda n: b'{"messages":[' + b'{"a",' * (n // 5),
    "messages": lambda n: b'{"messages":[' + b'{"role":"a","content":[{}]},' * (n // 28),
    "one long string": lambda n: b'{"prompt":"' + b"a" * n,
}


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_linear_in_the_size(name: str, complete: bool) -> None:
    """Four times the bytes take about four times the CPU time; a quadratic reader would take sixteen."""

    def seconds(body: bytes) -> float:
        began = time.process_time()
        read_prompt(body, complete=complete)
        return time.process_time() - began

    size = 200_000
    one, four = HOSTILE[name](size), HOSTILE[name](4 * size)
    # The floor keeps clock noise out; a quadratic reader needs seconds for these sizes.
    small, large, floor = float("inf"), float("inf"), 0.002
    # The best of several in turn: a host that is slow for a moment is as slow for both, or only for a few.
    for _ in range(20):
        small, large = min(small, seconds(one)), min(large, seconds(four))
        if large < 10 * max(small, floor):
            return
    pytest.fail(f"{large} s for four times the bytes that take {small} s")


ELEMENTS = ['"",', "{},", '{"role":"a"},', '{"role":"a","content":["b"]},', '{"a":[1,2]},', '[1,"a"],']


@pytest.mark.parametrize("element", ELEMENTS)
def test_the_text_ends_after_a_bounded_number_of_pieces(element: str) -> None:
    body = '{"input":[' + element * 40_000 + element[:-1] + "]}"
    whole = read_prompt(body.encode(), complete=True)
    part = read_prompt(body[:-3].encode(), complete=False)
    assert isinstance(whole, Prompt)
    assert isinstance(part, Prompt)
    assert 400 <= len(whole.text) < 5 * MAX_PIECES
    assert whole.text.startswith(part.text)


@pytest.mark.parametrize("element", [*ELEMENTS, '{"role":"a","content":[{}]},', "[[1]],"])
@pytest.mark.parametrize("whole", [True, False])
def test_the_work_on_a_prompt_is_bounded_by_values_and_pieces(
    element: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No list is decoded with more values than are read, and no more pieces are made than count."""
    decoded: list[bytes] = []

    def elements_of(raw: Any) -> list[Any]:
        decoded.append(bytes(raw))
        return text.elements_of(raw)

    monkeypatch.setattr(prompts, "elements_of", elements_of)
    pieces: list[bytes | memoryview] = []
    raw = ("[" + element * 100_000 + "1]").encode()
    if whole:
        assert leading_members(raw)[1]
        attempt = partial(add_value, pieces, raw, chat=False, rich=True)
    else:
        levels = leading_values(raw[:-2])
        assert levels is not None
        attempt = partial(add_open, pieces, levels, chat=False)
    with suppress(UnreadableError):
        attempt()
    assert len(pieces) <= MAX_PIECES + 16
    assert all(raw.count(b",") <= MAX_VALUES for raw in decoded)


def test_marks_inside_strings_do_not_shorten_a_prompt() -> None:
    table = ['1,2,[3],{4}\\"' * 2000 for _ in range(3)]
    body = json.dumps({"messages": [{"role": "user", "content": row} for row in table], "model": "m"})
    prompt = read_prompt(body.encode(), complete=True)
    assert leading_members(body.encode()) == (body.encode(), True)
    assert isinstance(prompt, Prompt)
    assert prompt.model == "m"
    assert prompt.text.count(b"{4}") == 6000


def test_rich_prompt_is_cut_and_keeps_its_model() -> None:
    messages = [{"role": "user", "content": f"line {number}"} for number in range(9000)]
    turns = [{"messages": messages[:count], "model": "m"} for count in (8000, 9000)]
    one, other = (read_prompt(json.dumps(turn).encode(), complete=True) for turn in turns)
    assert isinstance(one, Prompt)
    assert isinstance(other, Prompt)
    assert one.model == "m"
    assert len(one.text) > 14_000
    assert one.text == other.text


@pytest.mark.untraced
@given(bodies())
@settings(deadline=None)
def test_body_that_is_not_rich_is_within_the_limit(body: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outline, "_STEP_BYTES", 7)
        counts = []
        for most in range(30):
            patch.setattr(outline, "MAX_VALUES", most)
            rich = leading_members(body)[1]
            counts.append((leading_values(body) is not None, rich))
        assert all(rich or not limited for limited, rich in counts)


def test_prose_and_code_of_half_a_megabyte_are_not_rich() -> None:
    prose = "Sir, said the miller, that, as you know, my friend, is x[i] of f(a, b)\n" * 7000
    body = json.dumps({"messages": [{"role": "user", "content": prose}]}).encode()
    assert body.count(b",") + body.count(b"{") + body.count(b"[") > 2 * MAX_VALUES
    assert leading_members(body) == (body, False)


def test_all_ids_ahead_of_the_first_string_count() -> None:
    """A cut ahead of the string cannot tell that one follows, so the whole may not stop earlier."""
    body = json.dumps({"prompt": [*range(20_000), "a", 5]}).encode()
    whole, part = read_prompt(body, complete=True), read_prompt(body[:100_000], complete=False)
    assert isinstance(whole, Prompt)
    assert isinstance(part, Prompt)
    assert whole.text.endswith(b",19999,\x1da\x1b5,")
    assert whole.text.startswith(part.text)
    assert (part.tokens, whole.tokens) == (part.text.count(b","), None)


def test_a_body_of_very_many_members_is_read_as_its_leading_part() -> None:
    body = b'{"model":"m","prompt":"a",' + b'"x":1,' * 60_000 + b'"prompt":"b"}'
    prompt = read_prompt(body, complete=True)
    assert prompt == Prompt("m", "", b"a", complete=False)


def test_sixteen_megabytes_are_read() -> None:
    body = b'{"messages":[{"role":"user","content":"' + b"\\n\xc3\xa9 a" * 3_000_000
    prompt = read_prompt(body, complete=False)
    assert isinstance(prompt, Prompt)
    assert len(prompt.text) > 16_000_000
