"""WebSocket upgrades, the HTTP/1.1 fallback, and when engines are spoken to by HTTP/1.1 after all."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleet.settings.headers import HeaderName
from fleet.settings.strict import Seconds, Strict

Protocol = Literal["http1", "h2", "auto", "grpc"]
"""How a pool's engines are spoken to: HTTP/1.1; HTTP/2; HTTP/2 where all of them speak it; HTTP/2 always."""

OF_THE_BODY: Final = (
    "accept",
    "accept-encoding",
    "accept-language",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "expect",
    "te",
    "trailer",
    "transfer-encoding",
)
"""What a body needs to be read, and an answer to be written; they always pass."""


def _path(path: str) -> str:
    if "?" in path or "#" in path:
        raise ValueError("allowed: a path without query")
    return path


UpgradePath = Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$", max_length=2048), AfterValidator(_path)]
"""A whole path, or with a `/` at its end everything below."""


class FallbackSettings(Strict):
    """What becomes of requests without an upgrade on paths of upgrades."""

    enabled: bool = True
    """They go by HTTP/1.1, with these headers alone; else as on any other path."""
    headers: tuple[HeaderName, ...] = ("authorization", "cookie", "x-request-id")
    """What passes beside the headers that the body needs and those of the session."""


class Http2Settings(Strict):
    """When a pool's engines are spoken to by HTTP/1.1 for a while, and when HTTP/2 is tried again."""

    errors: Annotated[int, Field(ge=1, le=1000)] = 3
    """So many breaches of the protocol by one engine in `window_seconds` and its pool moves."""
    window_seconds: Seconds = 60.0
    pause_seconds: Seconds = 30.0
    """Before HTTP/2 is tried again; it doubles each time that the engine speaks it badly still."""
    most_pause_seconds: Seconds = 3600.0
    probe_timeout_seconds: Seconds = 2.0

    @model_validator(mode="after")
    def _pause_grows(self) -> Self:
        if self.most_pause_seconds < self.pause_seconds:
            raise ValueError("allowed: most_pause_seconds at least pause_seconds")
        return self


class UpgradeSettings(Strict):
    """Which requests may become WebSockets, and what is done for those that cannot."""

    paths: Annotated[tuple[UpgradePath, ...], Field(max_length=64)] = ("/v1/realtime",)
    """Here handshakes are checked, picked at their headers, and what is no upgrade falls back."""
    elsewhere: Literal["pass", "refuse"] = "pass"
    """Upgrades on other paths: by weights, unchecked; or 403."""
    check_handshakes: bool = True
    """Malformed handshakes get 400 before any engine sees them."""
    extended_connect: bool = True
    """HTTP/2 clients may open WebSockets by extended CONNECT (RFC 8441)."""
    handshake_seconds: Seconds = 30.0
    """An engine that has not answered a handshake by then: 504."""
    idle_seconds: Seconds = 3600.0
    """A WebSocket without a byte in either direction for so long is closed."""
    retry_statuses: Annotated[tuple[Annotated[int, Field(ge=400, le=599)], ...], Field(max_length=16)] = (
        404,
        405,
        426,
        501,
    )
    """An engine that refuses a handshake so is taken for one without WebSockets: the next one is asked."""
    fallback: FallbackSettings = FallbackSettings()
    http2: Http2Settings = Http2Settings()

    @model_validator(mode="after")
    def _not_everything_falls_back(self) -> Self:
        if "/" in self.paths and self.fallback.enabled:
            raise ValueError("allowed: the path / only with fallback.enabled: false")
        if len(set(self.paths)) < len(self.paths):
            raise ValueError("allowed: each of paths once")
        return self

    def takes(self, path: str) -> bool:
        """Whether a request's path, with or without its query, is one of `paths`."""
        path = path.partition("?")[0]
        return any(path.startswith(held) if held.endswith("/") else path == held for held in self.paths)

    def passing(self, session_header: str) -> tuple[str, ...]:
        """Every header that the fallback lets through, sorted."""
        return tuple(sorted({*self.fallback.headers, session_header, *OF_THE_BODY}))
