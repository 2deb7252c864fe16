"""Envoy listeners in front of the pools."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleet.settings.address import IpAddress
from fleet.settings.headers import HeaderName
from fleet.settings.strict import Name, Seconds, Strict
from fleet.settings.tls import ListenerTlsSettings


class ListenerSettings(Strict):
    """One Envoy listener in front of one pool."""

    name: Name
    address: IpAddress
    pool: Name
    show_decision: bool = True
    """Whether responses have headers with the chosen endpoint, the matched share and the reason."""
    session_header: HeaderName = "x-session-id"
    """The fallback's Maglev hashes it, so that sessions keep their endpoint when ext_proc is away."""
    large_body_bytes: Annotated[int, Field(ge=1024, le=16_777_216)] = 1_048_576
    """From this content-length on, only the leading part of a body goes to ext_proc."""
    stream_idle_timeout_seconds: Seconds = 3600.0
    """The longest silence of a token stream. A long prefill is silent too."""
    tls: ListenerTlsSettings | None = None
    """None: plaintext from clients."""
