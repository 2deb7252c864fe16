"""The commands of docs/tls.md make certificates with which both sides know each other."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
from pathlib import Path
from typing import Final, get_args

import pytest
from cryptography import x509

from fleet.service.roles import PeerNames, has_role
from fleet.service.tls import Files, load
from fleet.settings import RoleSettings, parse_settings
from fleet.settings.role_check import findings
from fleet.settings.tls import Role

PAGE = Path(__file__).parents[2] / "docs" / "tls.md"
CLIENTS: Final[dict[str, Role]] = {
    "envoy": "envoys",
    "worker": "workers",
    "agent": "agents",
    "operator": "operators",
}
"""Certificates for clients, and what each is for."""
ROLES: Final[tuple[Role, ...]] = get_args(Role)
ROLE_SETTINGS: Final = RoleSettings(
    envoys=("envoy",), workers=("worker",), agents=("gpu-agent",), operators=("operator",)
)
"""As the page says."""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="runs openssl")
async def test_the_commands_make_certificates_that_can_be_used(tmp_path: Path) -> None:
    (commands,) = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    process = await asyncio.create_subprocess_exec(
        "sh", "-ec", commands, cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0
    for name in ("warmroute", "front", *CLIENTS):
        files = Files(
            f"{tmp_path}/{name}.crt", f"{tmp_path}/{name}.key", f"{tmp_path}/ca.crt", for_envoy=True
        )
        assert load(files).key
    server = context(ssl.PROTOCOL_TLS_SERVER, tmp_path, "warmroute", "clients-ca")
    server.verify_mode = ssl.CERT_REQUIRED
    for name in CLIENTS:
        client = context(ssl.PROTOCOL_TLS_CLIENT, tmp_path, name, "ca")
        for server_name, agreed in (("warmroute", True), ("llm.example.com", False)):
            assert agree(server, client, server_name) is agreed
    # A service's certificate lets nobody in: not by its authority, and not by its use either.
    for authority in ("ca", "clients-ca"):
        server = context(ssl.PROTOCOL_TLS_SERVER, tmp_path, "warmroute", authority)
        server.verify_mode = ssl.CERT_REQUIRED
        for name in ("front", "warmroute"):
            client = context(ssl.PROTOCOL_TLS_CLIENT, tmp_path, name, "ca")
            assert not agree(server, client, "warmroute")
    # And none of a client stands in for a service.
    impostor = context(ssl.PROTOCOL_TLS_SERVER, tmp_path, "envoy", "clients-ca")
    assert not agree(impostor, context(ssl.PROTOCOL_TLS_CLIENT, tmp_path, "worker", "clients-ca"), "envoy")
    for name, role in CLIENTS.items():
        shown = PeerNames.of(x509.load_pem_x509_certificate((tmp_path / f"{name}.crt").read_bytes()))
        assert [other for other in ROLES if has_role(shown, (other,), ROLE_SETTINGS)] == [role]


def test_documented_settings_separate_roles() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    settings = parse_settings(text)
    assert findings(settings) == ()
    assert settings.tls.roles is not None
    assert settings.tls.roles.envoys == ROLE_SETTINGS.envoys
    for name, role in CLIENTS.items():
        assert f"`{role}: [{getattr(ROLE_SETTINGS, role)[0]}]`" in PAGE.read_text(), name


def context(side: int, directory: Path, name: str, authority: str) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.load_verify_locations(directory / f"{authority}.crt")
    made.load_cert_chain(directory / f"{name}.crt", directory / f"{name}.key")
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    return made


def agree(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bool:
    """Shake hands in memory, each side checking the other's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in sides:
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
    return len(done) == len(sides)
