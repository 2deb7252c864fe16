"""Lets a peer do what the names in its certificate allow, at the doors that ask for certificates.

New streams and requests go by the newest settings. Streams that last, those of discovery, of workers and of
agents, end when changed settings no longer allow them; those of ext_proc last as long as one HTTP request,
and none of these may fail because of us.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
from cryptography import x509

from fleet.service.roles import ROLES_OF_SERVICES, PeerNames, has_role, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from prometheus_client import Counter

    from fleet.settings import RoleSettings
    from fleet.settings.tls import Role

logger = logging.getLogger(__name__)

HEALTH: Final = "grpc.health.v1.Health"
"""Whoever may connect may ask for it: balancers do."""
CONNECTION_SECONDS: Final = 3600.0
"""A connection whose client has shown a certificate is renewed after so long, give or take a tenth: the new
handshake asks the authorities that are in force by then."""
LAST_SECONDS: Final = 10.0
"""What streams that last have until they are cut, once their connection has been renewed."""
_MOST_REMEMBERED: Final = 1024
_MOST_TOLD: Final = 256
_HANDLERS: Final = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Gate:
    """Decides, counts and logs for one address."""

    def __init__(self, use: str, roles: RoleSettings | None, refusals: Counter) -> None:
        """`refusals` has the label `use`."""
        self._use = use
        self._roles = roles
        self._refused = refusals.labels(use)
        self._names: dict[bytes, PeerNames] = {}
        self._told: set[tuple[PeerNames, str]] = set()

    def reconfigure(self, roles: RoleSettings | None) -> None:
        """Take over changed settings."""
        if roles != self._roles:
            self._roles = roles
            self._told.clear()

    def names(self, certificate: bytes) -> PeerNames:
        """Return the names in a certificate of a peer, in PEM or DER; empty: it has shown none."""
        known = self._names.get(certificate)
        if known is None:
            if len(self._names) >= _MOST_REMEMBERED:
                self._names.clear()
            known = self._names[certificate] = _names(certificate)
        return known

    def has(self, names: PeerNames, role: Role) -> bool:
        """Whether a peer has a role."""
        return has_role(names, (role,), self._roles)

    def refuses(
        self, names: PeerNames, asked: str, allowed: tuple[Role, ...], address: str = ""
    ) -> str | None:
        """Say why a peer may not have what it asks for, count it and log it once a name; None: it may.

        `address` is where it asks from, for the log.
        """
        why = refusal(names, allowed, self._roles)
        if why is not None:
            self._refused.inc()
            self._tell(names, asked, why, address)
        return why

    def _tell(self, names: PeerNames, asked: str, why: str, address: str) -> None:
        key = names, asked
        if key in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add(key)
        logger.warning("%s refuses %s, which asks for %s: %s", self._use, address or "a peer", asked, why)
        if len(self._told) == _MOST_TOLD:
            logger.warning("%s: refusals of other names are only counted from here on", self._use)


@dataclass(frozen=True, slots=True)
class _Passage:
    """A stream that lasts: who has it, what it is of, and the first role by which its peer may have it."""

    names: PeerNames
    service: str
    address: str
    role: Role | None


class GrpcGate(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """A gate before all services of a gRPC server: what is not in `ROLES_OF_SERVICES` nobody may call."""

    def __init__(
        self,
        gate: Gate,
        *,
        lasting: bool,
        connection_seconds: float = CONNECTION_SECONDS,
        last_seconds: float = LAST_SECONDS,
    ) -> None:
        """`lasting` streams have no end of their own; others carry one HTTP request each, and go on."""
        self._gate = gate
        self._lasting = lasting
        self._connection_seconds = connection_seconds
        self._last_seconds = last_seconds
        self._guarded: dict[str, Any] = {}
        self._open: dict[asyncio.Task[Any], _Passage] = {}
        self._ended: dict[asyncio.Task[Any], str] = {}
        """Streams that are being ended, and why."""

    def reconfigure(self, roles: RoleSettings | None) -> None:
        """Take over changed settings; streams that they no longer allow end, or allow by another role.

        What a stream is given may go by its peer's role.
        """
        self._gate.reconfigure(roles)
        for task, passage in tuple(self._open.items()):
            if task in self._ended:
                continue
            why = self._gate.refuses(
                passage.names, passage.service, _allowed(passage.service), passage.address
            )
            if why is None and self._role(passage.names, passage.service) != passage.role:
                why = "the peer's role has changed; a new stream goes by the new one"
            if why is not None:
                self._ended[task] = why
                task.cancel()

    @property
    def options(self) -> Sequence[tuple[str, int]]:
        """Options of the server that it stands before."""
        renewed = ("grpc.max_connection_age_ms", round(1000 * self._connection_seconds))
        # Without the second, streams go on for as long as they last.
        cut = ("grpc.max_connection_age_grace_ms", round(1000 * self._last_seconds))
        return (renewed, cut) if self._lasting else (renewed,)

    def has(self, context: Any, role: Role) -> bool:
        """Whether the peer of a call has a role."""
        return self._gate.has(self._names(context), role)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Put the check before the method that is called."""
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
            async with self._passage(service, context):
                return await behaviour(request, context)

        async def messages(request: Any, context: Any) -> AsyncIterator[Any]:
            async with (
                self._passage(service, context),
                contextlib.aclosing(behaviour(request, context)) as made,
            ):
                async for message in made:
                    yield message

        return handler._replace(**{kind: messages if inspect.isasyncgenfunction(behaviour) else answers})

    @contextlib.asynccontextmanager
    async def _passage(self, service: str, context: Any) -> AsyncIterator[None]:
        names = self._names(context)
        address = context.peer()
        why = self._gate.refuses(names, service, _allowed(service), address)
        if why is not None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        if not self._lasting:
            yield
            return
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = _Passage(names, service, address, self._role(names, service))
        try:
            yield
        except asyncio.CancelledError:
            why = self._ended.get(task)
            if why is None:
                raise
            task.uncancel()
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        finally:
            del self._open[task]
            self._ended.pop(task, None)

    def _role(self, names: PeerNames, service: str) -> Role | None:
        return next((role for role in _allowed(service) if self._gate.has(names, role)), None)

    def _names(self, context: Any) -> PeerNames:
        return self._gate.names(next(iter(context.auth_context().get("x509_pem_cert", ())), b""))


def _allowed(service: str) -> tuple[Role, ...]:
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
