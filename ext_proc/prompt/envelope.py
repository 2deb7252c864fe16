"""A body's top level: which prompt it holds, what stands ahead of it, and what makes its prefix another one.

Every engine's and API's names are read, and the path decides where several could be meant. Nothing but
strings that are needed is decoded; a key that comes twice is noticed.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Final
from urllib.parse import unquote

import msgspec
from xxhash import xxh3_128_hexdigest

from ext_proc.prompt.text import ABSENT, LIST, OBJECT, QUOTE, canonical, is_null
from ext_proc.prompt.unreadable import Unreadable, UnreadableError

LEADS: Final = (
    "chat_template",
    "documents",
    "image_data",
    "multimodal_data",
    "features",
    "content_parts",
    "tools",
    "functions",
    "system",
    "instructions",
    "prompt",
    "conversation",
    "previous_response_id",
)
"""What counts ahead of the prompt, in the order in which it counts. `prompt` only where it is a reference."""
STORED: Final = frozenset(("prompt", "conversation", "previous_response_id"))
"""Leads that refer to what the engine has stored: in its prompt that stands behind tools and instructions."""
PROMPTS: Final = ("messages", "prompt", "input", "inputs", "text", "input_ids", "token_ids", "text_input")
_READ_AT: Final = (
    ("/chat/completions", ("messages",)),
    ("/completions", ("prompt",)),
    ("/completion", ("prompt",)),
    ("/responses", ("input",)),
    ("/messages", ("messages",)),
)
"""What the engine reads at paths with this ending; elsewhere two prompts are ambiguous."""
_NOT_CACHED: Final = (
    "/tokenize", "/detokenize", "/count_tokens", "/input_tokens", "/apply-template", "/rerank", "/score",
    "/render", "/derender",
)  # fmt: skip
_MODEL_IN_PATH: Final = re.compile(r"/(?:v2/models|openai/deployments)/([^/?]+)/")
ADAPTERS: Final = ("lora_path", "adapter_id", "lora_name", "lora_task_id", "lora")
_LONG_NAME_BYTES: Final = 4096
_MOST_SEEN: Final = 2
"""Members of type `Seen`: a third one is a key that came twice."""


class Seen:
    """A value whose every occurrence is counted: JSON lets a key come twice."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Envelope(msgspec.Struct, gc=False):
    """The top-level members that count."""

    model: Seen | msgspec.UnsetType = msgspec.UNSET
    cache_salt: Seen | msgspec.UnsetType = msgspec.UNSET
    extra_key: msgspec.Raw = ABSENT
    messages: msgspec.Raw = ABSENT
    prompt: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT
    inputs: msgspec.Raw = ABSENT
    text: msgspec.Raw = ABSENT
    input_ids: msgspec.Raw = ABSENT
    token_ids: msgspec.Raw = ABSENT
    text_input: msgspec.Raw = ABSENT
    conversation: msgspec.Raw = ABSENT
    previous_response_id: msgspec.Raw = ABSENT
    chat_template: msgspec.Raw = ABSENT
    documents: msgspec.Raw = ABSENT
    image_data: msgspec.Raw = ABSENT
    multimodal_data: msgspec.Raw = ABSENT
    features: msgspec.Raw = ABSENT
    content_parts: msgspec.Raw = ABSENT
    tools: msgspec.Raw = ABSENT
    functions: msgspec.Raw = ABSENT
    system: msgspec.Raw = ABSENT
    instructions: msgspec.Raw = ABSENT
    lora_path: msgspec.Raw = ABSENT
    adapter_id: msgspec.Raw = ABSENT
    lora_name: msgspec.Raw = ABSENT
    lora_task_id: msgspec.Raw = ABSENT
    lora: msgspec.Raw = ABSENT
    parameters: msgspec.Raw = ABSENT


class _Strings(msgspec.Struct, gc=False):
    """The members that are decoded, as types that let nothing else be built."""

    model: str | None = None
    cache_salt: str | None = None


class _Parameters(msgspec.Struct, gc=False):
    """TGI's and Triton's inner object, as far as it names an adapter."""

    adapter_id: msgspec.Raw = ABSENT
    lora_name: msgspec.Raw = ABSENT


_prompts_of: Final = attrgetter(*PROMPTS)
_leads_of: Final = attrgetter(*LEADS)
_adapters_of: Final = attrgetter(*ADAPTERS)
_NO_LEADS: Final = (ABSENT,) * len(LEADS)
_NO_ADAPTERS: Final = (ABSENT,) * len(ADAPTERS)
_STRINGS: Final = msgspec.json.Decoder(_Strings)
_PARAMETERS: Final = msgspec.json.Decoder(_Parameters)


def read_envelope(body: bytes, *, rich: bool, kind: type[Envelope] = Envelope) -> Envelope:
    """Return the top-level members. Raises for two models or salts, and where either is no string.

    `kind` may be one with more members. `rich`: the body has many values, so none is built before it is known
    to be a string.
    """
    if rich:
        _STRINGS.decode(body)
    seen = 0

    def count(_: type, value: object) -> Seen:
        nonlocal seen
        seen += 1
        if seen > _MOST_SEEN:
            raise UnreadableError(Unreadable.AMBIGUOUS)
        return Seen(value)

    envelope = msgspec.json.Decoder(kind, dec_hook=count).decode(body)
    if seen > (envelope.model is not msgspec.UNSET) + (envelope.cache_salt is not msgspec.UNSET):
        raise UnreadableError(Unreadable.AMBIGUOUS)
    return envelope


def prompt_key(envelope: Envelope, path: str, open_key: str | None = None) -> str | None:
    """Return the key of the prompt, None without one; `open_key` is of the value that a cut goes through.

    Raises where several could be meant, and for a path at which nothing is cached.
    """
    if path:
        path = path.partition("?")[0].rstrip("/")
        if path.endswith(_NOT_CACHED):
            raise UnreadableError(Unreadable.NO_PROMPT)
    present = [
        key
        for key, raw in zip(PROMPTS, _prompts_of(envelope), strict=True)
        if key == open_key or (raw is not ABSENT and _is_prompt(envelope, key, raw, open_key))
    ]
    if len(present) > 1:
        for ending, keys in _READ_AT:
            if path.endswith(ending):
                present = [key for key in present if key in keys]
                break
    if len(present) > 1:
        raise UnreadableError(Unreadable.AMBIGUOUS)
    return present[0] if present else None


def _is_prompt(envelope: Envelope, key: str, raw: msgspec.Raw, open_key: str | None) -> bool:
    if is_null(raw):
        return False
    if key == "text":
        # The Responses API's `text` says how the answer is formatted.
        return memoryview(raw)[0] in (QUOTE, LIST)
    return key != "prompt" or not is_reference(envelope, open_key)


def leads_of(envelope: Envelope) -> list[tuple[str, msgspec.Raw]]:
    """Return what leads and is no null, by name, in the order in which it counts."""
    values = _leads_of(envelope)
    if values == _NO_LEADS:
        return []
    return [
        (name, raw) for name, raw in zip(LEADS, values, strict=True) if raw is not ABSENT and not is_null(raw)
    ]


def is_reference(envelope: Envelope, open_key: str | None = None) -> bool:
    """Tell whether `prompt` is an object beside another prompt: the Responses API's stored template."""
    view = memoryview(envelope.prompt)
    return bool(view) and view[0] == OBJECT and (open_key == "input" or not is_null(envelope.input))


def model_of(envelope: Envelope, path: str) -> str | None:
    """Return the model: the path's where it names one (Triton, Azure), else the body's."""
    found = _MODEL_IN_PATH.search(path) if path else None
    body_model = _string(envelope.model)
    return body_model if found is None else unquote(found.group(1))


def salt_of(envelope: Envelope) -> str:
    """Return vLLM's `cache_salt` and SGLang's `extra_key`, which keep equal prompts apart."""
    salt = _string(envelope.cache_salt) or ""
    return (
        salt
        if envelope.extra_key is ABSENT or is_null(envelope.extra_key)
        else f"{salt}\0{_plain(envelope.extra_key)}"
    )


def _string(seen: Seen | msgspec.UnsetType) -> str | None:
    if isinstance(seen, msgspec.UnsetType) or seen.value is None:
        return None
    if not isinstance(seen.value, str):
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    return seen.value


def adapter_of(envelope: Envelope) -> str:
    """Return the LoRA adapter that a field of its own names: SGLang, TGI, Triton, llama.cpp."""
    values = _adapters_of(envelope)
    if values != _NO_ADAPTERS:
        for raw in values:
            if raw is not ABSENT and not is_null(raw):
                return _plain(raw)
    if envelope.parameters is not ABSENT and memoryview(envelope.parameters)[0] == OBJECT:
        inner = _PARAMETERS.decode(envelope.parameters)
        for raw in (inner.adapter_id, inner.lora_name):
            if not is_null(raw):
                return _plain(raw)
    return ""


def _plain(raw: msgspec.Raw) -> str:
    """Return a string's text, other JSON as spelled without white space, a digest of what is long."""
    if len(memoryview(raw)) > _LONG_NAME_BYTES:
        return xxh3_128_hexdigest(memoryview(raw))
    if memoryview(raw)[0] == QUOTE:
        return msgspec.json.decode(raw, type=str)
    return canonical(raw).decode()
