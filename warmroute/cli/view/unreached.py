"""Why an admin server cannot be reached, and which option mends it."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

import aiohttp

from fleet.cause import cause_of

if TYPE_CHECKING:
    from warmroute.cli.view.tls import AdminTls

_OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes of a certificate that is for another name, or another address."""
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes of a certificate of an untrusted authority."""


def why_not_reached(error: aiohttp.ClientError, url: str, tls: AdminTls | None) -> str:
    """Return the cause, with the next step where TLS is in the way."""
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return _distrusted(inner, cause_of(error), tls)
    if isinstance(inner, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(inner):
        return "it speaks no TLS: leave out the options of TLS, and https:// in the address"
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(inner, ssl.SSLError):
        return cause_of(error)  # Nobody listens.
    if not url.startswith("https:"):
        step = "write https:// in the address" if tls is not None else "add --admin-ca"
        return (
            f"it ends the connection without an answer ({cause_of(error)}). It may speak TLS: {step}, and"
            " --admin-certificate with --admin-key where it has a client_ca_file"
        )
    if tls is not None and tls.shows_certificate:
        step = "allowed: a certificate for clients that tls.admin.client_ca_file has signed"
        return f"it does not take the certificate of --admin-certificate ({cause_of(error)}); {step}"
    return (
        f"it ends the connection ({cause_of(error)}). It may ask for a certificate: name one by"
        " --admin-certificate and --admin-key"
    )


def _distrusted(error: ssl.SSLCertVerificationError, cause: str, tls: AdminTls | None) -> str:
    if error.verify_code in _OTHER_NAME:
        name = "the host of the address" if tls is None or tls.server_name is None else repr(tls.server_name)
        return f"its certificate does not carry {name}: name one of its DNS names by --admin-name"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return f"no authority trusted here has signed its certificate ({cause}): name its own by --admin-ca"
    return cause
