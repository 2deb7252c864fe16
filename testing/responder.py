"""A small OCSP responder on loopback, for tests: what it answers can be changed, and it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp

if TYPE_CHECKING:
    from testing.certificates import Authority, Issued


class Responder:
    """Answers about the certificates of one authority; an async context manager."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.by_serial: dict[int, Issued] = {}
        """Certificates by serial number; the answer about any other is `unauthorized`."""
        self.status = ocsp.OCSPCertStatus.GOOD
        self.hours = 1.0
        self.signer: Issued | None = None
        """Signs in place of the authority."""
        self.http_status = 200
        self.requests = 0
        self.url = ""
        self._runner: web.AppRunner | None = None

    def know(self, issued: Issued) -> Issued:
        """Answer about this certificate too."""
        self.by_serial[issued.certificate.serial_number] = issued
        return issued

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        application = web.Application()
        application.router.add_post("/", self._answer)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Listen no more."""
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.requests += 1
        if self.http_status != web.HTTPOk.status_code:
            return web.Response(status=self.http_status)
        ocsp_request = ocsp.load_der_ocsp_request(await request.read())
        issued = self.by_serial.get(ocsp_request.serial_number)
        if issued is None:
            answer = ocsp.OCSPResponseBuilder.build_unsuccessful(ocsp.OCSPResponseStatus.UNAUTHORIZED)
            body = answer.public_bytes(Encoding.DER)
        else:
            body = self.authority.staple(
                issued.certificate, hours=self.hours, status=self.status, signer=self.signer
            )
        return web.Response(body=body, content_type="application/ocsp-response")
