"""One page over HTTP, within its limits; whatever goes wrong has a kind."""

from __future__ import annotations

import asyncio
import errno
import time
from typing import TYPE_CHECKING, Final, Literal, Self
from urllib.parse import urlsplit

import aiohttp

from fleet.cause import cause_of
from fleet.errors import PeerError

if TYPE_CHECKING:
    from types import TracebackType

    from fleet.endpoint import Endpoint
    from xds_server.engine_tls import Dial

FailureKind = Literal["refused", "connect", "timeout", "http_status", "too_large", "protocol"]

CONNECT_SHARE: Final = 0.9
"""Of the time for a page: without a connection until then it is told that none was made, not that the page
did not come."""
NO_ROUTE: Final = frozenset((errno.EHOSTUNREACH, errno.EHOSTDOWN))
"""Of the peer; that this host has no network (ENETUNREACH, ENETDOWN) is no word about anybody else."""
_LATE_FACTOR: Final = 1.5
"""A time-out that comes so much later than it should is our own: this process stood still."""
_CHUNK_BYTES: Final = 65_536
_MAX_REDIRECTS: Final = 3
_TCP_SECONDS: Final = 0.5
"""For a connection without a TLS handshake, to know which of both was missing."""
_OK: Final = 200

_HEADERS: Final = {
    "Accept": "text/plain;version=0.0.4,application/openmetrics-text;q=0.5",
    # Engines compress on the loop that serves their requests, and this side would undo it on the loop that
    # serves Envoys; a page that comes compressed all the same is read.
    "Accept-Encoding": "identity",
    "User-Agent": "warmroute",
}


class FetchError(PeerError):
    """A page was not read.

    `peer` is the host and port that refused, when one did; `status` that of an answer which is no page.
    `unconnected` says that no connection was made in time, `no_route` that there is no way to the host.
    """

    def __init__(
        self,
        kind: FailureKind,
        detail: str,
        peer: tuple[str, int] | None = None,
        *,
        status: int | None = None,
        unconnected: bool = False,
        no_route: bool = False,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind: FailureKind = kind
        self.peer = peer
        self.status = status
        self.unconnected = unconnected
        self.no_route = no_route


class PageFetcher:
    """Fetches pages over kept-alive connections. Make it inside a running event loop, and close it."""

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        # No limit over all hosts: one that hangs must not make the others queue for a connection.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=0),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def fetch(self, url: str, timeout_seconds: float, dial: Dial | None = None) -> bytes:
        """Return the decoded page; `dial` says how TLS is spoken, None: as the system does.

        Raises:
            FetchError: it could not be had within the time and the byte limit (counted after decoding).
        """
        began = time.monotonic()
        try:
            return await self._fetch(url, timeout_seconds, dial)
        except aiohttp.ConnectionTimeoutError as error:
            seconds = timeout_seconds * CONNECT_SHARE
            unconnected = await gives_no_connection(url, time.monotonic() - began, seconds)
            raise FetchError("connect", f"none within {seconds:g} s", unconnected=unconnected) from error
        except TimeoutError as error:
            raise FetchError("timeout", f"nothing whole within {timeout_seconds:g} s") from error
        except aiohttp.ClientConnectorError as error:
            if error.os_error.errno == errno.ECONNREFUSED:
                peer = None if error.port is None else (error.host, error.port)
                raise FetchError("refused", "the port refused the connection", peer) from error
            no_route = error.os_error.errno in NO_ROUTE
            raise FetchError("connect", cause_of(error), no_route=no_route) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # ValueError: a redirect to something that is no URL. Only the type is told: the text of some
            # of these carries the URL, and that may carry a password.
            raise FetchError("protocol", type(error).__name__) from error

    async def _fetch(self, url: str, timeout_seconds: float, dial: Dial | None) -> bytes:
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=timeout_seconds * CONNECT_SHARE)
        async with self._session.get(
            url,
            timeout=timeout,
            max_redirects=_MAX_REDIRECTS,
            # Elsewhere another name would be wanted than the pool's.
            allow_redirects=dial is None,
            ssl=True if dial is None else dial.context,
            server_hostname=None if dial is None else dial.server_name,
        ) as response:
            if response.status != _OK:
                raise FetchError("http_status", f"HTTP status {response.status}", status=response.status)
            page = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                page += chunk
                if len(page) > self._page_bytes:
                    # What is left would have to be read before the connection could be used again.
                    response.close()
                    raise FetchError("too_large", f"more than {self._page_bytes} bytes")
            return bytes(page)


async def gives_no_connection(url: str, took_seconds: float, allowed_seconds: float) -> bool:
    """Whether a try that came to no connection in the allowed time tells that the port gives none.

    Not if the time-out came late, nor if only the TLS handshake was slow: that counts in the same time.
    """
    if took_seconds > allowed_seconds * _LATE_FACTOR:
        return False
    parts = urlsplit(url)
    if parts.scheme != "https":
        return True
    try:
        async with asyncio.timeout(_TCP_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 443)
    except OSError:  # A time-out is one.
        return True
    writer.close()
    return False


def at_own_port(endpoint: Endpoint) -> bool:
    """Whether the metrics page is served by the engine itself, not by an exporter beside it."""
    try:
        url = urlsplit(endpoint.metrics_url)
        default = 443 if url.scheme == "https" else 80
        port = url.port or default
    except ValueError:
        return False
    return (url.hostname, port) == (endpoint.host, endpoint.port)
