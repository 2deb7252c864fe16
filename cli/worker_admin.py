"""What a parent asks its workers' admin servers: who is ready, and which picks they remember."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from prometheus_client import Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from fleet.admin import Query
    from fleet.admin_access import TokenFile
    from fleet.tls import Held

_LOOK_SECONDS: Final = 0.25
_TIMEOUT: Final = aiohttp.ClientTimeout(total=1.0)
_TROUBLES: Final = (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError)


class WorkerAdmins:
    """`ready` tells of each worker whether it answers that it is. Without admin addresses nobody is."""

    def __init__(
        self,
        addresses: Sequence[str],
        token: TokenFile | None,
        registry: CollectorRegistry,
        tls: Held | None = None,
    ) -> None:
        self._tls = tls
        self._addresses = tuple(addresses)
        self._token = token
        self.ready = [False] * len(self._addresses)
        gauge = Gauge(
            "warmroute_worker_processes_ready", "ext_proc workers that are ready", registry=registry
        )
        gauge.set_function(lambda: sum(self.ready))
        self._session: aiohttp.ClientSession | None = None

    async def run(self) -> None:
        """Look again and again until cancelled."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as self._session:
            while any(self._addresses):
                self.ready = list(await asyncio.gather(*map(self._is_ready, self._addresses)))
                await asyncio.sleep(_LOOK_SECONDS)

    def forget(self, number: int) -> None:
        """Take a worker for not ready until it is asked again: its process has ended."""
        self.ready[number] = False

    async def decisions(self, query: Query) -> Mapping[str, Any]:
        """Join the picks that the workers remember, newest first; who does not answer tells nothing."""
        told = await asyncio.gather(*(self._picks(number, query) for number in range(len(self._addresses))))
        picks = sorted(
            (pick for part in told for pick in part), key=lambda pick: str(pick["at"]), reverse=True
        )
        return {"picks": picks[: query.limit]}

    @property
    def _scheme(self) -> str:
        return "http" if self._tls is None else "https"

    @property
    def _ssl(self) -> aiohttp.Fingerprint | bool:
        """The workers' certificate is our own, whatever name they are reached by and whoever signed it."""
        if self._tls is None:
            return True
        leaf = x509.load_pem_x509_certificate(self._tls.material.certificate)
        return aiohttp.Fingerprint(leaf.fingerprint(hashes.SHA256()))

    async def _is_ready(self, address: str) -> bool:
        assert self._session is not None
        try:
            async with self._session.get(f"{self._scheme}://{address}/readyz", ssl=self._ssl) as response:
                return response.status == 200
        except _TROUBLES:
            return False

    async def _picks(self, number: int, query: Query) -> list[dict[str, Any]]:
        if self._session is None:
            return []
        params = {"limit": str(query.limit)}
        params |= {"endpoint": query.endpoint} if query.endpoint else {}
        params |= {"request": query.request} if query.request else {}
        headers = {"authorization": f"Bearer {self._token.token.decode('latin-1')}"} if self._token else {}
        url = f"{self._scheme}://{self._addresses[number]}/api/v1/decisions"
        try:
            async with self._session.get(url, params=params, headers=headers, ssl=self._ssl) as response:
                told = msgspec.json.decode(await response.read()) if response.status == 200 else {}
        except _TROUBLES:
            return []
        return [{**pick, "worker": number} for pick in told.get("picks", ())]
