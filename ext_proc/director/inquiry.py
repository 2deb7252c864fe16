"""A request as a question to one pool: its prompt in blocks, and whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from ext_proc.pick.pool import WINDOW_SECONDS
from ext_proc.pick.scorers.leading import LEADING_BYTES
from ext_proc.prefix.leading import leading_key, leading_mark
from ext_proc.prompt.blocks import block_hashes, identity_of
from ext_proc.prompt.decode import Prompt, read_prompt
from ext_proc.prompt.encoding import DECODE_SECONDS, decode
from ext_proc.prompt.unreadable import Unreadable
from ext_proc.protocol.request import METHOD, UPGRADE, model_in_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick import PoolState
    from ext_proc.prefix.warmth import Warmth
    from ext_proc.protocol.request import RouteRequest
    from fleet.settings import Settings

MAX_NAME_CHARS: Final = 256
"""Of a tenant or a session, as far as it counts."""


class Read(NamedTuple):
    """What was read of a request."""

    prompt: Prompt
    body: bytes
    """Without its content coding; empty where none is read."""


class Inquiry(NamedTuple):
    """One prompt for one pool."""

    pool: PoolState
    model: str
    prompt: Prompt
    identity: bytes
    """What beside the text makes prefixes equal."""
    blocks: Sequence[int]
    leading_hash: int
    session: int
    """Digest of what names its session; 0: nothing does."""
    adapter: str
    """What an engine may have to load for it; empty: nothing."""
    block_bytes: int
    request_digest: int
    """64-bit digest of the whole request, parameters and all, with its identity."""

    @property
    def prompt_digest(self) -> int:
        """64-bit digest of the whole prompt, as far as it fills blocks, with its identity."""
        return self.blocks[-1] if self.blocks else self.leading_hash

    def leading_key(self) -> bytes:
        """Digest of the leading part."""
        return leading_key(self.prompt.text, self.identity, LEADING_BYTES)


class AskedLately(NamedTuple):
    """What was asked for lately, as a question carries it along."""

    warmth: Warmth
    now: float

    def at(self, blocks: Sequence[int], depth: int, total: float) -> tuple[float, float]:
        """Return how many requests shared the run up to the block at `depth`, and of how many of `total`."""
        rate, among = self.warmth.compared_at(blocks, depth, self.now, total)
        return rate * WINDOW_SECONDS, among

    def runs(
        self, blocks: Sequence[int], also: Collection[int], total: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return both for each block."""
        rates, totals = self.warmth.compared(blocks, self.now, also, total)
        rates *= WINDOW_SECONDS
        return rates, totals


def read(request: RouteRequest, settings: Settings, clock: Callable[[], float]) -> Read | Unreadable:
    """Read a request's prompt; where only its headers are there, what they tell of it. Never raises.

    Work is bounded by the limits, and by `clock` where a content coding has to be undone: what is decoded
    when the time is over is read as a leading part.
    """
    if request.headers_only:
        model = model_in_path(request.path)
        if not _told_enough(request, settings, model):
            return Unreadable.NO_PROMPT
        return Read(Prompt(model or None, "", b"", complete=False), b"")
    body, complete = request.body, request.complete
    if encoding := request.content_encoding:
        late_at = clock() + DECODE_SECONDS
        limit = settings.limits.body_bytes
        decoded = decode(body, encoding, limit, complete=complete, late=lambda: clock() > late_at)
        if isinstance(decoded, Unreadable):
            return decoded
        body, complete = decoded.body, decoded.complete
    field = settings.ext_proc.pick.sessions.field
    prompt = read_prompt(body, complete=complete, path=request.path, session_field=field)
    return prompt if isinstance(prompt, Unreadable) else Read(prompt, body)


def inquiry(
    request: RouteRequest,
    settings: Settings,
    pool: PoolState,
    model: str,
    told: Read,
) -> Inquiry:
    """Make the question to a pool of which the model is known."""
    prompt, body = told
    pick, tenant = settings.ext_proc.pick, tenant_of(request.headers, settings)
    identity = identity_of(model, prompt.salt, prompt.adapter, tenant if pick.tenants_apart else "")
    blocks = block_hashes(
        prompt.text,
        identity=identity,
        block_bytes=pick.block_bytes,
        max_blocks=settings.limits.prompt_blocks,
    )
    whole = prompt.text or request.request_id.encode("utf-8", "surrogatepass")
    leading_hash = blocks[0] if blocks else xxh3_64_intdigest(identity + whole)
    return Inquiry(
        pool,
        model,
        prompt,
        identity,
        blocks,
        leading_hash,
        _session(_told_session(request.headers, settings) or prompt.session, pool, tenant),
        _adapter(pool, model, prompt.adapter),
        pick.block_bytes,
        xxh3_64_intdigest(body, xxh3_64_intdigest(identity)) if body else leading_hash,
    )


def note_leading(warmth: Warmth, asks: Inquiry, address: str, held: int, key: bytes) -> int:
    """Note where a prompt's leading part is, for when nobody is known to hold it any more.

    Where nobody held any of it, which is when its `key` is there, and where `address` holds all of it. Return
    its mark where it was news, else 0.
    """
    mark, whole = leading_mark(asks.prompt.text, asks.identity, asks.blocks, asks.block_bytes, LEADING_BYTES)
    if key:
        warmth.record_leading(key, address, mark)
        return mark
    if held >= max(whole, 1) and warmth.wants_leading(mark, address):
        warmth.record_leading(asks.leading_key(), address, mark, again=True)
    return 0


def tenant_of(headers: Mapping[str, str], settings: Settings) -> str:
    """Return the tenant that the request is from; empty when nobody says."""
    name = settings.ext_proc.pick.tenant_header
    return headers.get(name, "").strip()[:MAX_NAME_CHARS] if name else ""


def gives_work(request: RouteRequest) -> bool:
    """Whether a request may ask an engine for work: a POST or a handshake, and what does not say."""
    return UPGRADE in request.headers or request.headers.get(METHOD, "POST") in ("POST", "CONNECT")


def _told_enough(request: RouteRequest, settings: Settings, model: str) -> bool:
    """Whether headers tell where it should go; others go by weights."""
    method = request.headers.get(METHOD)
    handshake = UPGRADE in request.headers or method == "CONNECT"
    if handshake and model:
        return True
    talks = handshake or method == "POST" or settings.upgrades.takes(request.path)
    return talks and bool(_told_session(request.headers, settings))


def _told_session(headers: Mapping[str, str], settings: Settings) -> str:
    """Return what a listener's session header says; empty when there is none, or sessions are off."""
    if settings.ext_proc.pick.sessions.bonus_seconds:
        for listener in settings.listeners:
            if told := headers.get(listener.session_header):
                return told
    return ""


def _session(told: str, pool: PoolState, tenant: str) -> int:
    if not told:
        return 0
    # What clients call their sessions is theirs: another tenant's session by that name is another one.
    whose = f"{pool.shape.name}\0{tenant}\0{told[:MAX_NAME_CHARS]}"
    return xxh3_128_intdigest(whose.encode("utf-8", "surrogatepass"))


def _adapter(pool: PoolState, model: str, named: str) -> str:
    """Return the adapter that is named, else the model where an engine has several by name, else nothing."""
    return f"{model}\0{named}" if named or (pool.shape.several and pool.shape.names(model)) else ""
