"""An honest lower bound of a prompt's tokens, without a tokenizer.

Engines' tokenizers split text before each word, so that no token spans two words: those that begin with a
regular expression (GPT-2 and its heirs), and SentencePiece with `split_by_whitespace`, its default. So a
prompt has at least as many tokens as a space stands ahead of an ASCII letter. Not counted is what a chat
template may leave out: tools, and texts ahead of the messages. Token ids are counted exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.prompt.text import LEAD, MESSAGE, PART

if TYPE_CHECKING:
    from ext_proc.prompt.decode import Prompt

_SPACE, _CASE, _FIRST_LETTER, _LETTERS = 0x20, 0x20, ord("a"), 26
LEAST_BYTES: Final = 2
"""Of canonical text, for each token that is counted."""


def least_tokens(prompt: Prompt) -> int:
    """Return at most the number of tokens of a prompt; 0: nothing is certain."""
    text = prompt.text
    start = text.find(MESSAGE)
    if start < 0:
        if PART in text:
            # Several prompts, and each is as long as its own text.
            return 0
        if prompt.tokens is not None:
            return prompt.tokens
        if LEAD in text:
            return 0
        start = 0
    if len(text) - start < LEAST_BYTES:
        return 0
    codes = np.frombuffer(text, np.uint8, offset=start)
    # Below "a", the difference wraps round.
    letters = (codes[1:] | _CASE) - np.uint8(_FIRST_LETTER) < _LETTERS
    return int(np.count_nonzero(letters & (codes[:-1] == _SPACE)))
