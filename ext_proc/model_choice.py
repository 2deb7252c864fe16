"""The step between reading and picking: which of a listener's pools a request is for. Without I/O.

The first name that the listener's table has decides: of the path, the body or the query, then of the header.
Without one, the default pool gets the request, unless the settings refuse unknown models. The rest of the way
sees a request for that pool alone, with the model's name there.

An alias is replaced in a whole body that waits for the reply (BUFFERED) and has no content coding; elsewhere
it only chooses the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ext_proc.pick.result import Refusal
from ext_proc.prompt.envelope import body_model_of
from ext_proc.prompt.model_member import ModelMember, model_member
from ext_proc.prompt.path import model_of
from ext_proc.prompt.unreadable import Unreadable, UnreadableError
from ext_proc.protocol.attributes import CLUSTER, LISTENER
from fleet.endpoint import Membership
from fleet.models import Place, chooses, tables
from fleet.names import METADATA_LENGTH, METADATA_POOL, POOL_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ext_proc.prompt.decode import ParsedBody
    from ext_proc.protocol.attributes import HttpRequest
    from ext_proc.protocol.endpoint_picker import ViewSource
    from fleet.models import ModelTable
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

    def choose(self, request: HttpRequest, parsed: ParsedBody, whole: bytes | None) -> Chosen:
        """Return a request for one pool; `whole` is the body if the reply may replace it, otherwise None."""
        view = self._source.view
        members = _NO_MEMBERS if view is None else view.membership
        table = tables(self._settings, members).get(request.attributes.get(LISTENER, ""))
        if table is None:
            return Chosen(request, parsed)
        named, member = _named(request, parsed, whole)
        header = request.attributes.get(table.header, "") if table.header else ""
        place = table.places.get(named or "") or table.places.get(header)
        if place is None and (named or header) and table.refuses and view is not None:
            return Chosen(request, parsed, refusal=UNKNOWN)
        return _chosen(request, parsed, table, place, named, whole, member)


def _named(
    request: HttpRequest, parsed: ParsedBody, whole: bytes | None
) -> tuple[str | None, ModelMember | None]:
    """Return the model that path, body or query names, and its place in the body where that is known."""
    prompt = parsed.prompt
    if not isinstance(prompt, Unreadable):
        named = prompt.model
        if named is not None or prompt.complete or whole is None or request.content_encoding:
            return named, None
        # Some clients send the model behind the messages, and only the leading part is read.
        member = model_member(whole)
        return (None, None) if member is None else (member.name, member)
    try:
        in_body = None if parsed.envelope is None else body_model_of(parsed.envelope)
    except UnreadableError:
        in_body = None
    return model_of(request.path, in_body), None


def _chosen(
    request: HttpRequest,
    parsed: ParsedBody,
    table: ModelTable,
    place: Place | None,
    named: str | None,
    whole: bytes | None,
    member: ModelMember | None,
) -> Chosen:
    pool = table.pools[0] if place is None else place.pool
    metadata: dict[str, str] = {}
    if request.no_body is not None and request.cluster in table.pools:
        pool = request.cluster  # Envoy has chosen by the same headers, and goes on before our reply.
    elif pool != request.cluster:
        metadata[METADATA_POOL] = POOL_MARK + pool
    body = None
    if place is not None and named is not None and place == table.places.get(named) and place.model != named:
        if whole is not None and not request.content_encoding:
            member = member or model_member(whole)
            if member is not None and member.name == named:
                body = member.replaced(whole, place.model)
                metadata[METADATA_LENGTH] = str(len(body))
        if not isinstance(parsed.prompt, Unreadable):
            parsed = parsed._replace(prompt=parsed.prompt._replace(model=place.model))
    elif named is None and not isinstance(parsed.prompt, Unreadable) and place is not None:
        parsed = parsed._replace(prompt=parsed.prompt._replace(model=place.model))
    attributes = {**request.attributes, CLUSTER: pool}
    return Chosen(request._replace(attributes=attributes), parsed, metadata, body)
