"""A parent's queries to its workers' admin servers: readiness and remembered picks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from prometheus_client import Gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from fleet.service.admin import Query
    from fleet.service.admin_access import TokenFile
    from fleet.service.tls import CertificateProvider, Material

_LOOK_SECONDS: Final = 0.25
_TIMEOUT: Final = aiohttp.ClientTimeout(total=1.0)
_OK: Final = 200
_BOTH_SECONDS: Final = 10.0
"""Several times the delay of each process until it sees new files."""
_TROUBLES: Final = (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError)


class Pins:
    """Pins the workers' certificate to our own, regardless of its names and its authority.

    Parent and workers reload files at different moments, so the previous one stays valid for a while.
    """

    def __init__(self, certificate: CertificateProvider, clock: Callable[[], float] = time.monotonic) -> None:
        self._certificate = certificate
        self._clock = clock
        self._material = certificate.material
        self._newest = _fingerprint(certificate.material)
        self._before: aiohttp.Fingerprint | None = None
        self._until = 0.0

    def now(self) -> tuple[aiohttp.Fingerprint, ...]:
        """Those that are good, newest first: the same objects, as connections are kept by them."""
        material = self._certificate.material
        if material is not self._material:
            self._before, self._until = self._newest, self._clock() + _BOTH_SECONDS
            self._material, self._newest = material, _fingerprint(material)
        if self._before is None or self._clock() >= self._until:
            return (self._newest,)
        return (self._newest, self._before)


def _fingerprint(material: Material) -> aiohttp.Fingerprint:
    leaf = x509.load_pem_x509_certificate(material.certificate)
    return aiohttp.Fingerprint(leaf.fingerprint(hashes.SHA256()))


class WorkerAdmins:
    """`ready` has each worker's readiness; without admin addresses no worker is ready."""

    def __init__(
        self,
        addresses: Sequence[str],
        token: TokenFile | None,
        registry: CollectorRegistry,
        tls: CertificateProvider | None = None,
    ) -> None:
        self._pins = None if tls is None else Pins(tls)
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
        """Count a worker as not ready until the next probe: its process has ended."""
        self.ready[number] = False

    async def decisions(self, query: Query) -> Mapping[str, Any]:
        """Join the workers' picks, newest first, and KV events; a worker without an answer adds none."""
        documents = await asyncio.gather(
            *(self._decisions(number, query) for number in range(len(self._addresses)))
        )

        def joined(part: str) -> list[dict[str, Any]]:
            numbered = enumerate(documents)
            return [{**entry, "worker": number} for number, d in numbered for entry in d.get(part, ())]

        picks = sorted(joined("picks"), key=lambda pick: str(pick["at"]), reverse=True)
        kv_events = joined("kv_events")
        return {"picks": picks[: query.limit], **({"kv_events": kv_events} if kv_events else {})}

    @property
    def _scheme(self) -> str:
        return "http" if self._pins is None else "https"

    async def _get(self, url: str, **more: Any) -> tuple[int, bytes]:
        """Return status and body.

        Raises:
            aiohttp.ClientError: there is no answer, or its certificate is another one.
            TimeoutError: the answer is not in time.
        """
        assert self._session is not None
        *others, last = (True,) if self._pins is None else self._pins.now()
        for pin in others:
            with contextlib.suppress(aiohttp.ServerFingerprintMismatch):
                async with self._session.get(url, ssl=pin, allow_redirects=False, **more) as response:
                    return response.status, await response.read()
        async with self._session.get(url, ssl=last, allow_redirects=False, **more) as response:
            return response.status, await response.read()

    async def _is_ready(self, address: str) -> bool:
        try:
            status, _ = await self._get(f"{self._scheme}://{address}/readyz")
        except _TROUBLES:
            return False
        return status == _OK

    async def _decisions(self, number: int, query: Query) -> dict[str, Any]:
        if self._session is None:
            return {}
        params = {"limit": str(query.limit)}
        params |= {"endpoint": query.endpoint} if query.endpoint else {}
        params |= {"request": query.request} if query.request else {}
        headers = {"authorization": f"Bearer {self._token.token.decode('latin-1')}"} if self._token else {}
        url = f"{self._scheme}://{self._addresses[number]}/api/v1/decisions"
        try:
            status, body = await self._get(url, params=params, headers=headers)
            return msgspec.json.decode(body, type=dict[str, Any]) if status == _OK else {}
        except _TROUBLES:
            return {}
