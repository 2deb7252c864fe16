"""Settings of discovery: what cannot work is refused with path, value and what is allowed."""

from __future__ import annotations

import pytest

from fleet.errors import SettingsError
from fleet.settings import parse_settings


def with_pool(fields: str) -> str:
    return f"pools: [{{name: p, {fields}}}]\nlisteners: [{{name: l, address: '127.0.0.1:1', pool: p}}]\n"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ("discovery: [{}]", "pools[0].discovery[0]: {}; allowed: exactly one of file and dns"),
        ("discovery: [{file: {path: rel.yaml}}]", "discovery[0].file.path: 'rel.yaml'; allowed: "),
        ("discovery: [{dns: {name: a.b}}]", "allowed: a port with kind a, none with kind srv"),
        ("discovery: [{dns: {name: a.b, kind: srv, port: 1}}]", "allowed: a port with kind a"),
        ("discovery: [{dns: {name: a..b, port: 1}}]", "discovery[0].dns.name: 'a..b'; allowed: "),
        (
            "discovery: [{dns: {name: a, port: 1, min_ttl_seconds: 9.0, max_ttl_seconds: 1.0}}]",
            "allowed: min_ttl_seconds of at most max_ttl_seconds",
        ),
        ("discovery: [{dns: {name: a, port: 1, nameservers: [ns]}}]", "dns.nameservers[0]: 'ns'; allowed: "),
        (
            "discovery: [{file: {path: /a}}, {file: {path: /a}}]",
            "pools[0].discovery[1]: the same as one before; allowed: each source once",
        ),
        ("joining: {slow_start_from: 0.0}", "joining.slow_start_from: 0.0; allowed: greater than 0"),
        ("joining: {probe: ping}", "joining.probe: 'ping'; allowed: 'models', 'health' or 'none'"),
    ],
)
def test_each_problem_is_told(fields: str, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(with_pool(fields))
    assert line in str(caught.value)


def test_sources_of_every_kind_are_taken() -> None:
    text = (
        "discovery: [{file: {path: /a}}, {dns: {name: _x._tcp.a.b., kind: srv}}, {dns: {name: e, port: 1}}]"
    )
    (pool,) = parse_settings(with_pool(text)).pools
    assert [entry.file is not None for entry in pool.discovery] == [True, False, False]
    assert pool.joining.probe == "models"
