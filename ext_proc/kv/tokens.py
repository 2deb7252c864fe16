"""Request bodies to the token ids that the engine will make of them, with the model's own tokenizer.

Token ids in the body (completions, SGLang's `input_ids`) are taken as they stand. Text needs the pool's
`tokenizer`, and chats its `chat_template` as well; what an engine would render in ways of its own (images,
a template in the request, other APIs) is not read, and routing goes by its own estimate.

Tokenising 200 KB takes about 90 ms, and Python's lock is held meanwhile. So text is cut into segments where
a tokenizer certainly begins anew, and each segment's ids are remembered: a conversation's next turn, or the
next question about a document, costs only what is new. Of what is new, `INLINE_CHARS` are tokenised at
once; the rest goes to a thread in a call that lets go of the lock, for next time, and until then the prompt
counts by its known leading part.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from xxhash import xxh3_128_digest

from ext_proc.kv.lookup import PromptTokens
from ext_proc.kv.segments import Cutter
from ext_proc.kv.template import ChatTemplate, TemplateFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

INLINE_CHARS: Final = 4000
"""Under 2 ms of tokenising on a slow core."""
MAX_CACHED_TOKENS: Final = 4_000_000
"""16 MiB of ids."""
MAX_WAITING_CHARS: Final = 2_000_000
_CHARS_PER_TOKEN: Final = 4.0
_BATCH_CHARS: Final = 65_536

_decode: Final = msgspec.json.Decoder().decode


class PoolReader:
    """Reads the prompts of one pool. Single-threaded, but for `tokenise`, which any thread may call."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
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

    def read(self, body: bytes) -> PromptTokens | None:
        """Return the prompt's tokens; None where the engine's tokens cannot be known. Never raises."""
        try:
            told = _decode(body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None
        if not isinstance(told, dict):
            return None
        if "messages" in told:
            return self._chat(told)
        prompt = told.get("prompt", told.get("input_ids", told.get("text")))
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return self._text(prompt, self._start)
        return whole_ids(prompt)

    def _chat(self, told: dict[str, Any]) -> PromptTokens | None:
        if self._template is None:
            return None
        try:
            text = self._template.render(told)
        except TemplateFailedError:
            return None
        return self._text(text, ())

    def _text(self, text: str, start: Sequence[int]) -> PromptTokens:
        parts: list[NDArray[np.uint32]] = [np.array(start, dtype=np.uint32)]
        left, known, whole = INLINE_CHARS, 0, True
        for segment in self._cutter.segments(text):
            key = xxh3_128_digest(segment.encode("utf-8", "surrogatepass"))
            ids = self._cache.get(key)
            if ids is not None:
                self._cache.move_to_end(key)
            elif whole and len(segment) <= left:
                left -= len(segment)
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
        ids = np.concatenate(parts)
        total = len(ids) if whole else len(ids) + int((len(text) - known) / _CHARS_PER_TOKEN)
        return PromptTokens(ids.astype(np.uint64), whole, total)

    def tokenise(self, segments: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Return the ids of each segment. Lets go of Python's lock while it works."""
        encoded = self._tokenizer.encode_batch_fast(
            [segment.encode("utf-8", "replace").decode() for segment in segments], add_special_tokens=False
        )
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

    def read(self, body: bytes) -> PromptTokens | None:
        """Return the prompt's tokens; None for text. Never raises."""
        if b'"prompt"' not in body and b'"input_ids"' not in body:
            return None
        try:
            told = _ids(body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None
        prompt = told.prompt if told.prompt is not None else told.input_ids
        return None if prompt is None else whole_ids(prompt)


class _Ids(msgspec.Struct, gc=False):
    prompt: list[Any] | None = None
    input_ids: list[Any] | None = None


_ids: Final = msgspec.json.Decoder(_Ids).decode


def whole_ids(prompt: object) -> PromptTokens | None:
    """Return a list of token ids as a prompt; None for anything else."""
    if not isinstance(prompt, list) or not prompt:
        return None
    try:
        ids = np.array(prompt)
    except (ValueError, TypeError, OverflowError):
        return None
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        return None
    return PromptTokens(ids.astype(np.uint64), whole=True, total=len(ids))


def _start_of_text(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids that the tokenizer puts before a text that is no chat."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a").ids
    at = next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), 0)
    return tuple(full[:at])
