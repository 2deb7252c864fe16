"""How xds_server itself speaks TLS to a pool's engines, for metrics and probes: as Envoys do."""

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
    """Pool to how its engines are spoken to; None: in plaintext."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dial:
    """Authorities, our certificate if engines want one, and the name that theirs must carry."""

    context: ssl.SSLContext
    server_name: str
    http1: ssl.SSLContext
    """The same, but offering HTTP/1.1 alone (ALPN): an engine without it says so."""


def plaintext(_pool: str) -> Dial | None:
    """No pool has TLS."""
    return None


class Dials:
    """A dial for each pool: the same object until its files change."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Material, Dial]] = {}

    def of(self, held: CertificateProvider, server_name: str) -> Dial:
        """The dial with the newest files."""
        known = self._made.get(held.use)
        if known is not None and known[0] is held.material and known[1].server_name == server_name:
            return known[1]
        http1 = _context(held)
        http1.set_alpn_protocols(["http/1.1"])
        dial = Dial(_context(held), server_name, http1)
        self._made[held.use] = (held.material, dial)
        return dial


def _context(held: CertificateProvider) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=held.material.ca.decode("latin-1"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    files = held.files
    if files.certificate_file is not None:
        try:
            context.load_cert_chain(files.certificate_file, files.key_file)
        except OSError as error:
            # They are read a moment after they were found good; the next change makes another context.
            logger.warning("%s: engines are asked without our certificate: %s", held.use, cause_of(error))
    return context
