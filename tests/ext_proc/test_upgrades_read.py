"""What headers of handshakes tell: a session, a model in the query, or nothing."""

from __future__ import annotations

import pytest

from ext_proc.director.prompts import RequestReader
from ext_proc.prompt.decode import Prompt
from ext_proc.prompt.unreadable import Unreadable
from ext_proc.protocol.attributes import METHOD, UPGRADE
from fleet.settings import parse_settings
from tests.ext_proc.worlds import http_request

SETTINGS = parse_settings("pools: [{name: a}]\nlisteners: [{name: l, address: '127.0.0.1:1', pool: a}]\n")
SESSION = {"x-session-id": "s"}


def told(path: str, **headers: str) -> Prompt | Unreadable:
    """Read a request of which only the headers are there."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = http_request(b"", complete=False, path=path, headers=named, headers_only=True)
    return RequestReader(SETTINGS, lambda: 0.0).read(request).prompt


def handshake(path: str, **headers: str) -> Prompt | Unreadable:
    """Read a WebSocket handshake."""
    return told(path, **{METHOD: "GET", UPGRADE: "websocket"}, **headers)


@pytest.mark.parametrize(
    ("path", "headers", "model"),
    [
        ("/v1/realtime?model=m%2F1", {}, "m/1"),
        ("/v1/realtime?a=b&model=m", SESSION, "m"),
        ("/v1/realtime", SESSION, None),
        ("/elsewhere", SESSION, None),
    ],
)
def test_a_session_or_a_model_is_enough_to_pick(
    path: str, headers: dict[str, str], model: str | None
) -> None:
    found = handshake(path, **headers)
    assert isinstance(found, Prompt)
    assert found.model == model


def test_extended_connect_tells_as_much() -> None:
    found = told("/v1/realtime?model=m", **{METHOD: "CONNECT"})
    assert isinstance(found, Prompt)


def test_a_handshake_that_tells_nothing_goes_by_weights() -> None:
    assert handshake("/v1/realtime") is Unreadable.NO_PROMPT


def test_fallback_keeps_session_and_ignores_the_model() -> None:
    """Only a session makes a plain GET on a path of upgrades worth a pick."""
    plain = {METHOD: "GET"}
    assert isinstance(told("/v1/realtime?model=m", **plain, **SESSION), Prompt)
    assert told("/v1/realtime?model=m", **plain) is Unreadable.NO_PROMPT
    assert told("/v1/models", **plain, **SESSION) is Unreadable.NO_PROMPT
