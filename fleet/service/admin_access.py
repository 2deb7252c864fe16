"""Access to the admin server: by a token; without one, on loopback only, and not for web pages.

A page in a browser on the same host can reach loopback too. Three rules keep it out. A request from another
site is refused. A change must be JSON, which another site may not send without a preflight. The name in
`Host` must be an address, a name of this host or one in the server's certificate; any other name could be
made to resolve to this host.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509

from fleet.cause import cause_of
from fleet.errors import SettingsError
from fleet.service.credentials import certificate_provider, gate_of
from fleet.service.files import signature
from fleet.service.roles import PeerNames
from fleet.settings.address import is_local, split_host_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.service.gate import Gate
    from fleet.service.tls import CertificateProvider, Certificates
    from fleet.settings import Settings

logger = logging.getLogger(__name__)

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""For health checks, which have no token."""
_MAX_TOKEN_BYTES: Final = 4096
_SCHEME: Final = "bearer "
_HERE: Final = ("none", "same-origin")
"""Values of Sec-Fetch-Site: from the address bar, or from the admin server's own page."""


class TokenFile:
    """The token in a file, read again when the file changes, for rotation."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            SettingsError: the file cannot be read, is empty, or is too long.
        """
        self._path = path
        self._signature = signature(path)
        self._token = _token(path)

    @property
    def token(self) -> bytes:
        """The current token. While a changed file cannot be used, the former token stays valid."""
        changed = signature(self._path)
        if changed != self._signature:
            self._signature = changed
            try:
                self._token = _token(self._path)
            except SettingsError as error:
                logger.warning("the admin token from before stays in force: %s", error)
        return self._token


class Access:
    """The address of an HTTP server, and the rules for its clients."""

    def __init__(
        self,
        address: str,
        token: TokenFile | None = None,
        tls: CertificateProvider | None = None,
        *,
        field: str = "admin.address",
        gate: Gate | None = None,
    ) -> None:
        """`field` is the setting or option that `address` comes from; without `tls` it speaks plaintext.

        Clients may also call the server by the names in its certificate. `gate` checks the names in theirs.
        """
        self.address = address
        self.field = field
        self.token = token
        self.tls = tls
        self.gate = gate
        self._local = not address or is_local(address)
        own = {"localhost", socket.gethostname().lower()}
        if address:
            own.add(split_host_port(address)[0].lower())
        self._names = frozenset(own)

    @classmethod
    def of(cls, settings: Settings, field: str, certificates: Certificates) -> Access:
        """Return the access to the admin server at `field`, one of the addresses in `settings.admin`.

        Raises:
            SettingsError: the token's file or the certificate's files cannot be used.
        """
        address: str = getattr(settings.admin, field.partition(".")[2])
        path = settings.admin.token_file
        return cls(
            address,
            TokenFile(Path(path)) if path and address else None,
            certificate_provider(certificates, settings, "admin"),
            field=field,
            gate=gate_of(certificates, settings, "admin"),
        )

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return status and text for a refused request, otherwise None. `headers` ignores case."""
        if path in OPEN_PATHS and method in ("GET", "HEAD"):
            return None
        if (refused := self._foreign(headers)) is not None:
            return refused
        if self.token is not None:
            if not _bears(headers.get("authorization", ""), self.token.token):
                return 401, "`authorization: Bearer TOKEN` with the token of admin.token_file is needed"
        elif not self._local:
            return 403, "beyond loopback a token is needed: admin.token_file"
        elif (refused := self.web_page(headers)) is not None:
            return refused
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return 415, "content-type must be application/json"
        return None

    def web_page(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return status and text for a request that may come from a browser's page, otherwise None."""
        if (refused := self._foreign(headers)) is not None:
            return refused
        if not self._own(headers.get("host", "")):
            return (
                403,
                "the name in `host` is none of this host's: use its address, or a name in its certificate",
            )
        return None

    def _foreign(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Refuse requests of a browser for pages of other sites."""
        if headers.get("sec-fetch-site", "none") not in _HERE:
            return 403, "requests from other sites' pages are refused"
        origin = headers.get("origin", "")
        if origin and origin.partition("://")[2] != headers.get("host", ""):
            return 403, "requests from other sites' pages are refused"
        return None

    def _own(self, host: str) -> bool:
        before, _, port = host.rpartition(":")
        name = (before if port.isdigit() else host).strip("[]").lower()
        if not name or name in self._names:
            return True  # Browsers always send a name.
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._certified()
        return True

    def _certified(self) -> frozenset[str]:
        """Return names that no other site can have: a browser has verified the certificate for them."""
        if self.tls is None:
            return frozenset()
        leaf = x509.load_pem_x509_certificate(self.tls.material.certificate)
        return frozenset(name.lower() for name in PeerNames.of(leaf).dns)


def _bears(authorization: str, token: bytes) -> bool:
    if not authorization.lower().startswith(_SCHEME):
        return False
    presented = authorization[len(_SCHEME) :].strip().encode("utf-8", "surrogateescape")
    return hmac.compare_digest(presented, token)


def _token(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            token = file.read(_MAX_TOKEN_BYTES + 1).strip()
    except OSError as error:
        allowed = "a file that this user may read, with the token"
        raise SettingsError([f"admin.token_file: {cause_of(error)}; allowed: {allowed}"]) from error
    if not token or len(token) > _MAX_TOKEN_BYTES:
        raise SettingsError(
            [f"admin.token_file: {path}; allowed: a file that holds a token of 1 to {_MAX_TOKEN_BYTES} bytes"]
        )
    return token
