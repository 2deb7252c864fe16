"""OCSP requests over HTTP, within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aiohttp

from fleet.cause import cause_of
from xds_server.tls.ocsp.response import StapleError

if TYPE_CHECKING:
    from xds_server.tls.ocsp.response import OcspRequest

DEADLINE_SECONDS: Final = 10.0
_MAX_BYTES: Final = 65_536
_OK: Final = 200
_HEADERS: Final = {
    "Accept": "application/ocsp-response",
    "Content-Type": "application/ocsp-request",
    "User-Agent": "warmroute",
}


class OcspClient:
    """Sends requests, each on a new connection, as they are days apart. Create it inside a running loop."""

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        # Responders are on the internet: the environment names a proxy if one is needed.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=deadline_seconds),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
        )
        self._deadline_seconds = deadline_seconds

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()

    async def fetch(self, request: OcspRequest) -> bytes:
        """Return the responder's answer in DER.

        Raises:
            StapleError: `unreachable`, with the cause.
        """
        try:
            return await self._fetch(request)
        except TimeoutError as error:
            text = f"{request.url} does not answer within {self._deadline_seconds:g} s"
            raise StapleError("unreachable", text) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            text = f"{request.url} cannot be reached: {cause_of(error)}"
            raise StapleError("unreachable", text) from error

    async def _fetch(self, request: OcspRequest) -> bytes:
        # A redirect may come from something else at the responder's address.
        async with self._session.post(request.url, data=request.der, allow_redirects=False) as response:
            if response.status != _OK:
                raise StapleError("unreachable", f"{request.url} answers with status {response.status}")
            content = bytearray()
            async for piece in response.content.iter_chunked(_MAX_BYTES):
                content += piece
                if len(content) > _MAX_BYTES:
                    response.close()
                    raise StapleError("refused", f"{request.url} sends more than {_MAX_BYTES} bytes")
            return bytes(content)
