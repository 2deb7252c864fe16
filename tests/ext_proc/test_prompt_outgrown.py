"""What stands behind a chat's messages, so that a leading part of the body does not show it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ext_proc.prompt.decode import BodyReader
from ext_proc.prompt.outgrown import behind
from ext_proc.prompt.unreadable import Unreadable

TOOLS: dict[str, Any] = {"tools": [{"name": "read"}]}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": '"model": and "tools":'}]}
MODEL: dict[str, Any] = {"model": "m"}


@pytest.mark.parametrize(
    ("body", "leads", "model"),
    [
        ({**MODEL, **TOOLS, **CHAT}, False, False),
        ({**MODEL, **CHAT, **TOOLS}, True, False),
        ({**CHAT, **TOOLS, **MODEL}, True, True),
        ({**CHAT, **MODEL}, False, True),
        ({"max_tokens": 9, **CHAT, **MODEL, "system": "s"}, True, True),
        ({**TOOLS, **CHAT, **MODEL, "system": "s"}, False, True),
        ({"input": CHAT["messages"], "instructions": "s", **MODEL}, True, True),
        ({"input": "text", "instructions": "s", **MODEL}, False, True),
        ({"prompt": "x" * 9, **MODEL}, False, False),
    ],
    ids=str,
)
def test_what_stands_behind_the_messages(body: dict[str, Any], leads: bool, model: bool) -> None:
    spelled = json.dumps(body).encode()
    whole = BodyReader().read(spelled, complete=True).prompt
    assert not isinstance(whole, Unreadable)
    hidden = behind(spelled, whole.text)
    assert (hidden.leads > 0, hidden.model) == (leads, model)
    if leads:
        messages = BodyReader().read(json.dumps(CHAT).encode(), complete=True).prompt
        assert not isinstance(messages, Unreadable)
        assert whole.text[hidden.leads :] == messages.text
