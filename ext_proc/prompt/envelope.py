"""A body's top level: its prompt, the leads ahead of it, and the fields that keep equal prompts apart.

The names of every engine and API are read, and the path decides between several. Only needed strings are
decoded; a key that comes twice is an error.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec
from xxhash import xxh3_128_hexdigest

from ext_proc.prompt.prompts import RoledMessage  # noqa: TC001 - msgspec reads annotations
from ext_proc.prompt.text import ABSENT, LIST, OBJECT, QUOTE, canonical, is_null
from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
ADAPTERS: Final = ("lora_path", "adapter_id", "lora_name", "lora_task_id", "lora")
_LONG_NAME_BYTES: Final = 4096
MAX_SESSION_CHARS: Final = 256
"""A longer name of a session stands as its digest."""
_COUNTED_MEMBERS: Final = 2
"""Members of type `Counted`: a third occurrence is a key that came twice."""
_SESSION_MEMBER: Final = "session_member"


class Counted:
    """A value whose every occurrence is counted: JSON lets a key come twice."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Members(msgspec.Struct, gc=False):
    """The top-level members that count, apart from messages."""

    model: Counted | msgspec.UnsetType = msgspec.UNSET
    cache_salt: Counted | msgspec.UnsetType = msgspec.UNSET
    extra_key: msgspec.Raw = ABSENT
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
    # These decide whether a request may be repeated.
    stream: msgspec.Raw = ABSENT
    store: msgspec.Raw = ABSENT
    background: msgspec.Raw = ABSENT
    # Chat templates read these in addition to messages and tools.
    chat_template_kwargs: msgspec.Raw = ABSENT
    add_generation_prompt: msgspec.Raw = ABSENT
    continue_final_message: msgspec.Raw = ABSENT


class Envelope(Members):
    """With messages as they are spelled."""

    messages: msgspec.Raw = ABSENT


class Chat(Members):
    """With messages that are decoded in the same pass."""

    messages: list[RoledMessage] = []


class _Strings(msgspec.Struct, gc=False):
    """The members that are decoded, as types that let nothing else be built."""

    model: str | None = None
    cache_salt: str | None = None


class _Parameters(msgspec.Struct, gc=False):
    """TGI's and Triton's inner object, as far as it names an adapter."""

    adapter_id: msgspec.Raw = ABSENT
    lora_name: msgspec.Raw = ABSENT


_HEAD_BYTES: Final = 4096
"""Of a body, in which the messages of most chats begin."""
_OTHERS: Final = tuple(key for key in PROMPTS if key != "messages")
_others_of: Final = attrgetter(*_OTHERS)
_NO_OTHERS: Final = (ABSENT,) * len(_OTHERS)
_prompts_of: Final = attrgetter(*PROMPTS)
_leads_of: Final = attrgetter(*LEADS)
_adapters_of: Final = attrgetter(*ADAPTERS)
_NO_LEADS: Final = (ABSENT,) * len(LEADS)
_NO_ADAPTERS: Final = (ABSENT,) * len(ADAPTERS)
_STRINGS: Final = msgspec.json.Decoder(_Strings)
_PARAMETERS: Final = msgspec.json.Decoder(_Parameters)


_Kind = TypeVar("_Kind", bound=Members)


class EnvelopeReader:
    """Decodes top levels. Single-threaded."""

    def __init__(self, session_fields: Sequence[str] = ()) -> None:
        """`session_fields` name members that may be read as a session; inner ones with dots."""
        self._counted = 0
        self._decoder = msgspec.json.Decoder(_with_members(Envelope, session_fields), dec_hook=self._count)
        self._chats = msgspec.json.Decoder(_with_members(Chat, session_fields), dec_hook=self._count)

    def read_chat(self, body: bytes) -> Chat | None:
        """Return the members of a chat whose prompt is its messages, each with a role; otherwise None."""
        # All other bodies would be decoded twice.
        if body.find(b'"messages"', 0, _HEAD_BYTES) < 0:
            return None
        self._counted = 0
        try:
            chat = self._chats.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return None
        return chat if chat.messages and _others_of(chat) == _NO_OTHERS and self._once(chat) else None

    def read(self, body: bytes, *, rich: bool) -> Envelope:
        """Return the top-level members. Raises for two models or salts, and for a body that is no object.

        `rich`: the body has many values, so model and salt are checked to be strings before any is built.
        """
        if rich:
            _STRINGS.decode(body)
        self._counted = 0
        envelope = self._decoder.decode(body)
        if not self._once(envelope):
            raise UnreadableError(Unreadable.AMBIGUOUS)
        return envelope

    def _once(self, read: Members) -> bool:
        """Return whether model and salt were there once at most."""
        return self._counted <= (read.model is not msgspec.UNSET) + (read.cache_salt is not msgspec.UNSET)

    def _count(self, _: type, value: object) -> Counted:
        self._counted += 1
        if self._counted > _COUNTED_MEMBERS:
            raise UnreadableError(Unreadable.AMBIGUOUS)
        return Counted(value)


def _session_members(fields: Sequence[str]) -> dict[str, str]:
    """Return attribute by outermost member of the sessions' fields."""
    names = dict.fromkeys(field.partition(".")[0] for field in fields)
    return {
        name: name if name in Envelope.__struct_fields__ else f"{_SESSION_MEMBER}{number}"
        for number, name in enumerate(names)
    }


def _with_members(kind: type[_Kind], fields: Sequence[str]) -> type[_Kind]:
    """Return the kind of members with the outermost ones of the sessions' fields."""
    names = {attribute: name for name, attribute in _session_members(fields).items() if attribute != name}
    if not names:
        return kind
    more = [(attribute, msgspec.Raw, ABSENT) for attribute in names]
    return cast("type[_Kind]", msgspec.defstruct(kind.__name__, more, bases=(kind,), rename=names, gc=False))


class SessionFields:
    """Reads the string at the first body field that has one, by names that the operator chooses."""

    def __init__(self, fields: Sequence[str]) -> None:
        """`fields` are `prompt_cache_key` or `metadata.user_id`, say; at least one."""
        members = _session_members(fields)
        self._members = attrgetter(*members.values())
        self._none: object = (ABSENT,) * len(members) if len(members) > 1 else ABSENT
        self._fields = [_SessionField(members[name], inner) for name, _, inner in map(_parted, fields)]

    def of(self, envelope: Members) -> str:
        """Return the string; "" where there is none."""
        # Most bodies have none of them.
        if self._members(envelope) == self._none:
            return ""
        return next((session for field in self._fields if (session := field.of(envelope))), "")


def _parted(field: str) -> tuple[str, str, str]:
    return field.partition(".")


class _SessionField:
    """One of them."""

    def __init__(self, attribute: str, inner: str) -> None:
        self._member = attribute
        self._inner = inner.split(".") if inner else []
        value: type = str
        for key in reversed(self._inner):
            member = [("value", value | None, None)]
            value = msgspec.defstruct("Holder", member, rename={"value": key}, gc=False)
        # Of the member nothing is built but the string in it.
        self._decoder: msgspec.json.Decoder[object] = msgspec.json.Decoder(value)

    def of(self, envelope: Members) -> str:
        raw = getattr(envelope, self._member)
        if raw is ABSENT or isinstance(raw, msgspec.UnsetType):
            return ""
        if isinstance(raw, Counted):
            value = raw.value
        else:
            try:
                value = self._decoder.decode(raw)
            except (msgspec.DecodeError, RecursionError):
                return ""
        for _ in self._inner:
            value = getattr(value, "value", None)
        if not isinstance(value, str):
            return ""
        return value if len(value) <= MAX_SESSION_CHARS else xxh3_128_hexdigest(value.encode())


@lru_cache(1024)
def plain_path(path: str) -> str:
    """Return a path without its query; raises where nothing is cached."""
    path = path.partition("?")[0].rstrip("/")
    if path.endswith(_NOT_CACHED):
        raise UnreadableError(Unreadable.NO_PROMPT)
    return path


def prompt_key(envelope: Envelope, path: str, open_key: str | None = None) -> str | None:
    """Return the key of the prompt, None without one; `open_key` is of the value that a cut goes through.

    `path` is `plain_path`'s. Raises where several could be meant.
    """
    if open_key is None and _others_of(envelope) == _NO_OTHERS:
        return None if is_null(envelope.messages) else "messages"
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


def leads_of(envelope: Members) -> list[tuple[str, msgspec.Raw]]:
    """Return what leads and is no null, by name, in the order in which it counts."""
    values = _leads_of(envelope)
    if values == _NO_LEADS:
        return []
    return [
        (name, raw) for name, raw in zip(LEADS, values, strict=True) if raw is not ABSENT and not is_null(raw)
    ]


def is_reference(envelope: Members, open_key: str | None = None) -> bool:
    """Whether `prompt` is an object next to another prompt: the Responses API's stored template."""
    view = memoryview(envelope.prompt)
    return bool(view) and view[0] == OBJECT and (open_key == "input" or not is_null(envelope.input))


def body_model_of(envelope: Members) -> str | None:
    """Return the model that the body names; None: it names none."""
    return _string(envelope.model)


def salt_of(envelope: Members) -> str:
    """Return vLLM's `cache_salt` and SGLang's `extra_key`, which keep equal prompts apart."""
    salt = _string(envelope.cache_salt) or ""
    return (
        salt
        if envelope.extra_key is ABSENT or is_null(envelope.extra_key)
        else f"{salt}\0{_plain(envelope.extra_key)}"
    )


def _string(counted: Counted | msgspec.UnsetType) -> str | None:
    if isinstance(counted, msgspec.UnsetType) or counted.value is None:
        return None
    if not isinstance(counted.value, str):
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    return counted.value


def adapter_of(envelope: Members) -> str:
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
