"""The commands of docs/tls.md make certificates with which both sides know each other."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
from pathlib import Path

import pytest

from fleet.tls import Files, load

PAGE = Path(__file__).parents[2] / "docs" / "tls.md"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="runs openssl")
async def test_the_commands_make_certificates_that_can_be_used(tmp_path: Path) -> None:
    (commands,) = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    process = await asyncio.create_subprocess_exec(
        "sh", "-ec", commands, cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0
    for name in ("warmroute", "envoy", "front"):
        files = Files(
            f"{tmp_path}/{name}.crt", f"{tmp_path}/{name}.key", f"{tmp_path}/ca.crt", for_envoy=True
        )
        assert load(files).key
    server = context(ssl.PROTOCOL_TLS_SERVER, tmp_path, "warmroute")
    server.verify_mode = ssl.CERT_REQUIRED
    client = context(ssl.PROTOCOL_TLS_CLIENT, tmp_path, "envoy")
    for name, wanted in (("warmroute", True), ("llm.example.com", False)):
        assert agree(server, client, name) is wanted


def context(side: int, directory: Path, name: str) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.load_verify_locations(directory / "ca.crt")
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
            except ssl.SSLCertVerificationError:
                return False
    return len(done) == len(sides)
