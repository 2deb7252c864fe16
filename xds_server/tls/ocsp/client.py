"""Asking an OCSP responder over HTTP, within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aiohttp

from fleet.cause import cause_of
from xds_server.tls.ocsp.response import StapleError

if TYPE_CHECKING:
    from xds_server.tls.ocsp.response import Question

DEADLINE_SECONDS: Final = 10.0
_MAX_BYTES: Final = 65_536
_OK: Final = 200
_HEADERS: Final = {
    "Accept": "application/ocsp-response",
    "Content-Type": "application/ocsp-request",
    "User-Agent": "warmroute",
}


class Responders:
    """Asks them; a connection each time, as it is needed every few days. Make it inside a running loop."""

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        # Responders are outside: where that needs a proxy, the environment says so.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=deadline_seconds),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
        )
        self._deadline_seconds = deadline_seconds

    async def close(self) -> None:
        """Close what is open."""
        await self._session.close()

    async def ask(self, question: Question) -> bytes:
        """Return what the responder answers, unread.

        Raises:
            StapleError: `unreachable`, with what went wrong.
        """
        try:
            return await self._ask(question)
        except TimeoutError as error:
            text = f"{question.url} does not answer within {self._deadline_seconds:g} s"
            raise StapleError("unreachable", text) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            text = f"{question.url} cannot be asked: {cause_of(error)}"
            raise StapleError("unreachable", text) from error

    async def _ask(self, question: Question) -> bytes:
        # Whoever answers in the responder's place says nothing of whom to ask next.
        async with self._session.post(question.url, data=question.request, allow_redirects=False) as response:
            if response.status != _OK:
                raise StapleError("unreachable", f"{question.url} answers with status {response.status}")
            content = bytearray()
            async for piece in response.content.iter_chunked(_MAX_BYTES):
                content += piece
                if len(content) > _MAX_BYTES:
                    response.close()
                    raise StapleError("refused", f"{question.url} sends more than {_MAX_BYTES} bytes")
            return bytes(content)
