"""Who may use the admin server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from multidict import CIMultiDict

from fleet.errors import SettingsError
from fleet.service.admin_access import Access, TokenFile
from fleet.service.tls import Certificates, Files
from testing.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK = "127.0.0.1:19000"
EXPOSED = "0.0.0.0:19000"
JSON = {"content-type": "application/json"}
TOKEN = "s3cret"


def status(access: Access, method: str = "GET", path: str = "/api/v1/weights", **headers: str) -> int:
    sent = {"host": LOOPBACK} | {name.replace("_", "-"): value for name, value in headers.items()}
    refused = access.refusal(method, path, CIMultiDict(sent))
    return 200 if refused is None else refused[0]


@pytest.fixture
def guarded(tmp_path: Path) -> TokenFile:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return TokenFile(path)


def test_loopback_without_a_token_is_open_to_programs() -> None:
    access = Access(LOOPBACK)
    assert status(access) == 200
    assert status(access, "POST", **{"content-type": "application/json; charset=utf-8"}) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"host": "evil.example:19000"},
        {"host": "evil.example"},
    ],
)
def test_pages_of_other_sites_are_kept_out(headers: dict[str, str]) -> None:
    """Reading is refused as well: a name that is made to point here makes every page same-origin."""
    for method in ("GET", "POST"):
        assert status(Access(LOOPBACK), method, **JSON, **headers) == 403


@pytest.mark.parametrize(
    "host", [LOOPBACK, "localhost:19000", "localhost", "[::1]:19000", "[::1]", "10.1.2.3:1"]
)
def test_addresses_and_own_names_are_good_hosts(host: str) -> None:
    assert status(Access(LOOPBACK), host=host) == 200


def test_names_in_the_servers_certificate_are_good_hosts(tmp_path: Path) -> None:
    """A browser takes no other site for them. Clients that check names have to use them."""
    issued = Authority(tmp_path).issue("server", "warmroute", "Admin.example.com")
    files = Files(str(issued.certificate_file), str(issued.key_file))
    access = Access(LOOPBACK, tls=Certificates().watch("admin", "tls.admin", files))
    for host in ("warmroute:19000", "WARMROUTE", "admin.example.com:19000", LOOPBACK):
        assert status(access, host=host) == 200
    assert status(access, host="evil.example:19000") == 403
    assert status(Access(LOOPBACK), host="warmroute:19000") == 403


def test_the_own_page_may_do_what_programs_may() -> None:
    same = {"origin": f"http://{LOOPBACK}", "sec_fetch_site": "same-origin"}
    assert status(Access(LOOPBACK), "POST", **JSON, **same) == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_changes_must_be_json(kind: str) -> None:
    """Other kinds may be sent by any page without asking."""
    assert status(Access(LOOPBACK), "POST", content_type=kind) == 415


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN} ", 200),
        ("", 401),
        ("Bearer", 401),
        (f"Bearer {TOKEN}x", 401),
        ("Bearer \udcff", 401),
        (f"Basic {TOKEN}", 401),
    ],
)
@pytest.mark.parametrize("address", [LOOPBACK, EXPOSED])
def test_a_token_is_needed_where_there_is_one(
    guarded: TokenFile, address: str, authorization: str, expected: int
) -> None:
    access = Access(address, guarded)
    assert status(access, authorization=authorization, host="warmroute.example") == expected
    assert status(access, "POST", **JSON, authorization=authorization) == expected


def test_health_is_open_and_the_rest_needs_a_token(guarded: TokenFile) -> None:
    for access in (Access(EXPOSED), Access(EXPOSED, guarded)):
        assert status(access, path="/healthz") == status(access, path="/readyz") == 200
        assert status(access, path="/metrics") in (401, 403)


def test_changed_token_applies_and_broken_file_does_not(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    file = TokenFile(path)
    assert file.token == b"one"
    path.write_text("another")
    assert file.token == b"another"
    path.write_text("")
    assert file.token == b"another"
    path.unlink()
    assert file.token == b"another"
    path.write_text("third")
    os.utime(path, ns=(1, 1))
    assert file.token == b"third"


@pytest.mark.parametrize("content", ["", " \n", "x" * 5000, None])
def test_a_token_file_that_cannot_be_used_stops_the_start(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match=r"admin\.token_file"):
        TokenFile(path)
