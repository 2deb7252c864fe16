"""Certificates and tokens on this host that do not fit the settings are reported before a start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet.service.host_check import host_findings
from fleet.settings import parse_settings
from fleet.settings.role_check import findings
from testing.certificates import Authority
from warmroute.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
pools: [{{name: chat, endpoints: [{{address: "10.0.0.11:8000"}}]}}]
listeners:
  - name: llm
    address: 127.0.0.1:10443
    pool: chat
    tls: {{certificate_file: {at}/front.crt, key_file: {at}/front.key}}
xds: {{address: "127.0.0.1:18000", state_path: ""}}
ext_proc: {{address: "127.0.0.1:18001"}}
control: {{address: "127.0.0.1:18002"}}
admin: {{token_file: {at}/token}}
tls:
  envoy:
    {{certificate_file: {at}/envoy.crt, key_file: {at}/envoy.key, ca_file: {at}/services-ca.crt, {envoy}}}
  workers: {{certificate_file: {at}/worker.crt, key_file: {at}/worker.key, ca_file: {at}/{trusted}-ca.crt}}
  xds: {{certificate_file: {at}/xds.crt, key_file: {at}/xds.key, client_ca_file: {at}/{clients}-ca.crt}}
  ext_proc:
    certificate_file: {at}/warmroute.crt
    key_file: {at}/warmroute.key
    client_ca_file: {at}/clients-ca.crt
  control:
    certificate_file: {at}/warmroute.crt
    key_file: {at}/warmroute.key
    client_ca_file: {at}/clients-ca.crt
  roles: {{envoys: {envoys}, workers: {workers}}}
"""


def text(at: Path, **changed: str) -> str:
    fields = {
        "envoy": "server_name: warmroute",
        "trusted": "services",
        "clients": "clients",
        "envoys": "[envoy]",
        "workers": "[worker]",
    }
    return TEXT.format(at=at, **{**fields, **changed})


@pytest.fixture
def at(tmp_path: Path) -> Path:
    """A site as docs/tls.md makes it."""
    services, clients = Authority(tmp_path, "services"), Authority(tmp_path, "clients")
    for name in ("xds", "warmroute"):
        services.issue(name, "warmroute", side="server")
    services.issue("front", "llm.example.com", side="server")
    clients.issue("envoy", "envoy", side="client")
    clients.issue("worker", "worker", side="client")
    (tmp_path / "token").write_text("0123456789abcdef\n")
    return tmp_path


def reissue(at: Path, authority: str, name: str, *names: str, **more: Any) -> None:
    made = Authority(at, authority)
    made.issue(name, *names, **more)
    for other, file_names in (("xds", ["warmroute"]), ("worker", ["worker"]), ("envoy", ["envoy"])):
        if other != name and (authority == "services") is (other == "xds"):
            made.issue(other, *file_names, side="server" if other == "xds" else "client")
    if authority == "services":
        made.issue("warmroute", "warmroute", side="server")


def host_problems(at: Path, **changed: str) -> list[tuple[bool, str]]:
    return [(finding.grave, finding.text) for finding in host_findings(parse_settings(text(at, **changed)))]


def test_documented_site_has_no_findings(at: Path) -> None:
    assert host_problems(at) == []
    assert findings(parse_settings(text(at))) == ()


def test_files_that_are_not_here_are_not_judged(tmp_path: Path) -> None:
    assert host_problems(tmp_path) == []


def test_a_name_that_the_services_certificate_lacks(at: Path) -> None:
    (grave, text), (_, other) = host_problems(at, envoy="server_name: other.example")
    assert grave
    assert text == (
        "tls.envoy.server_name: 'other.example' is not in the certificate of tls.xds, which shows"
        " 'warmroute', so no client connects there; allowed: one of its DNS names"
    )
    assert "tls.ext_proc" in other


@pytest.mark.parametrize(
    ("authority", "name", "names", "side", "field", "usage"),
    [
        ("services", "xds", ["warmroute"], "client", "tls.xds.certificate_file", "serverAuth"),
        ("services", "front", ["a.test"], "client", "listeners[0].tls.certificate_file", "serverAuth"),
        ("clients", "worker", ["worker"], "server", "tls.workers.certificate_file", "clientAuth"),
    ],
)
def test_a_certificate_of_the_other_side(
    at: Path, authority: str, name: str, names: list[str], side: str, field: str, usage: str
) -> None:
    reissue(at, authority, name, *names, side=side)
    ((grave, text),) = host_problems(at)
    assert grave
    assert text.startswith(f"{field}: ")
    assert text.endswith(f"allowed: the extended key usage {usage}")


def test_a_worker_whose_name_is_not_that_of_its_role(at: Path) -> None:
    ((grave, text),) = host_problems(at, workers="[wrker]")
    assert grave
    assert text.startswith("tls.workers.certificate_file: ")
    assert "shows 'worker', so its holder is refused; allowed: a name in tls.roles.workers" in text
    ((grave, text),) = host_problems(at, envoys="[envy]")
    assert not grave, "the file may be another one at Envoy's host"
    assert text.startswith("tls.envoy.certificate_file: ")


def test_authorities_that_have_not_signed_the_other_side(at: Path) -> None:
    ((grave, text),) = host_problems(at, trusted="clients")
    assert grave
    assert text.startswith("tls.workers.ca_file: ")
    Authority(at, "services").issue("worker", "worker", side="client")
    assert any("tls.control.client_ca_file" in text for _, text in host_problems(at))


def test_an_authority_of_services_for_clients(at: Path) -> None:
    ((grave, text),) = host_problems(at, clients="services")
    assert not grave
    assert text.startswith("tls.xds.client_ca_file: ")
    assert "allowed: an authority that signs clients only" in text


def test_a_certificate_that_envoys_names_match_by_chance(at: Path) -> None:
    """No two names in the settings are alike, but the listener's own certificate would fetch keys."""
    reissue(at, "clients", "front", "llm.example.com")
    ((grave, text),) = host_problems(at, envoys="[envoy, '*.example.com']")
    assert grave
    assert text.startswith("listeners[0].tls.certificate_file: ")
    assert "may fetch the keys" in text
    reissue(at, "clients", "front", "llm.example.com", side="server")
    assert host_problems(at, envoys="[envoy, '*.example.com']") == []


def test_a_token_that_can_be_guessed(at: Path) -> None:
    (at / "token").write_text("abc\n")
    ((grave, text),) = host_problems(at)
    assert grave
    assert text.startswith("admin.token_file: a token of 3 characters can be guessed; allowed: 16 or more")


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "No such file"), (" \n", "it is empty"), ("key\n", "")]
)
def test_a_key_of_engines_that_is_not_there(tmp_path: Path, content: str | None, problem: str) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    pool = f"{{name: chat, api_key_file: '{file}', endpoints: [{{address: '10.0.0.11:8000'}}]}}"
    made = parse_settings(f"pools: [{pool}]\nlisteners: [{{name: l, address: '127.0.0.1:1', pool: chat}}]")
    shown = [(finding.grave, finding.text) for finding in host_findings(made)]
    assert [grave for grave, _ in shown] == ([False] if problem else [])
    assert all(text.startswith(f"pools[0].api_key_file: '{file}': {problem}") for _, text in shown)


def test_check_ends_with_2_and_names_the_line(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = at / "warmroute.yaml"
    file.write_text(text(at, workers="[wrker]"))
    assert main(["check", str(file)]) == 2
    shown = capsys.readouterr()
    assert f"{file}:15: tls.workers.certificate_file: " in shown.err
    assert "good" not in shown.out
    file.write_text(text(at))
    assert main(["check", str(file)]) == 0
    shown = capsys.readouterr()
    assert "good" in shown.out
    assert shown.err == ""
