"""Leading lines of a system prompt that change with each request and mean nothing to the model.

Engines strip them before they apply their chat template (vLLM does so for Claude Code's billing line), so
they do not count for the prefix either. Only whole lines at the very start count as such.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ext_proc.prompt.text import LEAD, MESSAGE, PART, ROLE_END

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ext_proc.prompt.text import Pieces

STRIPPED_LINES: Final = ("x-anthropic-billing-header:",)
"""How such lines begin: Claude Code's, with another version and checksum in each request."""
_SYSTEM_LEADS: Final = (b"system", b"instructions")
_SYSTEM_STARTS: Final = (MESSAGE + b"system" + ROLE_END, MESSAGE + b"developer" + ROLE_END)


def lines_pattern(more: Iterable[str] = ()) -> re.Pattern[bytes]:
    r"""Return a pattern of stripped lines as JSON spells them: up to and with `\n`, or the string's end."""
    begins = b"|".join(re.escape(line.encode()) for line in dict.fromkeys((*STRIPPED_LINES, *more)))
    return re.compile(rb"(?:(?:%b)(?:[^\\]++|\\[^n])*+(?:\\n|\\?\Z))++" % begins)


def strip_lines(pieces: Pieces, prompt_at: int, pattern: re.Pattern[bytes]) -> None:
    """Remove stripped lines from the system prompt: its lead, or a first message at `prompt_at`.

    A part that consists of such lines alone goes as a whole.
    """
    if len(pieces) > prompt_at + 1 and pieces[prompt_at] in _SYSTEM_STARTS:
        _strip(pieces, prompt_at + 1, pattern)
    if prompt_at:
        leads = [at for at in range(prompt_at - 3) if pieces[at] is LEAD and pieces[at + 1] in _SYSTEM_LEADS]
        # From behind, because a removed part moves what follows.
        for at in reversed(leads):
            _strip(pieces, at + 3, pattern)


def _strip(pieces: Pieces, at: int, pattern: re.Pattern[bytes]) -> None:
    while (match := pattern.match(pieces[at])) is not None:
        pieces[at] = memoryview(pieces[at])[match.end() :]
        if len(pieces[at]) or len(pieces) < at + 3 or pieces[at + 1] != PART:
            return
        del pieces[at : at + 2]
