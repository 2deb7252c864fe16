"""What went wrong, in the system's words: libraries put numbers, addresses and terms of their own around."""

from __future__ import annotations

import os


def cause_of(error: BaseException) -> str:
    """Return the cause as text for an operator.

    An `OSError` that names a file is told with it. Of aiohttp's errors the text is what the system, or the
    TLS handshake, said: their own speak of `ssl:default` in plaintext too.
    """
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02x} is no {error.encoding.upper()}"
    inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    # Told by name: cores read settings, and import neither module.
    kind = type(inner)
    if kind.__module__ == "ssl":
        words = getattr(inner, "verify_message", None) or getattr(inner, "reason", None)
        return f"TLS: {words or getattr(inner, 'strerror', None) or inner}"
    if isinstance(inner, TimeoutError) and inner.errno is None:
        return "no answer in time"
    if isinstance(inner, OSError) and inner.errno is not None and kind.__name__ != "gaierror":
        said = os.strerror(inner.errno).lower()
        return said if inner.filename is None else f"{os.fsdecode(inner.filename)}: {said}"
    return str(getattr(inner, "strerror", None) or inner) or kind.__name__
