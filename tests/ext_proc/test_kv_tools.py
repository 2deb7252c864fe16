"""Tools are written as Hugging Face's templates write them, once, and what is dense in them is not read."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.kv import tools as module
from ext_proc.kv.template import MAX_JSON_MARKS, ChatTemplate
from ext_proc.kv.tokens import PoolReader
from ext_proc.kv.tools import MAX_BYTES, MAX_INDENTED_DEPTH, TemplateFailedError, Tools, ToolsCache, to_json
from tests.ext_proc.kv_tokenizer import tokenizer
from tests.ext_proc.kv_worlds import envelope_of

if TYPE_CHECKING:
    from collections.abc import Callable

INDENTED = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson(indent=4) }}{{ tool.function.name }}{% endfor %}"
    "{% endif %}{% for m in messages %}{{ m.content }}{% for call in m.tool_calls or [] %}"
    "{{ call.function.arguments | tojson }}{% endfor %}{% endfor %}"
)
USER = {"role": "user", "content": "hi"}
_LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text() | st.floats(
    allow_nan=False, allow_infinity=False
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


def tool(number: int, **more: Any) -> dict[str, Any]:
    properties = {f"arg{n}": {"type": "string", "description": "an argument"} for n in range(12)}
    parameters = {"type": "object", "properties": properties, "required": list(properties), **more}
    return {"type": "function", "function": {"name": f"tool_{number}", "parameters": parameters}}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def tokens(reader: PoolReader, **body: Any) -> list[int] | None:
    prompt = reader.read(envelope_of(json.dumps({"messages": [USER], **body}).encode()))
    return None if prompt is None else prompt.ids.tolist()


@given(_VALUES, st.booleans(), st.sampled_from([None, -1, 0, 1, 2, 4]))
def test_values_are_written_as_the_standard_library_writes_them(
    value: Any, ensure_ascii: bool, indent: int | None
) -> None:
    assert to_json(value, ensure_ascii, indent) == json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def test_indent_is_cheaper_than_in_the_standard_library() -> None:
    value = [tool(number) for number in range(100)]

    def seconds(write: Callable[..., str]) -> float:
        best = float("inf")
        for _ in range(7):
            began = time.thread_time()
            write(value, ensure_ascii=False, indent=4)
            best = min(best, time.thread_time() - began)
        return best

    assert seconds(to_json) < seconds(json.dumps) / 2


def test_repeated_tools_are_decoded_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, written = PoolReader(tokenizer(), ChatTemplate(INDENTED, {})), []
    text = module._text

    def counted(value: Any, *form: Any) -> str:
        written.append(value)
        return text(value, *form)

    monkeypatch.setattr(module, "_text", counted)
    tools = [tool(number) for number in range(5)]
    tokens(reader, tools=tools)
    while waiting := reader.take_waiting():
        reader.keep(waiting, reader.tokenise(waiting))
    assert len(written) == 5
    first = tokens(reader, tools=tools)
    assert tokens(reader, tools=tools) == first
    assert len(written) == 5
    assert tokens(reader, tools=[*tools, tool(9)]) != first
    assert len(written) == 11


def test_the_same_tools_may_be_written_in_several_forms() -> None:
    memory = ToolsCache()
    for _ in range(2):
        tools = memory.of(raw([{"function": {"parameters": {}, "name": "é"}}]))
        assert tools is not None
        plain = [{"type": "function", "function": {"name": "é", "parameters": {}}}]
        for ascii_only in (False, True):
            for indent in (None, 1, 2, 3, 4, 5):
                expected = json.dumps(plain, ensure_ascii=ascii_only, indent=indent)
                assert to_json(tools, ascii_only, indent) == expected
                assert f"[{to_json(tools[0], ascii_only)}]" == json.dumps(plain, ensure_ascii=ascii_only)
    assert memory.of(raw([])) is None
    assert memory.of(raw(None)) is None


@pytest.mark.parametrize("value", [3, "x", {"a": 1}, [3], [{}], [{"function": 3}], [None]])
def test_what_is_no_tools_is_refused(value: Any) -> None:
    with pytest.raises(TemplateFailedError):
        Tools(value)


def test_memory_of_tools_is_bounded() -> None:
    memory = ToolsCache()
    for number in range(50):
        memory.of(raw([tool(number, note="x" * (MAX_BYTES // 100))]))
    assert memory._nbytes <= MAX_BYTES
    assert 2 < len(memory._entries) < 10
    memory.of(raw([tool(0, note="x" * MAX_BYTES)]))
    assert (memory._nbytes, len(memory._entries)) == (0, 0)


def test_tools_of_a_usual_size_have_room_several_times() -> None:
    """Of agents that share a pool, each with a hundred tools."""
    memory = ToolsCache()
    for agent in range(8):
        memory.of(raw([tool(number, note=str(agent)) for number in range(100)]))
    assert len(memory._entries) == 8


def test_lists_in_lists_are_not_indented_beyond_a_depth() -> None:
    """Eight kilobytes of them would be written as fifteen million spaces, at each request."""

    def nested(depth: int) -> Any:
        value: Any = 0
        for number in range(depth):
            value = {"a": value} if number % 2 else [value]
        return value

    deepest, deeper = nested(MAX_INDENTED_DEPTH), nested(MAX_INDENTED_DEPTH + 1)
    for indent in (0, 1, 4):
        assert to_json(deepest, indent=indent) == json.dumps(deepest, indent=indent)
        with pytest.raises(TemplateFailedError):
            to_json(deeper, indent=indent)
    assert to_json(deeper) == json.dumps(deeper)
    deep_tool = {"function": {"name": "f", "parameters": deeper}}
    assert tokens(PoolReader(tokenizer(), ChatTemplate(INDENTED, {})), tools=[deep_tool]) is None


_NESTED = [0] * 4000
for _ in range(MAX_INDENTED_DEPTH - 5):
    _NESTED = [_NESTED]  # type: ignore[list-item]


@pytest.mark.untraced
@pytest.mark.parametrize(
    "listed",
    [
        [{"function": {}}] * 2700,
        [{"function": {"a": _NESTED}}],
        [{"function": {"a": [{}] * 4000}}],
        [{"function": {"a": [{"b": 0}] * 4000}}],
        [{"function": {"a": [0.5] * 8000}}],
        [{"function": {"a": ["ab"] * 8000}}],
        [{"function": {"a": "x" * 50_000 + "\U0001f600"}}],
        [{"function": {f"key {n}": "\U0001f600" for n in range(4000)}}],
    ],
    ids=["empty tools", "deep", "empty", "objects", "numbers", "strings", "wide", "keys"],
)
def test_what_is_remembered_takes_no_more_than_is_counted(listed: list[Any]) -> None:
    """Decoded, and written in more forms than templates use, whatever a client sends."""
    memory = ToolsCache()
    bodies = [
        msgspec.Raw(json.dumps([*listed, {"function": {"n": n}}], ensure_ascii=False).encode())
        for n in range(3)
    ]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for body in bodies:
            tools = memory.of(body)
            assert tools is not None
            for form in ((False, None), (False, 2), (False, 4), (True, None)):
                to_json(tools, *form)
                for each in tools:
                    to_json(each, *form)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(memory._entries) >= 1
    assert taken <= memory._nbytes + 65_536


def test_a_template_does_not_see_what_is_remembered() -> None:
    template = ChatTemplate("{% for t in tools %}[{{ t._written }}]{{ t | tojson }}{% endfor %}", {})
    rendered = template.render({"messages": [USER], "tools": [{"function": {"name": "f"}}]})
    assert rendered == '[]{"type": "function", "function": {"name": "f"}}'


@pytest.mark.parametrize("spelled", ["plain", "escaped"])
@pytest.mark.parametrize("one", ["[]", "{}", "0"])
def test_dense_arguments_use_the_estimate(one: str, spelled: str) -> None:
    def body(count: int) -> bytes:
        arguments = "[" + ",".join([one] * count) + "]"
        quoted = "".join(f"\\u{ord(c):04x}" for c in arguments) if spelled == "escaped" else arguments
        return (
            '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", '
            f'"tool_calls": [{{"function": {{"name": "f", "arguments": "{quoted}"}}}}]}}]}}'
        ).encode()

    reader = PoolReader(tokenizer(), ChatTemplate(INDENTED, {}))
    assert reader.read(envelope_of(body(10))) is not None
    if one != "0":
        assert reader.read(envelope_of(body(MAX_JSON_MARKS // 2 + 2))) is None
    assert reader.read(envelope_of(body(MAX_JSON_MARKS + 2))) is None


def test_tools_and_arguments_count_together() -> None:
    def read(of_tools: int, of_arguments: int) -> list[int] | None:
        call = {"function": {"name": "f", "arguments": json.dumps([0] * of_arguments)}}
        large = {"function": {"name": "f", "parameters": [0] * of_tools}}
        messages = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
        return tokens(PoolReader(tokenizer(), ChatTemplate(INDENTED, {})), messages=messages, tools=[large])

    half = MAX_JSON_MARKS // 2
    assert read(half, 10) is not None
    assert read(10, half) is not None
    assert read(half + 10, half) is None
    assert read(MAX_JSON_MARKS + 1, 0) is None
