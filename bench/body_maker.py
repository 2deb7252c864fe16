"""Request bodies made from a seed: legal ones of every API, then damaged, encoded and cut.

The same seed and number make the same body, whatever else is made.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import sys
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

LETTERS: Final = 'abc ,:"\\{}[]/é中😀\n\t\x00\x1e0'
TOKENS: Final = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"\\ud835", b"null", b"true", b"NaN", b"-1",
    b"1e999", b"9" * 5000, b"\xff", b"\xef\xbb\xbf", b"\x00", b"\r\n", b"[" * 2000, b'{"a":' * 200,
    b'"model":"x",', b'"messages":[],', b'"prompt":', b'"role":', b'"content":[', b'"cache_salt":1,',
)  # fmt: skip
PATHS: Final = (
    "", "/v1/chat/completions", "/v1/completions", "/v1/responses?x=1", "/v1/messages", "/generate",
    "/v2/models/m/generate", "/completion", "/tokenize", "/v1/embeddings", "/%00/v2/models/%ff/generate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    """One request's body and what goes with it."""

    body: bytes
    coding: str
    path: str
    legal: bool
    """Nothing was damaged: a prompt must be read."""
    plain: bytes
    """The body before it was encoded."""


def make(seed: int, number: int) -> Made:
    """Return body `number` of `seed`."""
    rng = random.Random(f"{seed}:{number}")
    body, path = rng.choice(_APIS)(rng)
    spelled = _spelled(rng, body)
    legal = rng.random() < 0.3
    if not legal:
        path = rng.choice(PATHS) if rng.random() < 0.5 else path
        for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
            spelled = rng.choice(_DAMAGES)(rng, spelled)
    coding, encode = ("", bytes) if rng.random() < 0.6 else rng.choice(_CODINGS)
    encoded = encode(spelled)
    if not legal and coding and rng.random() < 0.5:
        encoded = rng.choice((_flip, _shorten, _double))(rng, encoded)
    return Made(encoded, coding, path, legal and coding in _ENCODINGS, spelled)


def _spelled(rng: random.Random, body: dict[str, Any]) -> bytes:
    separators = rng.choice(((",", ":"), (", ", ": "), (" ,\n", "\t: ")))
    text = json.dumps(body, ensure_ascii=rng.random() < 0.5, separators=separators)
    return text.encode()


def _text(rng: random.Random) -> str:
    # Never empty: a prompt of nothing has no prompt.
    return "t" + "".join(rng.choices(LETTERS, k=rng.choice((0, 1, 5, 20, 80))))


def _id_list(rng: random.Random) -> list[int]:
    return [rng.randrange(200_000) for _ in range(rng.randrange(1, 30))]


def _some(rng: random.Random, make_one: Callable[[random.Random], Any], most: int = 4) -> list[Any]:
    return [make_one(rng) for _ in range(rng.randrange(1, most + 1))]


def _media(rng: random.Random) -> dict[str, Any]:
    data = base64.b64encode(rng.randbytes(rng.randrange(60))).decode()
    return rng.choice(
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://x.test/1.png"}},
            {"type": "input_image", "image_url": "https://x.test/1.png"},
            {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
            {"type": "file", "file": {"file_data": data}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        )
    )


def _part(rng: random.Random) -> Any:
    if rng.random() < 0.3:
        return _media(rng)
    return {"type": rng.choice(("text", "input_text", "output_text")), "text": _text(rng)}


def _content(rng: random.Random) -> Any:
    return _text(rng) if rng.random() < 0.6 else _some(rng, _part)


def _message(rng: random.Random) -> dict[str, Any]:
    role = rng.choice(("system", "developer", "user", "assistant", "tool", "critic"))
    message: dict[str, Any] = {"role": role, "content": _content(rng)}
    if role == "assistant" and rng.random() < 0.5:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        message |= {"content": None, "tool_calls": [call] * rng.randrange(1, 3)}
    if role == "tool":
        message["tool_call_id"] = _text(rng)
    if rng.random() < 0.2:
        message = dict(reversed(message.items()))
    return message


def _turn(rng: random.Random) -> dict[str, Any]:
    blocks = (
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1, {"b": None}]}},
        {"type": "tool_result", "tool_use_id": "t", "content": _content(rng)},
        {"type": "thinking", "thinking": _text(rng), "signature": "s"},
        {"type": "text", "text": _text(rng), "cache_control": {"type": "ephemeral"}},
    )
    content = _text(rng) if rng.random() < 0.5 else rng.choices(blocks, k=rng.randrange(1, 4))
    return {"role": rng.choice(("user", "assistant")), "content": content}


def _item(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        (
            {"role": "user", "content": _content(rng)},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": _text(rng)},
            {"type": "reasoning", "summary": [], "encrypted_content": None},
        )
    )


def _tools(rng: random.Random) -> list[Any]:
    schema = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", _text(rng)]}}}
    return _some(rng, lambda _: {"type": "function", "function": {"name": "f", "parameters": schema}})


def _rest(rng: random.Random) -> dict[str, Any]:
    fields = {
        "model": "m", "stream": True, "temperature": 0.5, "max_tokens": 5, "cache_salt": "s", "user": "u",
        "metadata": {"user_id": _text(rng)}, "stop": ["a", "b"], "lora_path": "l", "seed": 2**70,
        "stream_options": {"include_usage": True}, "logit_bias": {"1": -1}, "extra_key": "k",
    }  # fmt: skip
    return {name: fields[name] for name in rng.sample(sorted(fields), rng.randrange(6))}


def _joined(
    rng: random.Random, prompted: dict[str, Any], leads: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a body: what leads ahead of the prompt, the rest on either side."""
    ahead = {name: value for name, value in (leads or {}).items() if rng.random() < 0.4}
    return {**ahead, **prompted, **_rest(rng)} if rng.random() < 0.5 else {**ahead, **_rest(rng), **prompted}


def _chat(rng: random.Random) -> tuple[dict[str, Any], str]:
    return _joined(rng, {"messages": _some(rng, _message)}, {"tools": _tools(rng)}), "/v1/chat/completions"


def _anthropic(rng: random.Random) -> tuple[dict[str, Any], str]:
    system = _text(rng) if rng.random() < 0.5 else [{"type": "text", "text": _text(rng)}]
    return _joined(
        rng, {"messages": _some(rng, _turn)}, {"tools": _tools(rng), "system": system}
    ), "/v1/messages"


def _completions(rng: random.Random) -> tuple[dict[str, Any], str]:
    forms: tuple[Callable[[random.Random], Any], ...] = (
        _text,
        lambda rng: _some(rng, _text),
        _id_list,
        lambda rng: _some(rng, _id_list),
        lambda rng: [*_id_list(rng), _text(rng), 5],
    )
    name, path = rng.choice(
        (("prompt", "/v1/completions"), ("prompt", "/completion"), ("input", "/v1/embeddings"))
    )
    return _joined(rng, {name: rng.choice(forms)(rng)}), path


def _responses(rng: random.Random) -> tuple[dict[str, Any], str]:
    prompt: dict[str, Any] = {"input": _text(rng) if rng.random() < 0.5 else _some(rng, _item)}
    if rng.random() < 0.3:
        prompt |= {"text": {"format": {"type": "text"}}}
    leads = {
        "previous_response_id": "resp_1",
        "prompt": {"id": "p"},
        "tools": _tools(rng),
        "instructions": "i",
    }
    return _joined(rng, prompt, leads), "/v1/responses"


def _generate(rng: random.Random) -> tuple[dict[str, Any], str]:
    forms: tuple[tuple[str, Callable[[random.Random], Any], str], ...] = (
        ("inputs", _text, "/generate"),
        ("prompt", _text, "/generate"),
        ("text", _text, "/generate"),
        ("text", lambda rng: _some(rng, _text), "/generate"),
        ("input_ids", _id_list, "/generate"),
        ("input_ids", lambda rng: _some(rng, _id_list), "/generate"),
        ("text_input", _text, "/v2/models/m/generate"),
    )
    name, form, path = rng.choice(forms)
    rest = {"parameters": {"adapter_id": "a", "max_new_tokens": 5}, "sampling_params": {"n": 1}}
    return _joined(rng, {name: form(rng)}, {"image_data": ["https://x.test/1.png"]}) | rest, path


_APIS: Final = (_chat, _chat, _anthropic, _completions, _responses, _generate)


def _flip(rng: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.randrange(1, 4)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _shorten(rng: random.Random, body: bytes) -> bytes:
    return body[: rng.randrange(len(body) + 1)]


def _double(rng: random.Random, body: bytes) -> bytes:
    begin, end = sorted((rng.randrange(len(body) + 1), rng.randrange(len(body) + 1)))
    return body[:end] + body[begin:]


def _drop(rng: random.Random, body: bytes) -> bytes:
    begin, end = sorted((rng.randrange(len(body) + 1), rng.randrange(len(body) + 1)))
    return body[:begin] + body[end:]


def _insert(rng: random.Random, body: bytes) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + rng.choice(TOKENS) + body[at:]


def _after_mark(rng: random.Random, body: bytes) -> bytes:
    """Insert where JSON can go on: behind a bracket, a comma or a colon."""
    marks = [at + 1 for at, byte in enumerate(body) if byte in b"[{,:"]
    at = rng.choice(marks) if marks else 0
    return body[:at] + rng.choice(TOKENS) + body[at:]


def _recode(rng: random.Random, body: bytes) -> bytes:
    text = body.decode("utf-8", "replace")
    return text.encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7")), "replace")


def _wrap(rng: random.Random, body: bytes) -> bytes:
    begin, end = rng.choice(
        ((b"[", b"]"), (b'{"messages":', b"}"), (b"\n\t", b" "), (b"", b"{}"), (b"1", b""))
    )
    return begin + body + end


def _noise(rng: random.Random, _: bytes) -> bytes:
    return rng.randbytes(rng.randrange(50)) if rng.random() < 0.5 else rng.choice(TOKENS)


_DAMAGES: Final = (_flip, _shorten, _double, _drop, _insert, _after_mark, _after_mark, _recode, _wrap, _noise)


def _raw_deflate(body: bytes) -> bytes:
    coder = zlib.compressobj(1, wbits=-15)
    return coder.compress(body) + coder.flush()


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, 1)


def _brotli(body: bytes) -> bytes:
    return bytes(brotli.compress(body, quality=1))


_CODINGS: Final[tuple[tuple[str, Callable[[bytes], bytes]], ...]] = (
    ("gzip", _gzip),
    ("X-GZIP", _gzip),
    ("gzip", lambda body: _gzip(body[:9]) + _gzip(body[9:])),
    ("deflate", lambda body: zlib.compress(body, 1)),
    ("deflate", _raw_deflate),
    ("br", _brotli),
    ("zstd", zstd.compress),
    ("identity", bytes),
    ("gzip, br", lambda body: _brotli(_gzip(body))),
    ("zstd,gzip", lambda body: _gzip(zstd.compress(body))),
    ("snappy", bytes),
    ("gzip", bytes),
    (",".join(["gzip"] * 9), bytes),
)
_ENCODINGS: Final = frozenset(("", "X-GZIP", "deflate", "br", "zstd", "identity", "gzip, br", "zstd,gzip"))
