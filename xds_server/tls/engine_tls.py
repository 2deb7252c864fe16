"""TLS of xds_server's own connections to a pool's engines, for metrics and probes, as Envoys use it."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.cause import cause_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.service.tls import CertificateProvider, Material

    EngineTls = Callable[[str], "Dial | None"]
    """Pool to the TLS of its engines; None: plaintext."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dial:
    """Authorities, our certificate if engines want one, and the name that theirs must have."""

    context: ssl.SSLContext
    server_name: str
    http1: ssl.SSLContext
    """The same, but with HTTP/1.1 as the only ALPN protocol, so that an engine without it refuses."""


def plaintext(_pool: str) -> Dial | None:
    """No pool has TLS."""
    return None


class Dials:
    """One dial per pool: the same object until its files change."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[Material, Dial]] = {}

    def of(self, entry: CertificateProvider, server_name: str) -> Dial:
        """The dial with the newest files."""
        cached = self._cache.get(entry.use)
        if cached is not None and cached[0] is entry.material and cached[1].server_name == server_name:
            return cached[1]
        http1 = _context(entry)
        http1.set_alpn_protocols(["http/1.1"])
        dial = Dial(_context(entry), server_name, http1)
        self._cache[entry.use] = (entry.material, dial)
        return dial


def _context(entry: CertificateProvider) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=entry.material.ca.decode("latin-1"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    files = entry.files
    if files.certificate_file is not None:
        try:
            context.load_cert_chain(files.certificate_file, files.key_file)
        except OSError as error:
            # The files were good a moment ago; their next change makes another context.
            logger.warning("%s: engines do not get our certificate: %s", entry.use, cause_of(error))
    return context
