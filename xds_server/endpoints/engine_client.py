"""GET to engines as clients' requests reach them: with their pool's TLS, and with the key of their API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xds_server.http1.client import Client
from xds_server.http1.keys import KeyFiles
from xds_server.signals.scrape.places import at_own_port, takes_key
from xds_server.tls.engine_tls import plaintext

if TYPE_CHECKING:
    from fleet.endpoint import Endpoint
    from xds_server.tls.engine_tls import EngineTls


class EngineClient:
    """Asks engines, each request on a connection of its own: an engine may come up as another process."""

    def __init__(self, engine_tls: EngineTls = plaintext) -> None:
        self._engine_tls = engine_tls
        self._client = Client({"Accept-Encoding": "identity", "User-Agent": "warmroute"}, keeps=False)
        self._keys = KeyFiles()

    def url(self, endpoint: Endpoint, path: str) -> str:
        """Return the URL of a path at the engine's own port."""
        scheme = "http" if self._engine_tls(endpoint.pool) is None else "https"
        return f"{scheme}://{endpoint.address}{path}"

    async def get(
        self, endpoint: Endpoint, url: str, timeout_seconds: float, most_bytes: int
    ) -> tuple[int, bytes]:
        """Return status and body, which is empty unless the status is 200.

        The TLS is for the engine's own port; for the key see `takes_key`.

        Raises:
            FetchError: there is no whole answer.
        """
        dial = self._engine_tls(endpoint.pool) if at_own_port(endpoint, url) else None
        key = await self._keys.key(endpoint.api_key_file) if takes_key(endpoint, url) else ""
        answer, body = await self._client.get(
            url, timeout_seconds, most_bytes, dial, screened=endpoint.screened, key=key
        )
        return answer.status, body
