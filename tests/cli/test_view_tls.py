"""Verbs ask an admin server over TLS: with its authority, by another name, with a certificate of ours."""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from prometheus_client import CollectorRegistry

from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.tls import Certificates, Files
from testing.certificates import Authority, Issued
from warmroute.cli.main import main
from warmroute.cli.view.client import AdminClient, arguments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIAGNOSIS = {
    "observed": True,
    "pools": [{"pool": "p", "cause": "healthy", "healthy": True, "evidence": {}, "missing": []}],
    "endpoints": [],
}
VIEWS = {
    "/api/v1/diagnosis": lambda: DIAGNOSIS,
    "/api/v1/endpoints": lambda: {"endpoints": []},
    "/api/v1/decisions": lambda: {"picks": []},
}


class Admin:
    """The real admin server with mutual TLS, on a loop of its own, because verbs have theirs."""

    def __init__(self, directory: Path, port: int) -> None:
        self.authority = Authority(directory)
        issued = self.authority.issue("server", "warmroute")
        self.client = self.authority.issue("client")
        self.address = f"127.0.0.1:{port}"
        names = str(issued.certificate_file), str(issued.key_file), str(self.authority.file)
        certificate = Certificates().watch("admin", "tls.admin", Files(*names))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        access = Access(self.address, tls=certificate)
        self._admin = AdminServer(access, CollectorRegistry(), lambda: True, VIEWS)
        asyncio.run_coroutine_threadsafe(self._admin.start(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._admin.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def admin(tmp_path: Path, unused_tcp_port: int) -> Iterator[Admin]:
    made = Admin(tmp_path, unused_tcp_port)
    yield made
    made.stop()


def shown(issued: Issued) -> list[str]:
    return ["--admin-certificate", str(issued.certificate_file), "--admin-key", str(issued.key_file)]


def trusting(authority: Authority, name: str = "warmroute") -> list[str]:
    return ["--admin-ca", str(authority.file), "--admin-name", name]


@pytest.mark.parametrize("verb", ["diagnose", "top", "explain"])
def test_verbs_ask_over_mutual_tls(
    admin: Admin, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a scheme HTTPS is meant; the certificate's name is not the address."""
    words = [verb, *(["127.0.0.1:1"] if verb == "explain" else []), "--json"]
    ask = [*words, "--admin", admin.address, *trusting(admin.authority), *shown(admin.client)]
    if verb == "explain":
        ask += ["--ext-proc-admin", admin.address]
        # It answers, and knows nothing of the endpoint.
        assert main(ask) == 1
        assert "nothing is known" in capsys.readouterr().err
        return
    assert main(ask) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("wrong", ["authority", "name", "certificate", "plain"])
def test_whoever_is_not_meant_gets_and_gives_nothing(
    admin: Admin, tmp_path: Path, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = Authority(tmp_path, "stranger")
    whom = trusting(
        stranger if wrong == "authority" else admin.authority, "other" if wrong == "name" else "warmroute"
    )
    own = [] if wrong == "certificate" else shown(admin.client)
    url = f"http://{admin.address}" if wrong == "plain" else f"https://{admin.address}"
    assert main(["diagnose", "--admin", url, *whom, *own]) == 2
    assert "cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "words", "step"),
    [
        ("https://{}", "", "no authority trusted here has signed its certificate (TLS: "),
        (
            "https://{}",
            "--admin-ca {ca} {own} --admin-name zzz",
            "does not carry 'zzz': name one of its DNS names by",
        ),
        ("https://{}", "{own}", "name its own by --admin-ca"),
        ("{}", "", "It may speak TLS: add --admin-ca, and --admin-certificate with --admin-key where it"),
        ("http://{}", "--admin-ca {ca} {own}", "It may speak TLS: write https:// in the address"),
        (
            "{}",
            "--admin-ca {ca}",
            "It may ask for a certificate: name one by --admin-certificate and --admin-key",
        ),
        (
            "{}",
            "--admin-ca {ca} {strange}",
            "a certificate for clients that tls.admin.client_ca_file has signed",
        ),
    ],
)
def test_a_tls_failure_names_the_option_that_mends_it(
    admin: Admin, tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str, words: str, step: str
) -> None:
    strange = Authority(tmp_path, "stranger").issue("strange")
    words = words.format(
        ca=admin.authority.file, own=" ".join(shown(admin.client)), strange=" ".join(shown(strange))
    )
    assert main(["diagnose", "--admin", url.format(admin.address), *words.split()]) == 2
    errors = capsys.readouterr().err
    assert (
        f"https://{admin.address} cannot be reached: " in errors or f"http://{admin.address} cannot" in errors
    )
    assert step in errors


def test_the_name_is_that_of_the_recipe(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    """As it is for --control-name and for `server_name`: the address may be anything."""
    words = ["--admin-ca", str(admin.authority.file), *shown(admin.client)]
    assert main(["diagnose", "--admin", admin.address, *words]) == 0


def test_the_default_address_uses_tls_with_a_tls_option(
    admin: Admin, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both servers that `explain` asks."""
    words = ["--admin-ca", str(admin.authority.file), *shown(admin.client)]
    monkeypatch.setattr("warmroute.cli.view.client.DEFAULT_ADMIN", admin.address)
    assert main(["diagnose", *words]) == 0
    for closed in ("127.0.0.1:1", "https://127.0.0.1:1"):
        monkeypatch.setattr("warmroute.cli.explain.DEFAULT_EXT_PROC_ADMIN", closed.rpartition("/")[2])
        at = closed.replace("127.0.0.1:1", admin.address)
        monkeypatch.setitem(VIEWS, "/api/v1/decisions", dict)
        assert main(["explain", "127.0.0.1:1", "--admin", at, *(words if closed[0] != "h" else [])]) != 0
        assert "http://127.0.0.1" not in capsys.readouterr().err


@pytest.mark.parametrize("what", ["half", "absent", "no ca", "password", "not pem"])
def test_unusable_files_are_reported_in_one_line(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    issued = Authority(tmp_path).issue("client")
    words = shown(issued)
    if what == "half":
        words = words[:2]
    elif what == "absent":
        issued.key_file.unlink()
    elif what == "no ca":
        words = ["--admin-ca", str(tmp_path / "none")]
    elif what == "not pem":
        issued.certificate_file.write_text("x")
    else:
        locked = issued.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        issued.key_file.write_bytes(locked)
    assert main(["diagnose", "--admin", "https://127.0.0.1:1", *words]) == 2
    errors = capsys.readouterr().err.strip()
    assert errors.startswith("warmroute")
    assert "\n" not in errors
    assert "Errno" not in errors
    assert "_ssl.c" not in errors
    assert "--admin-" in errors
    assert what == "half" or str(tmp_path) in errors


def test_a_key_of_another_certificate_names_its_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    issued, other = authority.issue("client"), authority.issue("other")
    words = ["--admin-certificate", str(issued.certificate_file), "--admin-key", str(other.key_file)]
    assert main(["top", "--once", *words]) == 2
    errors = capsys.readouterr().err
    assert f"--admin-key: '{other.key_file}' is not the key of the first certificate in" in errors
    assert str(issued.certificate_file) in errors


def test_without_arguments_nothing_is_changed() -> None:
    parser = argparse.ArgumentParser()
    arguments(parser)
    assert AdminClient.of(parser.parse_args([])).url.startswith("http://")
