"""Authorisation of peers by the names in their certificates, at addresses that request certificates.

New streams and requests follow the newest settings. Long-lived streams (discovery, workers, agents) end when
changed settings no longer allow them. A stream of ext_proc lasts as long as one HTTP request, and no such
request may fail because of us.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import grpc
from cryptography import x509

from fleet.service.roles import ROLES_OF_SERVICES, PeerNames, has_role, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from prometheus_client import Counter

    from fleet.settings import RoleSettings
    from fleet.settings.tls import Role

K = TypeVar("K")

logger = logging.getLogger(__name__)

HEALTH: Final = "grpc.health.v1.Health"
"""Open to every peer that may connect: load balancers use it."""
CONNECTION_SECONDS: Final = 3600.0
"""Age at which a connection with a client certificate is renewed, plus or minus a tenth. The new handshake
uses the authorities in force by then."""
LAST_SECONDS: Final = 10.0
"""Grace of long-lived streams once their connection is renewed."""
_MOST_REMEMBERED: Final = 1024
_MOST_LOGGED: Final = 256
_HANDLERS: Final = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Gate:
    """Decides, counts and logs for one address."""

    def __init__(self, use: str, roles: RoleSettings | None, refusals: Counter) -> None:
        """`refusals` has the label `use`."""
        self._use = use
        self._roles = roles
        self._refused = refusals.labels(use)
        self._names: dict[bytes, PeerNames] = {}
        self._logged: set[tuple[PeerNames, str]] = set()

    def reconfigure(self, roles: RoleSettings | None) -> None:
        """Apply changed settings."""
        if roles != self._roles:
            self._roles = roles
            self._logged.clear()

    def names(self, certificate: bytes) -> PeerNames:
        """Return the names in a peer's certificate, in PEM or DER; an empty certificate has none."""
        names = self._names.get(certificate)
        if names is None:
            if len(self._names) >= _MOST_REMEMBERED:
                self._names.clear()
            names = self._names[certificate] = _names(certificate)
        return names

    def has(self, names: PeerNames, role: Role) -> bool:
        """Whether a peer has a role."""
        return has_role(names, (role,), self._roles)

    def refuses(
        self, names: PeerNames, service: str, allowed: tuple[Role, ...], address: str = ""
    ) -> str | None:
        """Return why a peer may not use a service, count it and log it once for each name; None: it may.

        `address` is the peer's, for the log.
        """
        why = refusal(names, allowed, self._roles)
        if why is not None:
            self._refused.inc()
            self._log(names, service, why, address)
        return why

    def _log(self, names: PeerNames, service: str, why: str, address: str) -> None:
        key = names, service
        if key in self._logged or len(self._logged) >= _MOST_LOGGED:
            return
        self._logged.add(key)
        logger.warning("%s refuses %s, which asks for %s: %s", self._use, address or "a peer", service, why)
        if len(self._logged) == _MOST_LOGGED:
            logger.warning("%s: refusals of other names are only counted from here on", self._use)


@dataclass(frozen=True, slots=True)
class _OpenStream:
    """A long-lived stream: its peer, its service, and the first role that allows it."""

    names: PeerNames
    service: str
    address: str
    role: Role | None


class LastingStreams(Generic[K]):
    """The open streams of a gate that have no end of their own, by any key."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._open: dict[K, _OpenStream] = {}

    def add(self, key: K, names: PeerNames, service: str, address: str) -> None:
        """Add a stream that its peer's names allow."""
        self._open[key] = _OpenStream(names, service, address, self._role(names, service))

    def discard(self, key: K) -> None:
        """Forget a stream that ends."""
        self._open.pop(key, None)

    def reconfigure(self, roles: RoleSettings | None) -> list[tuple[K, str]]:
        """Apply changed settings; return the streams that these no longer allow, or allow by another role.

        The content of a stream may depend on its peer's role. Each comes with the reason for its end, and
        is forgotten here.
        """
        self._gate.reconfigure(roles)
        ending = []
        for key, stream in self._open.items():
            allowed = allowed_roles(stream.service)
            why = self._gate.refuses(stream.names, stream.service, allowed, stream.address)
            if why is None and self._role(stream.names, stream.service) != stream.role:
                why = "the peer's role has changed; a new stream goes by the new one"
            if why is not None:
                ending.append((key, why))
        for key, _ in ending:
            del self._open[key]
        return ending

    def _role(self, names: PeerNames, service: str) -> Role | None:
        return next((role for role in allowed_roles(service) if self._gate.has(names, role)), None)


class GrpcGate(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """A gate in front of a gRPC server. Services that are not in `ROLES_OF_SERVICES` may not be called."""

    def __init__(
        self,
        gate: Gate,
        *,
        lasting: bool,
        connection_seconds: float = CONNECTION_SECONDS,
        last_seconds: float = LAST_SECONDS,
    ) -> None:
        """`lasting` streams have no end of their own; others carry one HTTP request each, and are not cut."""
        self._gate = gate
        self._lasting = lasting
        self._connection_seconds = connection_seconds
        self._last_seconds = last_seconds
        self._guarded: dict[str, Any] = {}
        self._streams: LastingStreams[asyncio.Task[Any]] = LastingStreams(gate)
        self._ended: dict[asyncio.Task[Any], str] = {}
        """Streams that are being ended, with the reason."""

    def reconfigure(self, roles: RoleSettings | None) -> None:
        """Apply changed settings; streams end as `LastingStreams.reconfigure` says."""
        for task, why in self._streams.reconfigure(roles):
            self._ended[task] = why
            task.cancel()

    @property
    def options(self) -> Sequence[tuple[str, int]]:
        """Options of the guarded server."""
        renewed = ("grpc.max_connection_age_ms", round(1000 * self._connection_seconds))
        # Without the second, streams outlive the connection's renewal.
        cut = ("grpc.max_connection_age_grace_ms", round(1000 * self._last_seconds))
        return (renewed, cut) if self._lasting else (renewed,)

    def has(self, context: Any, role: Role) -> bool:
        """Whether the peer of a call has a role."""
        return self._gate.has(self._names(context), role)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Check the peer before the called method."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        service = method.lstrip("/").partition("/")[0]
        if handler is None or service == HEALTH:
            return handler
        guarded = self._guarded.get(method)
        if guarded is None:
            guarded = self._guarded[method] = self._guard(handler, service)
        return guarded

    def _guard(self, handler: Any, service: str) -> Any:
        kind = next(kind for kind in _HANDLERS if getattr(handler, kind) is not None)
        behaviour = getattr(handler, kind)

        async def answers(request: Any, context: Any) -> Any:
            async with self._checked(service, context):
                return await behaviour(request, context)

        async def messages(request: Any, context: Any) -> AsyncIterator[Any]:
            async with (
                self._checked(service, context),
                contextlib.aclosing(behaviour(request, context)) as responses,
            ):
                async for message in responses:
                    yield message

        return handler._replace(**{kind: messages if inspect.isasyncgenfunction(behaviour) else answers})

    @contextlib.asynccontextmanager
    async def _checked(self, service: str, context: Any) -> AsyncIterator[None]:
        names = self._names(context)
        address = context.peer()
        why = self._gate.refuses(names, service, allowed_roles(service), address)
        if why is not None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        if not self._lasting:
            yield
            return
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task, names, service, address)
        try:
            yield
        except asyncio.CancelledError:
            why = self._ended.get(task)
            if why is None:
                raise
            task.uncancel()
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        finally:
            self._streams.discard(task)
            self._ended.pop(task, None)

    def _names(self, context: Any) -> PeerNames:
        return self._gate.names(next(iter(context.auth_context().get("x509_pem_cert", ())), b""))


def allowed_roles(service: str) -> tuple[Role, ...]:
    """Return the roles that may call a gRPC service."""
    return ROLES_OF_SERVICES.get(service, ())


def _names(certificate: bytes) -> PeerNames:
    if not certificate:
        return PeerNames()
    pem = certificate.startswith(b"-----")
    try:
        read = x509.load_pem_x509_certificate if pem else x509.load_der_x509_certificate
        return PeerNames.of(read(certificate))
    except ValueError:
        return PeerNames()
