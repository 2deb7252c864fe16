"""Names of headers in settings: those that could never work are refused at the start."""

from __future__ import annotations

import pytest

from fleet.errors import SettingsError
from fleet.names import REMOVED_REQUEST_HEADERS
from fleet.settings import parse_settings

TEXT = (
    "pools: [{{name: p}}]\n"
    "listeners: [{{name: l, address: '127.0.0.1:1', pool: p, session_header: {name}}}]\n"
)


@pytest.mark.parametrize("name", ["x-session-id", "authorization", "x_user.id", "cookie"])
def test_ordinary_names_are_taken(name: str) -> None:
    assert parse_settings(TEXT.format(name=name)).listeners[0].session_header == name


@pytest.mark.parametrize(
    "name",
    [
        "x-envoy-affinity",
        "x-envoyish",
        "host",
        "':path'",
        "':authority'",
        "X-Session-Id",
        "''",
        "'a b'",
        '"x\'y"',
        '"x\\ny"',
        "connection",
        "content-length",
        "upgrade",
        *REMOVED_REQUEST_HEADERS,
    ],
)
def test_names_that_could_never_work_are_refused(name: str) -> None:
    """Envoy ignores what is done to its own, and ours are removed from whatever clients send."""
    with pytest.raises(SettingsError, match="session_header"):
        parse_settings(TEXT.format(name=name))


PICK = (
    "pools: [{{name: p}}]\n"
    "listeners: [{{name: l, address: '127.0.0.1:1', pool: p}}]\n"
    "ext_proc: {{pick: {{tenant_header: {name}, admission: {{priority_header: {name}}}}}}}\n"
)


@pytest.mark.parametrize("name", ["''", "x_tenant.id", "x-gateway-priority"])
def test_headers_of_picks_are_the_same_kind_of_name_or_none(name: str) -> None:
    pick = parse_settings(PICK.format(name=name)).ext_proc.pick
    assert {pick.tenant_header, pick.admission.priority_header} == {name.strip("'")}


@pytest.mark.parametrize("name", ["x-envoy-priority", "host", "':path'", "X-Tenant", "te"])
def test_headers_of_picks_that_could_never_work_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="tenant_header"):
        parse_settings(PICK.format(name=name))
