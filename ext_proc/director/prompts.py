"""From a request's bytes and headers to its prompt, blocks, tenant and session, by the settings in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xxhash import xxh3_128_intdigest

from ext_proc.prompt.blocks import block_hashes, identity_of
from ext_proc.prompt.decode import BodyReader, ParsedBody, Prompt
from ext_proc.prompt.encoding import DECODE_SECONDS, decode
from ext_proc.prompt.path import model_in_path
from ext_proc.prompt.unreadable import Unreadable
from ext_proc.protocol.attributes import METHOD, UPGRADE
from fleet.names import SESSION_ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ext_proc.protocol.attributes import HttpRequest
    from fleet.settings import Settings

MAX_NAME_CHARS: Final = 256
"""Of a tenant or a session, as far as it counts."""


class RequestReader:
    """Reads requests. Single-threaded."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        pick = settings.ext_proc.pick
        self._clock = clock
        sessions = pick.sessions
        on = sessions.mode == "hard" or sessions.bonus_seconds > 0
        self._bodies = BodyReader(
            sessions.every_field if on else (),
            pick.stripped_lines,
            one_pass=not any(
                pool.kv_events or any(endpoint.kv_events for endpoint in pool.endpoints)
                for pool in settings.pools
            ),
        )
        self._body_bytes = settings.limits.body_bytes
        self._block_bytes, self._max_blocks = pick.block_bytes, settings.limits.prompt_blocks
        self._tenant_header, self._tenants_apart = pick.tenant_header, pick.tenants_apart
        self._upgrades = settings.upgrades
        of_listeners = (listener.session_header for listener in settings.listeners if on)
        self._listener_headers = tuple(dict.fromkeys(of_listeners))
        self._session_headers = (*self._listener_headers, *sessions.every_header) if on else ()

    def read(self, request: HttpRequest) -> ParsedBody:
        """Read a request's prompt, or the model in the path of a request without a body. Never raises.

        The limits bound the work, and the clock bounds decompression: the part that is decompressed in time
        is read as a leading part.
        """
        path = request.path
        if request.no_body is not None:
            model = model_in_path(path)
            if not self._headers_suffice(request, model):
                return ParsedBody(Unreadable.NO_PROMPT)
            return ParsedBody(Prompt(model or None, "", b"", complete=False))
        body, complete = request.body, request.complete
        if encoding := request.content_encoding:
            late_at = self._clock() + DECODE_SECONDS
            decoded = decode(
                body, encoding, self._body_bytes, complete=complete, late=lambda: self._clock() > late_at
            )
            if isinstance(decoded, Unreadable):
                return ParsedBody(decoded)
            body, complete = decoded.body, decoded.complete
        return self._bodies.read(body, complete=complete, path=path)

    def tenant(self, attributes: Mapping[str, str]) -> str:
        """Return the request's tenant; empty without one."""
        name = self._tenant_header
        return attributes.get(name, "").strip()[:MAX_NAME_CHARS] if name else ""

    def session(self, attributes: Mapping[str, str]) -> str:
        """Return the request's session; empty without one, or if sessions are off."""
        if not self._session_headers:
            return ""
        if session := attributes.get(SESSION_ATTRIBUTE):
            return session
        # Without the headers themselves, Envoy has sent the first of them that there is.
        for name in self._session_headers if METHOD in attributes else self._listener_headers:
            if session := attributes.get(name):
                return session
        return ""

    def blocks(self, prompt: Prompt, model: str, tenant: str) -> tuple[bytes, list[int]]:
        """Return the identity of a prompt's prefix apart from its text, and its blocks."""
        identity = identity_of(model, prompt.salt, prompt.adapter, tenant if self._tenants_apart else "")
        return identity, block_hashes(
            prompt.text, identity=identity, block_bytes=self._block_bytes, max_blocks=self._max_blocks
        )

    def _headers_suffice(self, request: HttpRequest, model: str) -> bool:
        """Return whether headers are enough for a pick; otherwise the request goes by weights."""
        attributes = request.attributes
        method = attributes.get(METHOD)
        handshake = UPGRADE in attributes or method == "CONNECT"
        if handshake and model:
            return True
        generates = handshake or method == "POST" or self._upgrades.takes(request.path)
        return generates and bool(self.session(attributes))


def session_digest(name: str, pool: str, tenant: str) -> int:
    """Return the digest of a session; 0 without a name."""
    if not name:
        return 0
    # Clients name their sessions, so two tenants may use the same name.
    owned = f"{pool}\0{tenant}\0{name[:MAX_NAME_CHARS]}"
    return xxh3_128_intdigest(owned.encode("utf-8", "surrogatepass"))


def gives_work(attributes: Mapping[str, str]) -> bool:
    """Return whether a request may give an engine work: a POST, a handshake, or an unknown method."""
    return UPGRADE in attributes or attributes.get(METHOD, "POST") in ("POST", "CONNECT")
