"""Roles of a peer by the names in its certificate, and settings that separate roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509

from fleet.errors import SettingsError
from fleet.service.roles import PeerNames, has_role, refusal
from fleet.settings import RoleSettings, parse_settings
from fleet.settings.role_check import added_access, findings
from testing.certificates import Authority
from warmroute.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


def roles(*envoys: str, **others: Any) -> RoleSettings:
    return RoleSettings(envoys=envoys, **others)


@pytest.mark.parametrize(
    ("pattern", "names", "fits"),
    [
        ("envoy", PeerNames(dns=("envoy",)), True),
        ("Envoy.Example", PeerNames(dns=("other", "eNVOY.example")), True),
        ("envoy", PeerNames(dns=("envoy.example",)), False),
        ("envoy", PeerNames(dns=("xenvoy",)), False),
        ("envoy", PeerNames(dns=("envoy\0.example",)), False),
        ("envoy", PeerNames(uris=("envoy",)), False),
        ("*.gpu.example", PeerNames(dns=("host-7.gpu.example",)), True),
        ("*.gpu.example", PeerNames(dns=("a.host-7.gpu.example",)), False),
        ("*.gpu.example", PeerNames(dns=("gpu.example",)), False),
        ("*.gpu.example", PeerNames(dns=(".gpu.example",)), False),
        ("host.gpu.example", PeerNames(dns=("*.gpu.example",)), False),
        ("spiffe://a/ns/e", PeerNames(uris=("spiffe://a/ns/e",)), True),
        ("spiffe://a/ns/e", PeerNames(uris=("spiffe://a/ns/E",)), False),
        ("spiffe://a/ns/e", PeerNames(uris=("spiffe://a/ns/e/f",)), False),
        ("spiffe://a/ns/e", PeerNames(dns=("spiffe://a/ns/e",)), False),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/ns/e/f",)), True),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/ns/",)), False),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/ns",)), False),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/nsx/e",)), False),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/ns/../other",)), False),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/ns/%2e%2e/other",)), False),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/ns/?/e",)), False),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/ns/e#f",)), False),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/ns/e\\..\\f",)), False),
        ("spiffe://a/ns/*", PeerNames(uris=("spiffe://a/ns/e_1/f-2.g~h:i@j",)), True),
        ("worker", PeerNames(dns=("wor\u212aer",)), False),
        ("*.worker.example", PeerNames(dns=("a.wor\u212aer.example",)), False),
        ("envoy", PeerNames(), False),
    ],
)
def test_a_name_counts_as_the_kind_that_it_is_and_as_a_whole(
    pattern: str, names: PeerNames, *, fits: bool
) -> None:
    assert has_role(names, ("envoys",), roles(pattern)) is fits
    assert has_role(names, ("agents",), roles(pattern)) is False
    assert has_role(names, ("agents", "envoys"), roles(pattern)) is fits


def test_no_roles_allow_all_and_roles_only_their_names() -> None:
    assert has_role(PeerNames(), ("envoys",), None)
    assert not has_role(PeerNames(dns=("x",)), ("envoys",), RoleSettings())
    assert not has_role(PeerNames(dns=("x",)), (), roles("x"))


def test_refusal_is_bounded_and_escaped() -> None:
    names = PeerNames(dns=("a\nERROR forged\x1b[2J", "é", "x" * 5000, "d", "e", "f"))
    reason = refusal(names, ("envoys", "gateways"), roles("envoy"))
    assert reason is not None
    assert reason.isascii()
    assert reason.isprintable()
    assert len(reason) < 500
    assert r"'a\nERROR forged\x1b[2J'" in reason
    assert reason.endswith("and 2 more; allowed: a name in tls.roles.envoys or tls.roles.gateways")
    assert "no DNS name or URI" in str(refusal(PeerNames(), ("agents",), roles("envoy")))


def test_names_are_read_from_the_certificate_whole(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("x", "envoy.test", "spiffe://a/b", "10.0.0.1")
    assert PeerNames.of(issued.certificate) == PeerNames(("envoy.test",), ("spiffe://a/b",))
    assert PeerNames.of(Authority(tmp_path, "other").issue("y").certificate) == PeerNames()


@pytest.mark.parametrize(
    "problem", [x509.DuplicateExtension("", x509.OID_COMMON_NAME), x509.UnsupportedGeneralNameType("")]
)
def test_a_certificate_whose_names_cannot_be_read_has_none(problem: Exception) -> None:
    class Odd:
        @property
        def extensions(self) -> Any:
            raise problem

    odd: Any = Odd()
    assert PeerNames.of(odd) == PeerNames()


TEXT = """
pools: [{{name: chat, endpoints: [{{address: "10.0.0.11:8000"}}]}}]
listeners:
  - {{name: llm, address: "0.0.0.0:443", pool: chat, tls: {{certificate_file: /f.crt, key_file: /f.key}}}}
xds: {{address: "127.0.0.1:18000"}}
ext_proc: {{address: "127.0.0.1:18001"}}
control: {{address: "127.0.0.1:18002"}}
tls:
  envoy: {{certificate_file: /e.crt, key_file: /e.key, ca_file: /ca.crt}}
  workers: {{certificate_file: /w.crt, key_file: /w.key, ca_file: /ca.crt}}
  xds: {{certificate_file: /s.crt, key_file: /s.key, client_ca_file: /clients.crt}}
  ext_proc: {{certificate_file: /s.crt, key_file: /s.key, client_ca_file: /clients.crt}}
  control: {{certificate_file: /s.crt, key_file: /s.key, client_ca_file: {control_ca}}}
{more}
"""


def text(more: str = "", control_ca: str = "/clients.crt") -> str:
    return TEXT.format(more=f"  {more}" if more else "", control_ca=control_ca)


def test_settings_say_what_to_write_where_no_names_are_set() -> None:
    """With keys at stake, every signed certificate counts: agents use `xds.address` under `serve`."""
    (finding,) = findings(parse_settings(text()))
    assert finding.grave
    assert finding.text == (
        "tls.roles: not set, so every certificate that /clients.crt has signed may fetch the keys of"
        " listeners and pools, report GPUs, ask for picks, follow the fleet; allowed: the names in"
        " certificates, by role, as in `roles: {envoys: [NAME], workers: [NAME], agents: []}`"
    )
    (apart,) = findings(parse_settings(text(control_ca="/others.crt")))
    assert apart.grave
    assert "/others.crt has signed may follow the fleet, report GPUs;" in apart.text
    without_keys = text().replace(", tls: {certificate_file: /f.crt, key_file: /f.key}", "")
    (harmless,) = findings(parse_settings(without_keys))
    assert not harmless.grave
    assert "keys" not in harmless.text
    assert "may fetch the configuration, report GPUs" in harmless.text
    named = "roles: {envoys: [envoy], workers: [worker], agents: ['*.gpu.example']}"
    assert findings(parse_settings(text(named))) == ()


@pytest.mark.parametrize(
    ("envoys", "others", "grave"),
    [
        ("[operator]", "operators: [operator]", True),
        ("[OPERATOR]", "operators: [x, operator]", True),
        ("['*.example.com']", "agents: [gpu.example.com]", True),
        ("[gpu.example.com]", "agents: ['*.example.com']", True),
        ("['*.example.com']", "gateways: ['*.Example.com']", True),
        ("['spiffe://example.com/*']", "operators: ['spiffe://example.com/ns/op']", True),
        ("['spiffe://example.com/ns/op']", "operators: ['spiffe://example.com/*']", True),
        ("['spiffe://example.com/*']", "grpc_clients: ['spiffe://example.com/ns/*']", True),
        ("[envoy]", "agents: [x], operators: [x]", False),
        ("['*.example.com']", "agents: [a.b.example.com]", None),
        (
            "['spiffe://example.com/ns/*']",
            "operators: ['spiffe://example.com/ns', 'spiffe://example.co/x']",
            None,
        ),
        ("[envoy]", "agents: ['*.gpu.example'], operators: ['spiffe://envoy/*']", None),
    ],
)
def test_ambiguous_names_are_findings(envoys: str, others: str, grave: bool | None) -> None:
    """Those of Envoys with keys at stake are grave; None: the roles can be told apart."""
    problems = findings(parse_settings(text(f"roles: {{envoys: {envoys}, workers: [worker], {others}}}")))
    assert [finding.grave for finding in problems] == ([] if grave is None else [grave])
    assert all(finding.text.startswith("tls.roles.") for finding in problems)
    assert ("may fetch the keys" in str(problems)) is bool(grave)


@pytest.mark.parametrize(
    ("one", "other"),
    [(f"*.{'a.' * 100}x{i}", f"y.{'a.' * 100}x{i}") for i in (0, 999)],
)
def test_thousands_of_names_are_compared_at_once(one: str, other: str) -> None:
    many = [f"*.{'a.' * 100}x{i}" for i in range(1000)]
    assert one in many
    listed = (
        f"roles: {{envoys: {many}, workers: [worker], agents: {[f'n{i}' for i in range(999)] + [other]}}}"
    )
    (finding,) = findings(parse_settings(text(listed)))
    assert other in finding.text


def test_reload_that_widens_access_is_reported() -> None:
    named = parse_settings(text("roles: {envoys: [envoy], workers: [worker]}"))
    unnamed = parse_settings(text())
    assert "tls.roles: deleted" in added_access(named, unnamed)[0]
    assert "restart the service" in added_access(named, unnamed)[0]
    assert added_access(unnamed, named) == []
    assert added_access(unnamed, unnamed) == [], "it is so since the start"
    doubled = parse_settings(text("roles: {envoys: [envoy, worker], workers: [worker]}"))
    assert "may fetch the keys" in added_access(named, doubled)[0]
    assert added_access(doubled, doubled) == []


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("roles: {workers: [worker]}", r"tls\.roles\.envoys: without a name no peer could use tls\.xds"),
        ("roles: {grpc_clients: [c], gateways: [g]}", r"tls\.roles\.workers: without a name"),
        ("roles: {envoys: ['*']}", r"tls\.roles\.envoys\[0\]: '\*'; allowed: a DNS name, or \*\. and one"),
        ("roles: {envoys: ['a.*']}", r"tls\.roles\.envoys\[0\]"),
        ("roles: {envoys: ['spiffe://a/*/b']}", r"tls\.roles\.envoys\[0\]"),
        ("roles: {envoys: ['spiffe://*']}", r"tls\.roles\.envoys\[0\]"),
        ("roles: {envoys: ['en voy']}", r"tls\.roles\.envoys\[0\]"),
        ("roles: {envoy: [envoy]}", r"tls\.roles\.envoy: unknown field"),
        (
            "roles: {envoys: ['10.0.0.1']}",
            r"tls\.roles\.envoys\[0\]: '10\.0\.0\.1'; allowed: a DNS name of the",
        ),
        (
            "roles: {envoys: }",
            r"tls\.roles\.envoys: None; allowed: a list, \[\] for none; an entry is a DNS name",
        ),
    ],
)
def test_roles_that_exclude_all_or_do_nothing_are_refused(more: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        parse_settings(text(more))


def test_roles_without_client_certificates_are_refused() -> None:
    alone = "pools: [{name: p, endpoints: [{address: '10.0.0.1:1'}]}]\n"
    alone += "listeners: [{name: l, address: '127.0.0.1:2', pool: p}]\ntls: {roles: {envoys: [envoy]}}\n"
    with pytest.raises(SettingsError, match=r"tls\.roles: no service requests certificates"):
        parse_settings(alone)


def test_names_for_address_without_client_ca_are_refused() -> None:
    """They would look as if they kept somebody out."""
    named = text("roles: {envoys: [envoy], workers: [worker]}")
    unasked = named.replace(", client_ca_file: /clients.crt}\n  roles", "}\n  roles")
    assert unasked != named
    with pytest.raises(
        SettingsError, match=r"tls\.roles\.workers: its names .* allowed: tls\.control\.client_ca_file"
    ):
        parse_settings(unasked)
    agents = unasked.replace("workers: [worker]", "agents: [agent]")
    (finding,) = findings(parse_settings(agents))
    assert "tls.control: without client_ca_file, so tls.roles.agents count for nothing there" in finding.text


def test_keys_go_to_nobody_who_shows_no_certificate() -> None:
    """TLS alone keeps others from reading along, and lets anybody ask."""
    open_to_all = text().replace("key_file: /s.key, client_ca_file: /clients.crt", "key_file: /s.key", 1)
    with pytest.raises(SettingsError, match=r"listeners\[0\]\.tls: every peer that can connect"):
        parse_settings(open_to_all)


@pytest.mark.parametrize(
    ("more", "control_ca", "status", "message"),
    [
        ("", "/clients.crt", 2, "fetch the keys"),
        ("", "/others.crt", 2, "fetch the keys"),
        ("roles: {envoys: [worker], workers: [worker]}", "/clients.crt", 2, "fetch the keys"),
        ("roles: {envoys: [e], workers: [w], agents: [w]}", "/clients.crt", 0, "tls.roles.agents[0]: 'w'"),
        ("roles: {envoys: [envoy], workers: [worker]}", "/clients.crt", 0, ""),
    ],
)
def test_check_refuses_key_access_and_warns_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, control_ca: str, status: int, message: str
) -> None:
    file = tmp_path / "warmroute.yaml"
    file.write_text(text(more, control_ca))
    assert main(["check", str(file)]) == status
    shown = capsys.readouterr()
    # That the files are not here is told as well.
    assert message in shown.err
    assert ("tls.roles" in shown.err) is bool(message)
    assert ("good" in shown.out) is (status == 0)
