"""Against doors with TLS: handshakes that never end, and sessions of clients with expired certificates.

None of the first shows a certificate. The doors are `xds.address`, `ext_proc.address`, `control.address` and
the admin addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Final

from bench.abuse.sending import send
from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.abuse.sending import Sent

HTTP1: Final = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
HTTP2: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""What makes a server speak: over TLS 1.3 only its first response shows that it accepts the client."""
_RECORD: Final = b"\x16\x03\x01\x40\x00" + b"\x01\x00\x3f\xfc" + b"x" * 4096


def _hello() -> bytes:
    """Return a client's first message."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2", "http/1.1"])
    from_server, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(from_server, to_server, server_hostname="warmroute")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return to_server.read()


KINDS: Final[dict[str, Callable[[bytes], list[bytes]]]] = {
    "silent": lambda _: [],
    "half": lambda hello: [hello[: len(hello) // 2]],
    "hello": lambda hello: [hello],
    "drip": lambda hello: [hello[i : i + 1] for i in range(len(hello) - 1)],
    "large": lambda _: [_RECORD],
    "plain": lambda _: [HTTP2],
}
"""The parts to send of a client's first message; afterwards the client is silent."""


async def attack(
    address: str,
    kind: str,
    *,
    connections: int = 1000,
    most_bytes: int = 64 << 20,
    seconds: float = 10.0,
    pause_seconds: float = 0.05,
) -> int:
    """Keep connections of one of `KINDS` open, as many as the server accepts."""
    host, port = split_host_port(address)
    pieces = KINDS[kind](_hello())

    async def connect(sent: Sent) -> None:
        reader, writer = await asyncio.open_connection(host, port, limit=1024)
        try:
            for piece in pieces:
                if sent.full or writer.transport.is_closing():
                    break
                writer.write(piece)
                sent.add(piece)
                await writer.drain()
                if len(pieces) > 1:
                    await asyncio.sleep(pause_seconds)
            while await reader.read(1024):
                pass
        finally:
            writer.transport.abort()

    return await send(connect, connections=connections, most_bytes=most_bytes, seconds=seconds, again=False)


class Resuming:
    """A client that comes back with the session of its last connection, whether it is still let in or not."""

    def __init__(
        self, certificate_file: Path, key_file: Path, *, version: ssl.TLSVersion, http2: bool
    ) -> None:
        """It does not check the server: it is the attacker."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._context.minimum_version = self._context.maximum_version = version
        self._context.load_cert_chain(certificate_file, key_file)
        self._hello = HTTP2 if http2 else HTTP1
        if http2:
            self._context.set_alpn_protocols(["h2"])
        self._session: ssl.SSLSession | None = None
        self.resumed = False
        """Whether the last connection had the session of the one before."""

    async def gets_in(self, address: str, *, seconds: float = 10.0) -> bool:
        """Connect and say the first words; returns whether the server answers."""
        host, port = split_host_port(address)
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), seconds)
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        # By hand, because asyncio takes no session.
        client = self._context.wrap_bio(
            to_client, to_server, server_hostname="warmroute", session=self._session
        )
        said = False
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(ssl.SSLWantReadError):
                        if not said:
                            client.do_handshake()
                            said = bool(client.write(self._hello))
                        if client.read(1):
                            self._session, self.resumed = client.session, bool(client.session_reused)
                            return True
                        return False
                    writer.write(to_server.read())
                    await writer.drain()
                    if not (piece := await reader.read(65_536)):
                        return False
                    to_client.write(piece)
        except OSError:
            return False
        finally:
            writer.transport.abort()
