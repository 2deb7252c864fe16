"""An admin server that others can reach has a token, whatever else is allowed."""

from __future__ import annotations

import pytest

from fleet.errors import SettingsError
from fleet.settings import parse_settings

BASE = "pools: [{name: a}]\nlisteners: [{name: l, address: '127.0.0.1:1', pool: a}]\n"


@pytest.mark.parametrize("field", ["address", "ext_proc_address"])
def test_beyond_loopback_a_token_is_required(field: str) -> None:
    exposed = f"{BASE}allow_plaintext: true\nadmin: {{{field}: '0.0.0.0:19000'%s}}\n"
    with pytest.raises(SettingsError, match=rf"admin\.{field}.*token_file"):
        parse_settings(exposed % "")
    settings = parse_settings(exposed % ", token_file: /run/token")
    assert settings.admin.token_file == "/run/token"


def test_a_token_alone_does_not_allow_plaintext() -> None:
    with pytest.raises(SettingsError, match="allow_plaintext"):
        parse_settings(f"{BASE}admin: {{address: '0.0.0.0:19000', token_file: /run/token}}\n")
