"""The step between reading and picking: the pool of a request, where its listener has several. Without I/O.

The model of path, body or query decides, in this order, if the listener's table has it. Otherwise the pool of
the route stays: Envoy has chosen it by the header, path or query, or it is the default pool, for which the
settings may refuse unknown models. Later steps see a request for one pool, with the model's name there.

An alias is replaced in a whole body that waits for the reply (BUFFERED) and has no content coding; elsewhere
it only chooses the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ext_proc.pick.result import Refusal
from ext_proc.prompt.envelope import body_model_of
from ext_proc.prompt.model_member import model_member
from ext_proc.prompt.path import model_of
from ext_proc.prompt.unreadable import Unreadable, UnreadableError
from ext_proc.protocol.attributes import CLUSTER, LISTENER
from fleet.endpoint import Membership
from fleet.models import chooses, tables
from fleet.names import METADATA_LENGTH, METADATA_POOL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ext_proc.prompt.decode import ParsedBody
    from ext_proc.protocol.attributes import HttpRequest
    from ext_proc.protocol.endpoint_picker import ViewSource
    from fleet.models import Place
    from fleet.settings import Settings

UNKNOWN: Final = Refusal(404, "The model of this request does not exist; GET /v1/models lists those that do.")
_NO_MEMBERS: Final = Membership()
_UNCHANGED: Final[Mapping[str, str]] = {}


class Chosen(NamedTuple):
    """A request for one pool."""

    request: HttpRequest
    parsed: ParsedBody
    metadata: Mapping[str, str] = _UNCHANGED
    """For Envoy, by key of our namespace: the pool if the route leads to another one, and a new length."""
    body: bytes | None = None
    """In the place of the request's body, with the model's own name; None: unchanged."""
    refusal: Refusal | None = None

    @property
    def clears_route(self) -> bool:
        """Whether Envoy has to choose the route again."""
        return METADATA_POOL in self.metadata


class ModelChoice:
    """Chooses pools by the newest view of the fleet. Single-threaded."""

    def __init__(self, source: ViewSource, settings: Settings) -> None:
        self._source = source
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings."""
        self._settings = settings
        choosing = [listener for listener in settings.listeners if chooses(listener, settings)]
        self.headers = tuple(listener.model_header for listener in choosing if listener.model_header)
        """Request headers that may name models."""
        self.listeners = frozenset(listener.name for listener in choosing)
        """Those at which the model matters; at all others there is nothing to choose."""

    def choose(
        self, request: HttpRequest, parsed: ParsedBody, whole: bytes | None, stored: str = ""
    ) -> Chosen:
        """Return a request for one pool; `whole` is the body if the reply may replace it, otherwise None.

        `stored` is the endpoint that has what the path names, if headers decide.
        """
        view = self._source.view
        members = _NO_MEMBERS if view is None else view.membership
        table = tables(self._settings, members).get(request.attributes.get(LISTENER, ""))
        if table is None:
            return Chosen(request, parsed)
        holder = members.by_address.get(stored)
        if holder is not None and holder.pool in table.pools:
            return _moved(request, parsed, holder.pool)
        named = _named(request, parsed, whole)
        place = None if named is None else table.places.get(named)
        if named is not None and place is not None:
            return _placed(request, parsed, named, place, whole)
        # Envoy has chosen by the header, the path or the query, otherwise the default pool.
        pool = request.cluster if request.cluster in table.pools else table.pools[0]
        header = request.attributes.get(table.header, "")
        place = table.places.get(header)
        refuses = table.refuses and view is not None and pool == table.pools[0]
        if refuses and place is None and (named or header):
            return Chosen(request, parsed, refusal=UNKNOWN)
        if named is None and place is not None and place.pool == pool:
            parsed = _for_model(parsed, place.model)
        return Chosen(_within(request, pool), parsed)


def _named(request: HttpRequest, parsed: ParsedBody, whole: bytes | None) -> str | None:
    """Return the model that path, body or query names."""
    prompt = parsed.prompt
    if not isinstance(prompt, Unreadable):
        if prompt.model is not None or prompt.complete or whole is None or request.content_encoding:
            return prompt.model
        # Some clients send the model behind the messages, and only the leading part is read.
        member = model_member(whole)
        return None if member is None else member.name
    try:
        in_body = None if parsed.envelope is None else body_model_of(parsed.envelope)
    except UnreadableError:
        in_body = None
    return model_of(request.path, in_body)


def _placed(
    request: HttpRequest, parsed: ParsedBody, named: str, place: Place, whole: bytes | None
) -> Chosen:
    """Return a request for the pool of its model, with the model's name there."""
    if request.no_body is not None and request.cluster:
        place = place._replace(pool=request.cluster)  # Envoy goes on before our reply.
    metadata: dict[str, str] = {}
    if place.pool != request.cluster:
        metadata[METADATA_POOL] = place.pool
    parsed = _for_model(parsed, place.model)
    body = None
    if place.model != named and whole is not None and not request.content_encoding:
        member = model_member(whole)
        if member is not None and member.name == named:
            body = member.replaced(whole, place.model)
            metadata[METADATA_LENGTH] = str(len(body))
    return Chosen(_within(request, place.pool), parsed, metadata, body)


def _moved(request: HttpRequest, parsed: ParsedBody, pool: str) -> Chosen:
    metadata = _UNCHANGED if pool == request.cluster else {METADATA_POOL: pool}
    return Chosen(_within(request, pool), parsed, metadata)


def _for_model(parsed: ParsedBody, model: str) -> ParsedBody:
    if isinstance(parsed.prompt, Unreadable):
        return parsed
    return parsed._replace(prompt=parsed.prompt._replace(model=model))


def _within(request: HttpRequest, pool: str) -> HttpRequest:
    return request._replace(attributes={**request.attributes, CLUSTER: pool})
