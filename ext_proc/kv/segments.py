"""Cuts a text so that the joined tokens of its pieces are the tokens of the whole.

There are two kinds of cuts. Hard cuts stand before special tokens: a tokenizer splits a text at these first,
so the texts on their two sides never meet. Soft cuts stand where the regular expressions of byte-level BPE
begin a new word in any context: after the end of a line that is not blank, and before the space between two
small letters. Each kind is tested once for a tokenizer, on a text, and a kind that fails is not used.

A cut depends on the text before it and a few characters after it, so equal beginnings have equal cuts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tokenizers import Tokenizer

SEGMENT_CHARS: Final = 1500
"""A segment ends at the first soft cut after this many characters."""
SEARCHED_CHARS: Final = 32_768
"""Searched for soft cuts in one text, about 1 ms of work: usual texts have one in every few words."""
_SOFT: Final = re.compile(r"(?<=\S\n)(?=[A-Za-z0-9#*<({\[-])|(?<=[a-z])(?= [a-z])")
_TRIAL: Final = """The quick brown fox, of the old house in the end, doesn't jump over "13" lazy dogs;
it's 3.14.
# A heading with code: `for i in range(10):`
def f(x):
    return {"a": [x, 2 * x], 'b': None}  # as well as the rest of it

- one of these, at the end of the day
* two: 1,000,000 of them (see below)
<div class="x">as far as I know</div>
\tTabbed text, with   several spaces   and the like.
Grüße aus Köln, où l'été est là; das ist in der Tat so und wie es ist.
Это не так, как было. 日本語のテキスト。 emoji 👩‍👩‍👧 as well

{"role": "user", "content": "as soon as possible"}
I am in the middle of a new one and there is a lot of it on the one hand and on the other hand
"""


class Cutter:
    """Cuts texts for one tokenizer."""

    def __init__(self, specials: tuple[str, ...], *, soft: bool, every: int = SEGMENT_CHARS) -> None:
        self.specials = specials
        self.soft = soft
        self._every = every
        self._special = (
            re.compile("|".join(re.escape(token) for token in sorted(specials, key=len, reverse=True)))
            if specials
            else None
        )

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Cutter:
        """Return the finest cutter that passes the trial."""
        # A token that swallows white space before it needs the text on the other side of the cut.
        specials = tuple(
            token.content
            for token in tokenizer.get_added_tokens_decoder().values()
            if token.special and token.content and not token.lstrip and not token.normalized
        )
        trial = _TRIAL.join(specials[:8]) if len(specials) > 1 else _TRIAL
        whole = tokenizer.encode(trial, add_special_tokens=False).ids
        for names, soft in ((specials, True), (specials, False)):
            cutter = cls(names, soft=soft, every=1)
            pieces = [
                tokenizer.encode(piece, add_special_tokens=False).ids for piece in cutter.segments(trial)
            ]
            if [number for piece in pieces for number in piece] == whole:
                return cls(names, soft=soft)
        return cls((), soft=False)

    def segments(self, text: str) -> Iterator[str]:
        """Yield the pieces of a text, in order; joined they are the text."""
        start, left = 0, SEARCHED_CHARS
        for match in self._special.finditer(text) if self._special is not None else ():
            if match.start() > start:
                left = yield from self._pieces(text, start, match.start(), left)
                start = match.start()
        if start < len(text):
            yield from self._pieces(text, start, len(text), left)

    def _pieces(self, text: str, start: int, end: int, left: int) -> Generator[str, None, int]:
        """Yield the pieces between two positions; return the rest of `left`, the characters to search."""
        while self.soft and left > 0 and end - start > self._every:
            begin = start + self._every
            cut = _SOFT.search(text, begin, min(end, begin + left))
            left -= (end if cut is None else cut.end()) - begin
            if cut is None or cut.start() >= end:
                break
            yield text[start : cut.start()]
            start = cut.start()
        yield text[start:end]
        return left
