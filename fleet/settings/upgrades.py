"""WebSocket upgrades, the HTTP/1.1 fallback, and when pools with HTTP/2 move to HTTP/1.1."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleet.settings.headers import HeaderName
from fleet.settings.strict import Seconds, Strict, Unique, UrlPath

Protocol = Literal["http1", "h2", "auto", "grpc"]
"""HTTP version to a pool's engines: HTTP/1.1; HTTP/2; HTTP/2 if all of them speak it; always HTTP/2."""

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
"""Headers that describe a body; they always pass."""


def _path(path: str) -> str:
    if "?" in path or "#" in path:
        raise ValueError("allowed: a path without query")
    return path


UpgradePath = Annotated[UrlPath, AfterValidator(_path)]
"""A whole path, or with a `/` at its end all paths below it."""


class FallbackSettings(Strict):
    """Handling of requests without an upgrade on upgrade paths."""

    enabled: bool = True
    """They go by HTTP/1.1, with these headers only. Otherwise they go as on any other path."""
    headers: tuple[HeaderName, ...] = ("authorization", "cookie", "x-request-id")
    """Headers that pass in addition to those of the body and of the session."""


class Http2Settings(Strict):
    """When a pool moves to HTTP/1.1 for a while, and when HTTP/2 is tried again."""

    errors: Annotated[int, Field(ge=1, le=1000)] = 3
    """Protocol errors of one engine in `window_seconds` that move its pool to HTTP/1.1."""
    window_seconds: Seconds = 60.0
    pause_seconds: Seconds = 30.0
    """Before HTTP/2 is tried again; it doubles each time that the engine still fails."""
    most_pause_seconds: Seconds = 3600.0
    probe_timeout_seconds: Seconds = 2.0

    @model_validator(mode="after")
    def _pause_grows(self) -> Self:
        if self.most_pause_seconds < self.pause_seconds:
            raise ValueError("allowed: most_pause_seconds at least pause_seconds")
        return self


class UpgradeSettings(Strict):
    """Requests that may become WebSockets, and the handling of those that cannot."""

    paths: Annotated[tuple[UpgradePath, ...], Field(max_length=64), Unique] = ("/v1/realtime",)
    """On these, handshakes are checked and picked at their headers, and requests without an upgrade fall
    back."""
    elsewhere: Literal["pass", "refuse"] = "pass"
    """Upgrades on other paths: by weights and unchecked, or 403."""
    check_handshakes: bool = True
    """Malformed handshakes are answered 400 before they reach an engine."""
    extended_connect: bool = True
    """HTTP/2 clients may open WebSockets by extended CONNECT (RFC 8441)."""
    handshake_seconds: Seconds = 30.0
    """A handshake without an answer is answered 504 after this time."""
    idle_seconds: Seconds = 3600.0
    """A WebSocket without a byte in either direction for this long is closed."""
    retry_statuses: Annotated[tuple[Annotated[int, Field(ge=400, le=599)], ...], Field(max_length=16)] = (
        404,
        405,
        426,
        501,
    )
    """An engine that refuses a handshake by one of these has no WebSockets; the next engine is tried."""
    fallback: FallbackSettings = FallbackSettings()
    http2: Http2Settings = Http2Settings()

    @model_validator(mode="after")
    def _not_everything_falls_back(self) -> Self:
        if "/" in self.paths and self.fallback.enabled:
            raise ValueError("allowed: the path / only with fallback.enabled: false")
        return self

    def takes(self, path: str) -> bool:
        """Whether a request's path, with or without its query, is one of `paths`."""
        path = path.partition("?")[0]
        return any(path.startswith(entry) if entry.endswith("/") else path == entry for entry in self.paths)

    def passing(self, session_header: str) -> tuple[str, ...]:
        """Return every header that passes the fallback, sorted."""
        return tuple(sorted({*self.fallback.headers, session_header, *OF_THE_BODY}))
