"""A blocking TLS client that makes full and resumed handshakes, and says which one it was."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final

from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_SECONDS: Final = 10.0


class Client:
    """Connects to one port with one version of TLS."""

    def __init__(self, port: int, host: str, version: ssl.TLSVersion, authorities: Path) -> None:
        self._host = host
        self._address = ("127.0.0.1", port)
        self._context = ssl.create_default_context(cafile=str(authorities))
        self._context.minimum_version = self._context.maximum_version = version
        self._session: ssl.SSLSession | None = None

    def prime(self) -> None:
        """Get the session that `resumed` resumes; TLS 1.3 brings it with the first answer."""
        with self._connection() as plain, self._handshake(plain, None) as secure:
            secure.sendall(f"GET / HTTP/1.1\r\nhost: {self._host}\r\n\r\n".encode())
            secure.recv(1)
            self._session = secure.session

    def full(self) -> None:
        """One full handshake.

        Raises:
            BenchError: it was none.
        """
        self._connect(None, resumes=False)

    def resumed(self) -> None:
        """One handshake that resumes the session.

        Raises:
            BenchError: it was a full one.
        """
        self._connect(self._session, resumes=True)

    def bare(self) -> None:
        """One connection that ends before any handshake."""
        with self._connection() as plain:
            plain.shutdown(socket.SHUT_WR)
            plain.recv(1)

    def _connect(self, session: ssl.SSLSession | None, *, resumes: bool) -> None:
        with self._connection() as plain:
            secure = self._handshake(plain, session)
            resumed = secure.session_reused
            secure.unwrap().close()
        if resumed is not resumes:
            raise BenchError(f"a handshake was {'full' if resumes else 'resumed'}")

    def _connection(self) -> socket.socket:
        plain = socket.create_connection(self._address, _TIMEOUT_SECONDS)
        # The end of the handshake and `close_notify` are two small writes: neither may wait for an ACK.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return plain

    def _handshake(self, plain: socket.socket, session: ssl.SSLSession | None) -> ssl.SSLSocket:
        return self._context.wrap_socket(plain, server_hostname=self._host, session=session)
