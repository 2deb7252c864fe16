"""Chats that may outgrow the leading part of a body from one turn to the next. Pure.

The official Python clients write tools, system prompt and model behind the messages. A leading part that ends
in the messages does not show them, so the text of its prompt begins with the messages.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ext_proc.prompt.envelope import LEADS
from ext_proc.prompt.text import LEAD, MESSAGE

_CHAT: Final = re.compile(rb'"(?:messages|input)"[ \t\r\n]*:')
_LEAD: Final = re.compile(rb'"(?:%b)"[ \t\r\n]*:' % "|".join(LEADS).encode())
_MODEL: Final = re.compile(rb'"model"[ \t\r\n]*:')
_HEAD_BYTES: Final = 4096


class Behind(NamedTuple):
    """What stands behind the messages."""

    leads: int = 0
    """Bytes of the canonical text that these take at its beginning, if all of them stand there."""
    model: bool = False


def behind(body: bytes, text: bytes) -> Behind:
    """Return what a leading part of a whole body does not show; `text` is the body's canonical one."""
    chat = _CHAT.search(body, 0, _HEAD_BYTES)
    if chat is None:
        return Behind()
    at = chat.start()
    leads = text.find(MESSAGE) if text.startswith(LEAD) and not _LEAD.search(body, 0, at) else 0
    return Behind(max(leads, 0), not _MODEL.search(body, 0, at))
