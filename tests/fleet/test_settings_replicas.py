"""Workers' addresses, and the server through which they share: what is allowed, and what is never shown."""

from __future__ import annotations

import pytest

from fleet.errors import SettingsError
from fleet.settings import parse_settings
from fleet.settings.ext_proc import worker_address, worker_admin_address

BASE = """
pools: [{name: chat, endpoints: [{address: "10.0.0.1:8000"}]}]
listeners: [{name: llm, address: "127.0.0.1:10000", pool: chat}]
"""


def refused(text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as error:
        parse_settings(BASE + text, environ=environ or {})
    return str(error.value)


def test_first_worker_keeps_the_address() -> None:
    for address in ("unix:/run/w/ext_proc.sock", "127.0.0.1:7000", "[::1]:7000", "ext-proc:7000"):
        assert worker_address(address, 0) == address
    assert worker_address("unix:/run/w/ext_proc.sock", 2) == "unix:/run/w/ext_proc.sock.2"
    assert worker_address("127.0.0.1:7000", 2) == "127.0.0.1:7002"
    assert worker_address("[::1]:7000", 3) == "[::1]:7003"
    assert worker_address("ext-proc:7000", 1) == "ext-proc:7001"


def test_admin_addresses_follow_the_parents_and_none_stays_none() -> None:
    assert [worker_admin_address("127.0.0.1:19001", number) for number in (0, 1)] == [
        "127.0.0.1:19002",
        "127.0.0.1:19003",
    ]
    assert worker_admin_address("", 3) == ""


def test_default_is_one_worker_and_environment_overrides() -> None:
    assert parse_settings(BASE).ext_proc.workers == 1
    several = parse_settings(BASE, environ={"WARMROUTE_EXT_PROC_WORKERS": "4"})
    assert len(several.ext_proc.worker_addresses) == 4
    assert "WARMROUTE" not in refused("", {"WARMROUTE_EXT_PROC_WORKERS": "four"})


@pytest.mark.parametrize("workers", ["0", "65", "1.5", "'2'", "true"])
def test_a_number_of_workers_that_makes_no_sense_is_refused(workers: str) -> None:
    assert "ext_proc.workers" in refused(f"ext_proc: {{workers: {workers}}}")


@pytest.mark.parametrize(
    "text",
    [
        "ext_proc: {workers: 3, address: '127.0.0.1:65534'}",
        "ext_proc: {workers: 3}\nadmin: {ext_proc_address: '127.0.0.1:65533'}",
        "ext_proc: {workers: 2, address: '127.0.0.1:9999'}",
        "ext_proc: {workers: 2, address: '127.0.0.1:18999'}",
        "ext_proc: {workers: 2, address: '127.0.0.1:19001'}",
        "ext_proc: {workers: 4, address: '127.0.0.1:19000'}\nadmin: {address: ''}",
        f"ext_proc: {{workers: 2, address: 'unix:/{'x' * 101}'}}",
        "ext_proc: {workers: 2}\ncontrol: {address: 'unix:/run/warmroute/ext_proc.sock.1'}",
    ],
)
def test_invalid_or_used_worker_addresses_are_refused(text: str) -> None:
    assert "ext_proc.workers" in refused(text)


@pytest.mark.parametrize(
    "url",
    [
        "unix:///run/valkey.sock",
        "unix:///run/valkey.sock?db=1&password=x",
        "redis://127.0.0.1:6379/0",
        "redis://[::1]:6379",
        "redis://localhost",
        "rediss://user:word@store.example:6380",
    ],
)
def test_a_server_on_this_host_or_behind_tls_is_allowed(url: str) -> None:
    parsed = parse_settings(BASE + f"ext_proc: {{shared: {{url: '{url}'}}}}")
    assert parsed.ext_proc.shared.url.get_secret_value() == url
    assert url not in repr(parsed)


@pytest.mark.parametrize(
    "url",
    ["store:6379", "http://store", "redis://", "unix://", "redis://store:0", "redis://store:x", "redis"],
)
def test_invalid_store_url_is_refused(url: str) -> None:
    assert "ext_proc.shared.url" in refused(f"ext_proc: {{shared: {{url: '{url}'}}}}")


@pytest.mark.parametrize("section", ["shared", "idempotency"])
def test_password_in_plaintext_needs_allow_plaintext(section: str) -> None:
    text = f"ext_proc: {{{section}: {{url: 'redis://:opensesame@store.example:6379'}}}}"
    error = refused(text)
    assert "allow_plaintext" in error
    assert "opensesame" not in error
    parsed = parse_settings(BASE + text + "\nallow_plaintext: true")
    assert getattr(parsed.ext_proc, section).url.get_secret_value()


@pytest.mark.parametrize("url", ["http://:opensesame@store", "'[opensesame'", "5opensesame://x"])
def test_a_refused_url_is_not_shown(url: str) -> None:
    error = refused("", {"WARMROUTE_EXT_PROC_SHARED_URL": url})
    assert "ext_proc.shared.url" in error
    assert "opensesame" not in error


@pytest.mark.parametrize(
    ("address", "named", "transport"),
    [
        ("unix:/run/w/e.sock", "", "lane"),
        ("127.0.0.1:7000", "", "lane"),
        ("[::1]:7000", "", "lane"),
        ("10.0.0.1:7000", "", "grpcio"),
        ("10.0.0.1:7000", ", transport: lane", "lane"),
        ("unix:/run/w/e.sock", ", transport: grpcio", "grpcio"),
    ],
)
def test_transport_follows_the_address(address: str, named: str, transport: str) -> None:
    text = f"allow_plaintext: true\next_proc: {{address: '{address}'{named}}}\n"
    assert parse_settings(BASE + text, environ={}).ext_proc.transport_in_force == transport
