"""Causes as operators read them: the system's words, without what libraries put around them."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from fleet.cause import cause_of

if TYPE_CHECKING:
    from pathlib import Path

KEY = ConnectionKey("10.0.0.1", 8000, False, True, None, None, None)
CERTIFICATE = ssl.SSLCertVerificationError(1, "certificate verify failed")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "permission denied"),
        (PermissionError(errno.EACCES, "Permission denied", "/run/x"), "/run/x: permission denied"),
        (OSError(errno.EADDRINUSE, "error while attempting to bind on ('::1', 9)"), "address already in use"),
        (OSError("larger than 5 bytes"), "larger than 5 bytes"),
        (TimeoutError(), "no answer in time"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (
            aiohttp.ClientConnectorError(KEY, ConnectionRefusedError(111, "Connect call failed")),
            "connection refused",
        ),
        (
            aiohttp.ClientConnectorDNSError(KEY, OSError(None, "Domain name not found")),
            "Domain name not found",
        ),
        (aiohttp.ServerDisconnectedError(), "Server disconnected"),
        (aiohttp.ClientPayloadError(), "ClientPayloadError"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)"), "TLS: "),
        (aiohttp.ClientConnectorCertificateError(KEY, CERTIFICATE), "TLS: "),
    ],
)
def test_cause_has_the_systems_words(error: BaseException, expected: str) -> None:
    text = cause_of(error)
    assert text.startswith(expected) if expected == "TLS: " else text == expected
    assert "Errno" not in text
    assert "ssl:" not in text


def test_a_real_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        (tmp_path / "x").read_text()
    assert cause_of(raised.value) == f"{tmp_path}/x: no such file or directory"
