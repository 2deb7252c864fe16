"""Long-lived connections: how often they are pinged, and how many streams one carries."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from fleet.settings.strict import Seconds, Strict

PERMITTED_PING_SECONDS: Final = 0.5
"""The shortest pause between pings that our gRPC servers permit, on quiet connections too."""
GRPC_PERMITTED_PING_SECONDS: Final = 300.0
"""The shortest pause that gRPC servers of every language permit by default while they send nothing."""
MOST_STREAMS: Final = 450
"""On one connection. Envoy closes a connection with more than 1,000 queued control frames (its default of
`max_outbound_control_frames`). When all clients leave at once, each stream causes two: RST_STREAM and
WINDOW_UPDATE. The rest is for PING and SETTINGS."""


class ConnectionSettings(Strict):
    """HTTP/2 between Envoys, our services and engines."""

    ping_seconds: Annotated[float, Field(ge=PERMITTED_PING_SECONDS, le=86_400, allow_inf_nan=False)] = 30.0
    """Between pings on a connection between an Envoy and a service of ours, from either side."""
    ping_timeout_seconds: Seconds = 10.0
    """A peer that has not answered a ping by then is gone: half-dead peers are noticed within both times."""
    ext_proc_streams: Annotated[int, Field(ge=1, le=MOST_STREAMS)] = 400
    """Requests on one connection from Envoy to ext_proc; for more, Envoy opens another connection."""
    engine_ping_seconds: Seconds | None = None
    """Between Envoys' pings to engines with HTTP/2; None: no pings."""
    engine_permitted_ping_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = (
        GRPC_PERMITTED_PING_SECONDS
    )
    """The shortest pause between pings that the engines' servers permit: by default gRPC's."""
