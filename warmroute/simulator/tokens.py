"""A stand-in for tokenizer and language: 4 bytes of rendered prompt are a token, and so are 4 of output."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable

BYTES_PER_TOKEN: Final = 4
_CORPUS_TOKENS: Final = 16_384
_TEXT: Final = (
    "the and for you are not all new way may day use her one our "
    "out two man old see him now how its who did yes get has had"
)
_WORDS: Final = tuple(_TEXT.split(" "))


def render_chat(turns: Iterable[tuple[str, str]], preamble: bytes = b"") -> bytes:
    """Roles and texts as a chat template renders them: a longer conversation keeps the shorter as its prefix.

    What the model answers, sent back as an assistant's turn, continues the same bytes too.
    """
    parts = [f"<|{role}|>\n{text}\n" for role, text in turns]
    return preamble + "".join(parts).encode("utf-8", "surrogatepass") + b"<|assistant|>\n"


def token_ids_bytes(ids: Iterable[int]) -> bytes:
    """Token ids as bytes, one token each."""
    return b"".join((token & 0xFFFFFFFF).to_bytes(BYTES_PER_TOKEN, "little") for token in ids)


def count_tokens(prompt: bytes) -> int:
    """Tokens of a rendered prompt; at least 1."""
    return max(1, -(-len(prompt) // BYTES_PER_TOKEN))


def block_chain(text: bytes, block_tokens: int) -> tuple[int, ...]:
    """Hashes of the full blocks of `text`, each seeded with the one before it."""
    size = block_tokens * BYTES_PER_TOKEN
    view = memoryview(text)
    name = 0
    chain = []
    for end in range(size, len(text) + 1, size):
        name = xxh3_64_intdigest(view[end - size : end], name)
        chain.append(name)
    return tuple(chain)


class Speaker:
    """Says the same to the same prompt, on every engine with this seed: short ASCII words, one a token."""

    def __init__(self, seed: int = 0) -> None:
        random = Random(seed)
        self._corpus = " ".join(random.choices(_WORDS, k=_CORPUS_TOKENS)) + " "

    def answer(self, prompt: bytes, tokens: int) -> str:
        """`tokens` tokens of text that needs no escaping in JSON."""
        start = xxh3_64_intdigest(prompt) % _CORPUS_TOKENS * BYTES_PER_TOKEN
        end = start + tokens * BYTES_PER_TOKEN
        text = self._corpus
        while len(text) < end:
            text += self._corpus
        return text[start:end]
