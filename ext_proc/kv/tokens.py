"""Request bodies to the token ids that the engine will make of them, with the model's own tokenizer.

Token ids in the body (completions, SGLang's `input_ids`, vLLM's `token_ids`) are taken as they stand. Text
needs the pool's `tokenizer`, and chats its `chat_template` as well; what an engine would render in ways of
its own (images, a template in the request, other APIs) is not read, and routing goes by its own estimate.

Tokenising 200 KB takes about 90 ms, and Python's lock is held meanwhile. So text is cut into segments where
a tokenizer certainly begins anew, and each segment's ids are remembered: a conversation's next turn, or the
next question about a document, costs only what is new. Of what is new, `INLINE_CHARS` are tokenised at
once; the rest goes to a thread in a call that lets go of the lock, for next time, and until then the prompt
counts by its known leading part.

Whatever stands in a body, reading it takes about 2 ms at most: of what is dense or long, the leading part is
read or nothing, and routing goes by its own estimate.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from xxhash import xxh3_128_digest

from ext_proc.kv.lookup import MAX_IDS, PromptTokens
from ext_proc.kv.segments import Cutter
from ext_proc.kv.template import MAX_JSON_MARKS, ChatTemplate
from ext_proc.kv.tools import TemplateFailedError, ToolsMemory, marks_of
from ext_proc.prompt.text import ABSENT, is_null

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from ext_proc.prompt.envelope import Envelope

INLINE_CHARS: Final = 2000
"""About 2 ms of tokenising on a slow core, if there is no space in them."""
MAX_MARKS: Final = 12_288
"""Commas and opening brackets of a chat that is rendered, those in strings included."""
MAX_SEGMENTS: Final = 1536
"""Of a prompt's text, of which each chat message has two or more."""
MAX_CACHED_TOKENS: Final = 4_000_000
"""16 MiB of ids."""
MAX_WAITING_CHARS: Final = 2_000_000
_CHARS_PER_TOKEN: Final = 4.0
_BATCH_CHARS: Final = 65_536
_CALL_CHARS: Final = 40
"""What a call of the tokenizer costs beside its text's characters, in characters."""

_QUOTE, _LIST, _NULL = b'"[n'
_COMMA: Final = ord(",")
_IDS: Final = re.compile(rb"\[[ \t\r\n]*+(\[[0-9, \t\r\n]*+\])[ \t\r\n]*+\]|(\[[0-9, \t\r\n]*+\])")
"""A list of ids, alone or as the only one in a list."""

_READ_OF_CHATS: Final = (
    "messages", "prompt", "input_ids", "token_ids", "text", "tools", "chat_template_kwargs",
    "add_generation_prompt", "chat_template", "documents", "system", "continue_final_message",
)  # fmt: skip
"""What engines and templates read of a chat."""

_value: Final = msgspec.json.Decoder().decode
_string: Final = msgspec.json.Decoder(str).decode
_only_string: Final = msgspec.json.Decoder(tuple[str]).decode
_numbers: Final = msgspec.json.Decoder(list[int]).decode
_FAULTS: Final = (msgspec.DecodeError, RecursionError, ValueError, OverflowError)


class PoolReader:
    """Reads the prompts of one pool. Single-threaded, but for `tokenise`, which any thread may call."""

    reads_text = True

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._tools = ToolsMemory()
        self._cutter = Cutter.of(tokenizer)
        self._start = _start_of_text(tokenizer)
        self._cache: OrderedDict[bytes, NDArray[np.uint32]] = OrderedDict()
        self._cached_tokens = 0
        self._waiting: deque[str] = deque()
        self._waiting_keys: set[bytes] = set()
        self._waiting_chars = 0
        self.on_waiting: Callable[[], None] = lambda: None
        """Called when there is something to `take_waiting`."""

    @classmethod
    def load(cls, tokenizer_path: Path, template_path: Path | None) -> PoolReader:
        """Load from files: `tokenizer.json`, and a template's file or a `tokenizer_config.json`.

        Raises:
            ImportError: the extra `kv-events` is not installed.
            Exception: a file is missing or wrong; the libraries raise no common class.
        """
        # A pool of threads of its own would contend with the engines' or Envoy's for the host's cores.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        from tokenizers import Tokenizer  # noqa: PLC0415 (an extra)

        template = None if template_path is None else ChatTemplate.load(template_path)
        return cls(Tokenizer.from_file(str(tokenizer_path)), template)

    def read(self, envelope: Envelope) -> PromptTokens | None:
        """Return the prompt's tokens; None where the engine's tokens cannot be known. Never raises."""
        try:
            if not is_null(envelope.messages):
                return self._chat(envelope)
            prompt = _prompt_of(envelope)
            kind = memoryview(prompt)[0] if prompt else 0
            if kind == _QUOTE:
                return self._text(_string(prompt), self._start)
            if kind != _LIST:
                return None
            return ids_of(prompt) or self._text(_only_string(prompt)[0], self._start)
        except _FAULTS:
            return None

    def _chat(self, envelope: Envelope) -> PromptTokens | None:
        raws = {name: raw for name in _READ_OF_CHATS if (raw := getattr(envelope, name)) is not ABSENT}
        marks = {name: marks_of(raw) for name, raw in raws.items()}
        if self._template is None or sum(marks.values()) > MAX_MARKS:
            return None
        as_json = marks.get("tools", 0) + marks.get("chat_template_kwargs", 0)
        if as_json > MAX_JSON_MARKS:
            return None
        try:
            values = {n: self._tools.of(raw) if n == "tools" else _value(raw) for n, raw in raws.items()}
            text = self._template.render(values, as_json)
        except TemplateFailedError:
            return None
        return self._text(text, ())

    def _text(self, text: str, start: Sequence[int]) -> PromptTokens:
        parts: list[NDArray[np.uint32]] = [np.array(start, dtype=np.uint32)]
        left, known, tokens, whole = INLINE_CHARS, 0, 0, True
        for segment in islice(self._cutter.segments(text), MAX_SEGMENTS):
            if tokens > MAX_IDS:
                break
            key = xxh3_128_digest(segment.encode("utf-8", "surrogatepass"))
            ids = self._cache.get(key)
            if ids is not None:
                self._cache.move_to_end(key)
            elif whole and len(segment) <= left:
                left -= len(segment) + _CALL_CHARS
                ids = self.tokenise([segment])[0]
                self._keep(key, ids)
            else:
                # Past the first unknown segment the rest is only asked to be known next time.
                whole = False
                self._wait(key, segment)
                continue
            if whole:
                parts.append(ids)
                known += len(segment)
                tokens += len(ids)
        ids = np.concatenate(parts)
        total = len(ids) + int((len(text) - known) / _CHARS_PER_TOKEN)
        whole = known == len(text) and len(ids) <= MAX_IDS
        return PromptTokens(ids[:MAX_IDS].astype(np.uint64), whole, total)

    def tokenise(self, segments: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Return the ids of each segment. Lets go of Python's lock while it works.

        Raises:
            ValueError: the library failed; the text is its exception's class, since its words hold a prompt.
        """
        texts = [segment.encode("utf-8", "replace").decode() for segment in segments]
        try:
            encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except (KeyboardInterrupt, SystemExit):
            raise
        # The library raises bare exceptions, and its panics are none of `Exception`.
        except BaseException as error:  # noqa: BLE001 - the edge to other people's code
            raise ValueError(f"tokenizer: {type(error).__name__}") from None
        return [np.array(entry.ids, dtype=np.uint32) for entry in encoded]

    def take_waiting(self) -> list[str]:
        """Return segments to tokenise off the loop, a modest batch; [] when none waits."""
        taken: list[str] = []
        chars = 0
        while self._waiting and chars < _BATCH_CHARS:
            segment = self._waiting.popleft()
            chars += len(segment)
            taken.append(segment)
        self._waiting_chars -= chars
        return taken

    def keep(self, segments: Sequence[str], ids: Sequence[NDArray[np.uint32]]) -> None:
        """Remember what `take_waiting` gave out, once it is tokenised."""
        for segment, tokens in zip(segments, ids, strict=True):
            key = xxh3_128_digest(segment.encode("utf-8", "surrogatepass"))
            self._waiting_keys.discard(key)
            self._keep(key, tokens)

    def drop(self, segments: Sequence[str]) -> None:
        """Forget what `take_waiting` gave out and nobody can tokenise now; it may wait again."""
        for segment in segments:
            self._waiting_keys.discard(xxh3_128_digest(segment.encode("utf-8", "surrogatepass")))

    def _wait(self, key: bytes, segment: str) -> None:
        if key not in self._waiting_keys and self._waiting_chars + len(segment) <= MAX_WAITING_CHARS:
            self._waiting_keys.add(key)
            self._waiting.append(segment)
            self._waiting_chars += len(segment)
            self.on_waiting()

    def _keep(self, key: bytes, ids: NDArray[np.uint32]) -> None:
        if key in self._cache:
            return
        self._cache[key] = ids
        self._cached_tokens += len(ids) + 1
        while self._cached_tokens > MAX_CACHED_TOKENS:
            _, gone = self._cache.popitem(last=False)
            self._cached_tokens -= len(gone) + 1


class IdsReader:
    """Reads prompts that are token ids already: what a pool without a tokenizer has."""

    reads_text = False

    def read(self, envelope: Envelope) -> PromptTokens | None:
        """Return the prompt's tokens; None for text. Never raises."""
        try:
            prompt = _prompt_of(envelope)
            return ids_of(prompt) if prompt else None
        except _FAULTS:
            return None


def ids_of(raw: msgspec.Raw) -> PromptTokens | None:
    """Return a list of token ids, as JSON, as a prompt: its first `MAX_IDS`. None for anything else.

    Raises what its library raises where it is no JSON.
    """
    found = _IDS.fullmatch(memoryview(raw))
    if found is None:
        return None
    spelled: bytes = found[1] or found[2]
    commas = np.flatnonzero(np.frombuffer(spelled, np.uint8) == _COMMA)
    whole = len(commas) < MAX_IDS
    numbers = _numbers(spelled if whole else spelled[: commas[MAX_IDS - 1]] + b"]")
    if not numbers:
        return None
    return PromptTokens(np.frombuffer(array("Q", numbers), np.uint64), whole, len(commas) + 1)


def _prompt_of(envelope: Envelope) -> msgspec.Raw:
    values = (envelope.prompt, envelope.input_ids, envelope.token_ids, envelope.text)
    return next((raw for raw in values if not is_null(raw)), ABSENT)


def _start_of_text(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids that the tokenizer puts before a text that is no chat."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a").ids
    at = next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), 0)
    return tuple(full[:at])
