"""One page over HTTP, within its limits; whatever goes wrong has a kind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urljoin, urlsplit

from xds_server.http1.client import Client, FetchError
from xds_server.http1.place import Place, read_place

if TYPE_CHECKING:
    from types import TracebackType

    from xds_server.tls.engine_tls import Dial

_MAX_REDIRECTS: Final = 3
_MAX_LOCATION: Final = 2048
"""Characters of where a redirect leads."""
_OK: Final = 200
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))

_HEADERS: Final = {
    "Accept": "text/plain;version=0.0.4,application/openmetrics-text;q=0.5",
    # Engines compress on the loop that serves their requests, and this side would undo it; a page that comes
    # compressed all the same is read.
    "Accept-Encoding": "identity",
    "User-Agent": "warmroute",
}


class PageFetcher:
    """Fetches pages over kept-alive connections. Close it in the end."""

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        self._client = Client(_HEADERS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    async def fetch(
        self,
        url: str,
        timeout_seconds: float,
        dial: Dial | None = None,
        *,
        screened: bool = False,
        key: str = "",
    ) -> bytes:
        """Return the decoded page; `dial` says how TLS is spoken, None: as the system does.

        With `screened` no special address is dialled. `key` is that of the server's API; empty: none.

        Raises:
            FetchError: it could not be had within the time and the byte limit.
        """
        deadline = time.monotonic() + timeout_seconds
        place: str | Place = url
        for _ in range(_MAX_REDIRECTS + 1):
            left = deadline - time.monotonic()
            answer, page = await self._client.get(
                place, left, self._page_bytes, dial, screened=screened, key=key
            )
            if answer.status == _OK:
                return page
            if answer.status not in _REDIRECTS:
                raise FetchError("http_status", f"HTTP status {answer.status}", status=answer.status)
            url, place = _followed(url, answer.location)
        raise FetchError("protocol", f"more than {_MAX_REDIRECTS} redirects")


def _followed(url: str, location: str) -> tuple[str, Place]:
    """Return where a redirect leads, which may be another path: a web framework adds a slash.

    Raises:
        FetchError: it leads elsewhere, or is long. A peer does not choose which hosts this process dials.
    """
    if len(location) > _MAX_LOCATION:
        raise FetchError("protocol", f"a redirect of {len(location)} characters; allowed: {_MAX_LOCATION}")
    try:
        here, parts = read_place(url), urlsplit(urljoin(url, location))
        there = read_place(parts.geturl())
        same = (here.secure, here.host, here.port) == (there.secure, there.host, there.port)
    except ValueError:
        same = False
    if not same or not location:
        text = "a redirect to another host or port is not followed; set metrics_url to where the page is"
        raise FetchError("protocol", text)
    user, at, _ = urlsplit(url).netloc.rpartition("@")
    target = parts._replace(netloc=f"{user}{at}{parts.netloc.rpartition('@')[2]}").geturl()
    return target, read_place(target)
