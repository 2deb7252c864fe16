"""The cause of an error in the system's words, without the numbers and terms that libraries add."""

from __future__ import annotations

import os


def cause_of(error: BaseException) -> str:
    """Return the cause as text for an operator.

    The text of an `OSError` with a file names the file. The text of an aiohttp error is that of the system or
    of the TLS handshake: aiohttp's own mentions `ssl:default` in plaintext too.
    """
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02x} is no {error.encoding.upper()}"
    inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    # By name, because cores read settings and import neither ssl nor socket.
    kind = type(inner)
    if kind.__module__ == "ssl":
        words = getattr(inner, "verify_message", None) or getattr(inner, "reason", None)
        return f"TLS: {words or getattr(inner, 'strerror', None) or inner}"
    if isinstance(inner, TimeoutError) and inner.errno is None:
        return "no answer in time"
    if isinstance(inner, OSError) and inner.errno is not None and kind.__name__ != "gaierror":
        reason = os.strerror(inner.errno).lower()
        return reason if inner.filename is None else f"{os.fsdecode(inner.filename)}: {reason}"
    return str(getattr(inner, "strerror", None) or inner) or kind.__name__
