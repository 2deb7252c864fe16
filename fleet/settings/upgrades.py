"""Settings of WebSocket upgrades, the HTTP/1.1 fallback, and the move of pools from HTTP/2 to HTTP/1.1."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleet.settings.headers import HeaderName
from fleet.settings.strict import Seconds, Strict, Unique, UrlPath

Protocol = Literal["http1", "h2", "auto", "grpc"]
"""The HTTP version to the engines of a pool. `http1`: HTTP/1.1. `h2`: HTTP/2. `auto`: HTTP/2 if all engines
support it. `grpc`: HTTP/2 without a fallback to HTTP/1.1."""

RetryStatuses = Annotated[tuple[Annotated[int, Field(ge=400, le=599)], ...], Field(max_length=16)]
"""Statuses after which Envoy tries the next engine."""

BODY_HEADERS: Final = (
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
"""Headers that describe a body; the fallback always forwards them."""


def _path(path: str) -> str:
    if "?" in path or "#" in path:
        raise ValueError("allowed: a path without query")
    return path


UpgradePath = Annotated[UrlPath, AfterValidator(_path)]
"""A complete path; with a `/` at its end, all paths below it."""


class FallbackSettings(Strict):
    """The handling of requests without an upgrade on the paths for upgrades."""

    enabled: bool = True
    """Whether Envoy sends these requests over HTTP/1.1 with a limited set of headers. Otherwise it handles
    them as requests on any other path."""
    headers: tuple[HeaderName, ...] = ("authorization", "cookie", "x-request-id")
    """Headers that Envoy forwards in addition to those of the body and of the session."""


class Http2Settings(Strict):
    """When a pool moves to HTTP/1.1, and when it tries HTTP/2 again."""

    errors: Annotated[int, Field(ge=1, le=1000)] = 3
    """This many protocol errors of one engine within `window_seconds` move its pool to HTTP/1.1."""
    window_seconds: Seconds = 60.0
    pause_seconds: Seconds = 30.0
    """The pause before the next attempt with HTTP/2. It doubles after each failed attempt."""
    most_pause_seconds: Seconds = 3600.0
    probe_timeout_seconds: Seconds = 2.0

    @model_validator(mode="after")
    def _pause_grows(self) -> Self:
        if self.most_pause_seconds < self.pause_seconds:
            raise ValueError("allowed: most_pause_seconds at least pause_seconds")
        return self


class UpgradeSettings(Strict):
    """Which requests may become WebSockets, and the handling of all others."""

    paths: Annotated[tuple[UpgradePath, ...], Field(max_length=64), Unique] = ("/v1/realtime",)
    """The paths for upgrades. ext_proc checks handshakes on them and picks an endpoint from their headers.
    `fallback` covers requests on them without an upgrade."""
    elsewhere: Literal["pass", "refuse"] = "pass"
    """Handling of upgrades on other paths. `pass`: weights decide, without a check. `refuse`: status 403."""
    check_handshakes: bool = True
    """Whether malformed handshakes get status 400 before they reach an engine."""
    extended_connect: bool = True
    """Whether HTTP/2 clients may open WebSockets by extended CONNECT (RFC 8441)."""
    handshake_seconds: Seconds = 30.0
    """A handshake without an answer gets status 504 after this time."""
    idle_seconds: Seconds = 3600.0
    """Envoy closes a WebSocket without traffic in either direction after this time."""
    retry_statuses: RetryStatuses = (404, 405, 426, 501)
    """Statuses by which an engine shows that it has no WebSockets; Envoy tries the next engine."""
    fallback: FallbackSettings = FallbackSettings()
    http2: Http2Settings = Http2Settings()

    @model_validator(mode="after")
    def _not_everything_falls_back(self) -> Self:
        if "/" in self.paths and self.fallback.enabled:
            raise ValueError("allowed: the path / only with fallback.enabled: false")
        return self

    def takes(self, path: str) -> bool:
        """Whether the path of a request, with or without a query, is one of `paths`."""
        path = path.partition("?")[0]
        return any(path.startswith(entry) if entry.endswith("/") else path == entry for entry in self.paths)

    def passing(self, session_header: str) -> tuple[str, ...]:
        """Return the headers that the fallback forwards, sorted."""
        return tuple(sorted({*self.fallback.headers, session_header, *BODY_HEADERS}))
