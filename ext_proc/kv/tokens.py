"""Request texts to the token ids that the engine will make of them, with the model's own tokenizer.

Text needs the pool's `tokenizer`, and chats its `chat_template` as well. Prompts that an engine renders in
its own way (images, a template in the request, other APIs) are not read; routing then uses its own estimate.
`lookup` reads prompts that are token ids.

Tokenising 200 KB takes about 90 ms and holds Python's lock. So text is cut into segments where the tokenizer
certainly restarts, and each segment's ids are cached: a conversation's next turn, or the next question about
a document, costs only what is new. A request tokenises at most `INLINE_CHARS` of new text itself. A thread
does the rest for the next request, in a call that releases the lock; until then the prompt counts by its
leading part whose tokens are cached.

Reading a body takes about 2 ms at most, whatever it contains: of dense or long bodies, the leading part is
read or nothing.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from xxhash import xxh3_128_digest

from ext_proc.kv.lookup import MAX_IDS, PromptTokens
from ext_proc.kv.segments import Cutter
from ext_proc.kv.template import MAX_JSON_MARKS, ChatTemplate
from ext_proc.kv.tools import TemplateFailedError, ToolsCache, marks_of
from ext_proc.prompt.text import ABSENT, LIST, QUOTE, is_null

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from ext_proc.prompt.envelope import Envelope

INLINE_CHARS: Final = 2000
"""About 2 ms of tokenising on a slow core, if they contain no space."""
MAX_MARKS: Final = 12_288
"""Commas and opening brackets of a chat that is rendered, those in strings included."""
MAX_SEGMENTS: Final = 1536
"""Of a prompt's text; each chat message has two or more."""
MAX_CACHED_TOKENS: Final = 4_000_000
"""16 MiB of ids."""
MAX_WAITING_CHARS: Final = 2_000_000
_CHARS_PER_TOKEN: Final = 4.0
_BATCH_CHARS: Final = 65_536
_CALL_CHARS: Final = 40
"""The fixed cost of a call of the tokenizer, in characters."""
_CHAT_MEMBERS: Final = (
    "messages", "prompt", "input_ids", "token_ids", "text", "tools", "chat_template_kwargs",
    "add_generation_prompt", "chat_template", "documents", "system", "continue_final_message",
)  # fmt: skip
"""The members of a chat that engines and templates read."""

_value: Final = msgspec.json.Decoder().decode
_string: Final = msgspec.json.Decoder(str).decode
_only_string: Final = msgspec.json.Decoder(tuple[str]).decode


class PoolReader:
    """Reads the prompts of one pool. Single-threaded, except for `tokenise`, which any thread may call."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._tools = ToolsCache()
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
        """Return the tokens of a chat or a text; None if the engine's tokens are unknown. Never raises."""
        try:
            if not is_null(envelope.messages):
                return self._chat(envelope)
            prompt = envelope.text if is_null(envelope.prompt) else envelope.prompt
            kind = memoryview(prompt)[0] if prompt else 0
            if kind == QUOTE:
                return self._text(_string(prompt), self._start)
            return self._text(_only_string(prompt)[0], self._start) if kind == LIST else None
        except (ValueError, RecursionError, OverflowError, TemplateFailedError):  # JSON: ValueError
            return None

    def _chat(self, envelope: Envelope) -> PromptTokens | None:
        raws = {name: raw for name in _CHAT_MEMBERS if (raw := getattr(envelope, name)) is not ABSENT}
        marks = {name: marks_of(raw) for name, raw in raws.items()}
        as_json = marks.get("tools", 0) + marks.get("chat_template_kwargs", 0)
        if self._template is None or sum(marks.values()) > MAX_MARKS or as_json > MAX_JSON_MARKS:
            return None
        values = {n: self._tools.of(raw) if n == "tools" else _value(raw) for n, raw in raws.items()}
        return self._text(self._template.render(values, as_json), ())

    def _text(self, text: str, start: Sequence[int]) -> PromptTokens:
        parts: list[NDArray[np.uint32]] = [np.array(start, dtype=np.uint32)]
        left, covered_chars, tokens, whole = INLINE_CHARS, 0, 0, True
        for segment in islice(self._cutter.segments(text), MAX_SEGMENTS):
            if tokens > MAX_IDS:
                break
            key = _key_of(segment)
            ids = self._cache.get(key)
            if ids is not None:
                self._cache.move_to_end(key)
            elif whole and len(segment) <= left:
                left -= len(segment) + _CALL_CHARS
                ids = self.tokenise([segment])[0]
                self._keep(key, ids)
            else:
                # Behind the first unknown segment, the others are only tokenised for next time.
                whole = False
                self._wait(key, segment)
                continue
            if whole:
                parts.append(ids)
                covered_chars += len(segment)
                tokens += len(ids)
        ids = np.concatenate(parts)
        total = len(ids) + int((len(text) - covered_chars) / _CHARS_PER_TOKEN)
        whole = covered_chars == len(text) and len(ids) <= MAX_IDS
        return PromptTokens(ids[:MAX_IDS].astype(np.uint64), whole, total)

    def tokenise(self, segments: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Return the ids of each segment. Releases Python's lock while it works.

        Raises:
            ValueError: the library failed; the message has its exception's class only, as its words contain
                a prompt.
        """
        texts = [segment.encode("utf-8", "replace").decode() for segment in segments]
        try:
            encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except (KeyboardInterrupt, SystemExit):
            raise
        # The library raises bare exceptions, and its panics are no `Exception`.
        except BaseException as error:  # noqa: BLE001 - the edge to other people's code
            raise ValueError(f"tokenizer: {type(error).__name__}") from None
        return [np.array(entry.ids, dtype=np.uint32) for entry in encoded]

    def take_waiting(self) -> list[str]:
        """Return segments to tokenise off the loop, a modest batch; [] when none waits."""
        batch: list[str] = []
        chars = 0
        while self._waiting and chars < _BATCH_CHARS:
            segment = self._waiting.popleft()
            chars += len(segment)
            batch.append(segment)
        self._waiting_chars -= chars
        return batch

    def keep(self, segments: Sequence[str], ids: Sequence[NDArray[np.uint32]]) -> None:
        """Cache the tokens of segments from `take_waiting`."""
        for segment, tokens in zip(segments, ids, strict=True):
            key = _key_of(segment)
            self._waiting_keys.discard(key)
            self._keep(key, tokens)

    def drop(self, segment: str) -> None:
        """Give up a segment from `take_waiting`, which no tokeniser can read now; it may wait again."""
        self._waiting_keys.discard(_key_of(segment))

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
            _, oldest = self._cache.popitem(last=False)
            self._cached_tokens -= len(oldest) + 1


def _key_of(segment: str) -> bytes:
    return xxh3_128_digest(segment.encode("utf-8", "surrogatepass"))


def _start_of_text(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids that the tokenizer puts before a text that is no chat."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a").ids
    at = next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), 0)
    return tuple(full[:at])
