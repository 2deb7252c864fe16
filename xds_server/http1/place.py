"""The server that a URL names, and the lines of its request. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, unquote, urlsplit

_IN_PATH: Final = "/%:@!$&'()*+,;=-._~?[]"


@dataclass(frozen=True, slots=True)
class Place:
    """The server of a URL, and the lines of a request to it."""

    secure: bool
    host: str
    port: int
    is_address: bool
    """Whether the host needs no name server."""
    request: str
    """First line and the lines that depend on the URL."""


def read_place(url: str) -> Place:
    """Read a URL of a peer's choice.

    Raises:
        ValueError: it is none of `http` or `https` with a host.
    """
    parts = urlsplit(url)
    host, secure = parts.hostname, parts.scheme == "https"
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError("no URL of http or https with a host")
    host = host.encode("idna").decode() if not host.isascii() else host
    try:
        ip_address(host)
        is_address = True
    except ValueError:
        is_address = False
    target = quote(parts.path or "/", safe=_IN_PATH)
    if parts.query:
        target = f"{target}?{quote(parts.query, safe=_IN_PATH)}"
    named = f"[{host}]" if ":" in host else host
    authority = named if parts.port is None else f"{named}:{parts.port}"
    request = f"GET {target} HTTP/1.1\r\nHost: {authority}\r\n"
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request += f"Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n"
    return Place(secure, host, parts.port or (443 if secure else 80), is_address, request)


place_of = lru_cache(maxsize=8192)(read_place)
"""The same with a cache, for URLs of settings and endpoints, which are fetched again and again."""
