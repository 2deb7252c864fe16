"""Bodies that are meant to hold a reader up, by family: each a function of its size in bytes."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import TYPE_CHECKING, Final

import brotli

from ext_proc.prompt.envelope import LEADS, STORED

if TYPE_CHECKING:
    from collections.abc import Callable


def _filled(head: str, piece: str, tail: str, last: str = "0") -> Callable[[int], bytes]:
    """Return a family: `head`, as many of `piece` as fit, `last`, `tail`."""
    begin, middle, end = head.encode(), piece.encode(), (last + tail).encode()

    def body(size: int) -> bytes:
        return begin + middle * max(1, (size - len(begin) - len(end)) // len(middle)) + end

    return body


def chat(size: int, message_bytes: int = 700) -> bytes:
    """Return an ordinary conversation with escapes, commas and brackets in its text."""
    words = 'the quick, brown fox jumps over a lazy dog and says "no" to {it}\n'
    content = (words * 200)[:message_bytes]
    turns = max(1, size // (len(json.dumps(content)) + 38))
    messages = [{"role": ("user", "assistant")[turn % 2], "content": content} for turn in range(turns)]
    return json.dumps({"model": "m", "stream": True, "messages": messages}, separators=(",", ":")).encode()


def agent(size: int) -> bytes:
    """Return a conversation of an agent: tools, calls and results."""
    schema = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "enum": ["a", "b"]} for n in range(9)},
    }
    tools = [{"type": "function", "function": {"name": f"t{n}", "parameters": schema}} for n in range(40)]
    call = {"id": "c", "type": "function", "function": {"name": "t1", "arguments": '{"p1":"a","p2":[1,2]}'}}
    turn: list[object] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": '{"rows":[' + '{"a":1,"b":"x"},' * 20 + "]}"},
    ]
    turns = max(1, (size - len(json.dumps(tools))) // len(json.dumps(turn)))
    messages = [{"role": "user", "content": "go"}, *(turn * turns)]
    return json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()


def image(size: int) -> bytes:
    """Return a question about one large image."""
    data = base64.b64encode(random.Random(1).randbytes(size * 3 // 4)).decode()
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "text", "text": "Be brief."},
    ]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()


def ids(size: int) -> bytes:
    """Return token ids; a million of them are 7 MiB."""
    return json.dumps({"model": "m", "prompt": list(range(100_000, 100_000 + size // 8))}).encode()


def table(size: int) -> bytes:
    """Return one message that is a table of numbers: all commas stand in a string."""
    return json.dumps({"messages": [{"role": "user", "content": "1,2,[3],{4},\n" * (size // 14)}]}).encode()


def tools(size: int) -> bytes:
    """Return very many tools ahead of one message."""
    tool = {"type": "function", "function": {"name": "t", "parameters": {"a": [1, 2], "b": {}}}}
    return json.dumps(
        {"tools": [tool] * (size // 96), "messages": [{"role": "user", "content": "a"}]}
    ).encode()


_LEADS: Final = tuple(name for name in LEADS if name not in STORED)
"""A second `prompt` is no prompt at all, and the other references hold no values."""
CHAT: Final = '{"model":"m","messages":['
FAMILIES: Final[dict[str, Callable[[int], bytes]]] = {
    "chat": chat,
    "chat_short_messages": lambda size: chat(size, 40),
    "agent": agent,
    "image": image,
    "token_ids": ids,
    "table": table,
    "tools": tools,
    "dense_media": _filled('{"prompt":{"prompt_string":"x","multimodal_data":[', "0,", "]}}"),
    "media": _filled('{"prompt":{"prompt_string":"x","multimodal_data":[', f'"{"x" * 130}",', "]}}"),
    "members_of_a_prompt": _filled('{"prompt":{"prompt_string":"x"', ',"a":0', "}}", ""),
    "dense_images": _filled('{"text":"x","image_data":[', "0,", "]}"),
    "images": _filled('{"text":"x","image_data":[', f'"{"x" * 130}",', "]}"),
    "dense_tools": _filled('{"prompt":"x","tools":[', "0,", "]}"),
    "dense_leads": lambda size: (
        b'{"prompt":"x"%b}'
        % b"".join(_filled(f',"{name}":[', "0,", "]")(size // len(_LEADS)) for name in _LEADS)
    ),
    "objects_in_leads": lambda size: (
        b'{"prompt":"x"%b}'
        % b"".join(
            _filled(f',"{name}":[', '{"b":[1],"a":1},', "]", "{}")(size // len(_LEADS)) for name in _LEADS
        )
    ),
    "dense_salt": _filled('{"prompt":"x","extra_key":[', "0,", "]}"),
    "dense_adapter": _filled('{"prompt":"x","lora":[', "0,", "]}"),
    "arrays": _filled('{"prompt":[', "[],", "]}", "[]"),
    "arrays_aside": _filled('{"prompt":"a","x":[', "[],", "]}"),
    "arrays_in_model": _filled('{"model":[', "[],", '],"prompt":"a"}'),
    "arrays_in_arrays": _filled('{"prompt":[', "[[]],", "]}", "[]"),
    "objects": _filled('{"input":[', "{},", "]}", "{}"),
    "objects_in_parts": _filled(CHAT + '{"role":"user","content":[', "{},", "]}]}", "{}"),
    "objects_in_calls": _filled(CHAT + '{"role":"user","tool_calls":[', "{},", "]}]}", "{}"),
    "objects_aside": _filled('{"prompt":"a","x":[', '{"a":1},', "]}"),
    "strings": _filled('{"prompt":[', '"",', "]}", '""'),
    "string_parts": _filled(CHAT + '{"role":"user","content":[', '"",', "]}]}", '""'),
    "text_parts": _filled(CHAT + '{"role":"user","content":[', '{"type":"text","text":""},', "]}]}", '""'),
    "block_members": _filled(CHAT + '{"a":1', ',"b":[]', "}]}", ""),
    "blocks": _filled('{"input":[', '{"a":[1],"b":{}},', "]}", "{}"),
    "tool_results": _filled(
        CHAT + '{"role":"a","content":[', '{"type":"tool_result","content":[{}]},', "]}]}", '""'
    ),
    "messages": _filled(CHAT, '{"role":"a"},', "]}", "{}"),
    "messages_of_parts": _filled(CHAT, '{"role":"a","content":[""]},', "]}", "{}"),
    "messages_with_calls": _filled(CHAT, '{"role":"a","tool_calls":[{}]},', "]}", "{}"),
    "mixed_ids": _filled('{"prompt":["",', "1,", "]}"),
    "mixed_strings": _filled('{"prompt":[1,', '"",1,', "]}"),
    "lists_of_ids": _filled('{"prompt":[', "[1],", "]}", "[1]"),
    "lists_of_strings": _filled('{"prompt":[', '["",1],', "]}", '""'),
    "one_digit_ids": _filled('{"prompt":[', "1,", "]}"),
    "floats": _filled('{"prompt":[', "1.5e-9,", "]}"),
    "floats_aside": _filled('{"prompt":"a","x":[', "1e9,", "]}"),
    "keys": _filled("{", '"":1,', '"prompt":"a"}', ""),
    "keys_twice": _filled("{", '"model":1,', '"prompt":"a"}', ""),
    "models_twice": _filled("{", '"model":"a",', '"prompt":"a"}', ""),
    "prompts_twice": _filled("{", '"prompt":[1],', '"prompt":"a"}', ""),
    "escaped_keys": _filled("{", '"\\u006dodel":"a",', '"prompt":"a"}', ""),
    "escapes": _filled('{"prompt":"', "\\n", '"}', ""),
    "unicode_escapes": _filled('{"prompt":"', "\\u4e2d", '"}', ""),
    "escaped_quotes": _filled('{"prompt":"', '\\"', '"}', ""),
    "escaped_backslashes": _filled('{"prompt":"', "\\\\", '"}', ""),
    "escapes_in_a_key": _filled('{"', '\\"', '":1,"prompt":"a"}', ""),
    "two_byte_characters": _filled('{"prompt":"', "é", '"}', ""),
    "brackets_in_text": _filled('{"prompt":"', "[{", '"}', ""),
    "commas_in_texts": _filled('{"prompt":[', '",,,,,,,",', "]}", '""'),
    "commas_ahead_of_values": lambda size: _filled(
        CHAT + '{"role":"a","content":"' + "," * (size // 3) + '"},', "{},", "]}", "{}"
    )(size),
    "white_space": _filled('{"prompt":[', " ", "]}", ""),
    "one_long_number": _filled('{"model":', "9", ',"prompt":"a"}', ""),
    "depth": lambda size: b'{"x":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
    "shallow_depth": _filled('{"x":[', "[" * 60 + "]" * 60 + ",", "]}", "[]"),
    "open_brackets": lambda size: b'{"prompt":' + b"[" * size,
    "open_objects": lambda size: b'{"a":' * (size // 5),
    "quotes": lambda size: b'{"' + b'"' * size,
    "noise": lambda size: random.Random(1).randbytes(size),
}


def _empty_blocks(size: int) -> bytes:
    """Return deflate blocks that each rebuild their tables and carry no data, in gzip."""
    block = 0
    width = 0

    def put(value: int, bits: int) -> None:
        nonlocal block, width
        block |= value << width
        width += bits

    def code(value: int, bits: int) -> None:
        for bit in range(bits - 1, -1, -1):
            put(value >> bit & 1, 1)

    def zeros(count: int) -> None:
        while count >= 11:
            run = min(count, 138)
            code(0, 1)
            put(run - 11, 7)
            count -= run
        for _ in range(count):
            code(2, 2)

    put(0, 1)
    put(2, 2)
    put(29, 5)
    put(29, 5)
    put(14, 4)
    lengths = {18: 1, 1: 2, 0: 2}
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1):
        put(lengths.get(symbol, 0), 3)
    zeros(255)
    code(3, 2)
    code(3, 2)
    zeros(29)
    code(3, 2)
    code(3, 2)
    zeros(28)
    code(1, 1)
    eight = 0
    for number in range(8):
        eight |= block << (number * width)
    header = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    return header + eight.to_bytes(width, "little") * (size // width)


def _bomb(size: int) -> bytes:
    coder = zlib.compressobj(9, wbits=31)
    head = coder.compress(b'{"model":"m","prompt":"')
    zeros = b"0" * (1 << 20)
    return head + b"".join(coder.compress(zeros) for _ in range(size // 1000 + 1)) + coder.flush()


def _gzip(body: bytes) -> bytes:
    coder = zlib.compressobj(6, wbits=31)
    return coder.compress(body) + coder.flush()


def _stacked(size: int) -> bytes:
    return bytes(brotli.compress(_gzip(chat(size)), quality=3))


def _letters(size: int) -> bytes:
    """Return text that compresses badly: every byte costs a symbol of its own."""
    letters = random.Random(1).choices(b"abcdefghijklmnopqrstuvwxyz \\", k=size)
    return b'{"model":"m","prompt":"' + bytes(letters).replace(b"\\", b"\\n") + b'"}'


CODED: Final[dict[str, tuple[str, Callable[[int], bytes]]]] = {
    "gzip_chat": ("gzip", lambda size: _gzip(chat(size))),
    "gzip_letters": ("gzip", lambda size: _gzip(_letters(size))),
    "gzip_bomb": ("gzip", _bomb),
    "gzip_empty_blocks": ("gzip", _empty_blocks),
    "gzip_stored_nothing": ("deflate", lambda size: b"\0\0\0\xff\xff" * (size // 5)),
    "gzip_members": ("gzip", lambda size: _gzip(b"") * (size // 20)),
    "br_chat": ("br", lambda size: brotli.compress(chat(size), quality=5)),
    "br_letters": ("br", lambda size: brotli.compress(_letters(size), quality=5)),
    "stacked_chat": ("gzip, br", _stacked),
}
"""Name to content coding and body."""
