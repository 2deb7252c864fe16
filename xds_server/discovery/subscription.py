"""One type on one stream: the state that SotW and delta share.

State of a subscription (one per type URL and stream)
    names, wildcard   the subscribed names; the wildcard is a state, not a list of names
    returned          name to the version that was sent, or that the client reported; or UNSURE
    forced            names to send even if the client may have their version
    initial_response_pending     the first request of the type has no response yet
    nonce, sent_version, acked_version, nacked_version, error     of the newest response and answers
    nacked            name to the version that the client refused in a response of its own
    unanswered        nonce to the content of a response without ACK or NACK: `changes.py`

Rules
    First request     It always gets a response with the present content, even if its `version_info` equals
                      ours: versions are hashes of content and outlive a stream, nonces do not. Its nonce
                      belongs to an earlier stream and is ignored. It carries the node; later requests
                      need not.
    Nonce             It only matches an answer to its response. Requests of a stream arrive in order, so
                      their names count whatever the nonce: while pushes overtake every answer, no request
                      carries the newest nonce. Names that such a request adds are forced; nothing else is
                      sent again.
    ACK, NACK         The first request with a response's nonce is its answer: a NACK with `error_detail`, an
                      ACK without. Later requests with the same nonce only change names.
    NACK of several   Envoy stops at the first bad resource, or refuses all because of one, and does not name
                      it. After such a NACK the state of each resource is UNSURE, and each is sent once more
                      in a response of its own. A resource that was refused alone is not sent again until its
                      content changes, and then alone again, so that it cannot spoil other resources: one
                      content of a name is sent twice at most. SotW's clusters and listeners always come
                      complete: Envoy takes the good ones, and the next change sends all again.
    Secrets           Each is sent in a response of its own from the start. Files of operators may contain
                      anything, and Envoy ACKs a refused secret when it comes again, so a NACK of several
                      could not be traced to one.
    Wildcard          Legacy: no names in the first request for clusters or listeners. Explicit: the name
                      `*`, of any type. SotW: a list without `*` ends it, and an empty list after any
                      name unsubscribes from everything. Delta: only unsubscribing `*` ends it.
    Resubscription    Unsubscribing forgets a name; subscribing to it again forces it. Delta: every name in
                      `resource_names_subscribe` is forced, even one already subscribed, because the client
                      may have lost it. A name that is unsubscribed while the wildcard still covers it is
                      forced too.
    By name only      The wildcard never covers listeners for gRPC clients.
    Unknown names     SotW leaves them out, so they never block other names. It does not invent an empty
                      assignment, which would take endpoints away from an Envoy that still has some. Delta
                      lists them once in `removed_resources`. Both send them as soon as they exist.
    Removal           SotW: absence, for clusters and listeners; nothing for endpoints and routes, which end
                      with the resources that refer to them. Delta: `removed_resources`.
    Reconnection      Delta's `initial_resource_versions` fill `returned`: an equal resource that only the
                      wildcard covers is not sent again. A subscribed name is forced all the same: a client
                      may list a resource that it has lost, such as the endpoints of a cluster that was
                      still warming.
    No snapshot       Requests wait for the first snapshot.

Rules over the types of one stream are in `stream_state.py`.
Source: Envoy's page "xDS REST and gRPC protocol" and its discovery.proto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.errors import PeerError
from fleet.names import GRPC_LISTENER_PREFIX, TYPE_CLUSTER, TYPE_LISTENER, TYPE_SECRET
from xds_server.discovery.changes import (
    ABSENT,
    MAX_ERROR_CHARS,
    UNSURE,
    Answer,
    Changes,
    Sent,
    Unanswered,
    split_removed,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from xds_server.snapshot.snapshot import Resource, Snapshot

WILDCARD: Final = "*"
FULL_STATE_TYPES: Final = frozenset({TYPE_CLUSTER, TYPE_LISTENER})
"""SotW responses of these types carry everything, and a missing name is a removal."""
NAME_BYTES: Final = 200
"""Memory of a name apart from its characters: the string object and its entries in sets and maps."""
VERSION_BYTES: Final = 50
"""The same for an initial version that a client reports."""
MAX_VERSION_CHARS: Final = 64
"""Ours have at most 25."""
Key = tuple[int, int, bool]
"""Number of the names, sum of their hashes (which Python makes with a secret), and the wildcard."""

_NOTHING: Final = Changes()


class Subscription:
    """One type on one stream. Only `stream_state.py` and the two variants change it."""

    def __init__(self, type_url: str, *, max_names: int, newest_only: bool = False) -> None:
        self.type_url = type_url
        self.names: set[str] = set()
        self.wildcard = False
        self.returned: dict[str, str] = {}
        self.forced: set[str] = set()
        self.initial_response_pending = True
        self.nonce = self.error = ""
        self.sent_version = self.acked_version = self.nacked_version = ""
        self.nacked: dict[str, str] = {}
        self.unanswered = Unanswered(cumulative=newest_only)
        self.first_version = ""
        """SotW: `version_info` of the first request."""
        self.full_resources: dict[str, Resource] = {}
        """SotW, types that come complete: the resources of the newest response, to repeat those whose
        removal waits."""
        self._max_names = max_names
        self._ever_named = False
        self._names_hash: int | None = None
        """SotW: hash of the names as the newest request lists them."""
        self._hashes = 0
        """Sum over all names."""
        self._chosen_bytes = 0
        self._compared: str | None = None
        """Version of the type at which all was compared."""
        self._stale: set[str] = set()
        """Names that differed then and have not been sent since, apart from those in `forced`."""
        self._changes: Changes | None = None

    @property
    def full_state(self) -> bool:
        """Whether SotW responses carry everything that is subscribed."""
        return self.type_url in FULL_STATE_TYPES

    @property
    def outstanding(self) -> bool:
        """Whether the newest response has neither ACK nor NACK."""
        return self.nonce in self.unanswered

    @property
    def key(self) -> Key:
        """The subscribed names as a value that stores none of them."""
        return len(self.names), self._hashes, self.wildcard

    @property
    def name_bytes(self) -> int:
        """Memory of the names and versions that the client chose."""
        return self._chosen_bytes + NAME_BYTES * len(self.names)

    def settled(self, version: str) -> bool:
        """Whether the client has all subscribed resources at this version of the type."""
        return self._compared == version and not (self._stale or self.forced or self.initial_response_pending)

    def covers(self, name: str) -> bool:
        """Whether the client subscribed to `name`, by itself or by the wildcard."""
        return name in self.names or (self.wildcard and not name.startswith(GRPC_LISTENER_PREFIX))

    def replace(self, names: Collection[str]) -> None:
        """Take SotW's list of names, which is complete each time.

        Raises:
            PeerError: the client exceeds its number of names.
        """
        self._bound(len(names))
        names_hash = hash(tuple(names))  # Not the names: a list may repeat one name thousands of times.
        if names_hash == self._names_hash:
            return  # As in almost every ACK.
        subscribed = set(names)
        wildcard = WILDCARD in subscribed or (self.full_state and not subscribed and not self._ever_named)
        self._ever_named = self._ever_named or bool(subscribed)
        subscribed.discard(WILDCARD)
        added = subscribed - self.names
        self._insert(added)
        self._set_wildcard(wildcard)
        self._remove(self.names - subscribed)
        self.forced |= added
        self._names_hash = names_hash

    def begin(self, subscribe: Collection[str], initial_versions: Mapping[str, str]) -> None:
        """Take delta's first request: names or the legacy wildcard, and `initial_resource_versions`.

        Raises:
            PeerError: the client exceeds its number of names.
        """
        self._bound(len(initial_versions))
        self.add(subscribe)
        if self.full_state and not subscribe:
            self._set_wildcard(True)
        # An empty version proves nothing, and would read as ABSENT; our own versions are shorter.
        self.returned = {
            name: version
            for name, version in initial_versions.items()
            if 0 < len(version) <= MAX_VERSION_CHARS and self.covers(name)
        }
        unnamed = self.returned.keys() - self.names
        self._chosen_bytes += sum(map(len, (*self.returned.values(), *unnamed)))
        self._chosen_bytes += VERSION_BYTES * len(self.returned) + NAME_BYTES * len(unnamed)

    def add(self, names: Collection[str]) -> None:
        """Take delta's `resource_names_subscribe`.

        Raises:
            PeerError: the client exceeds its number of names.
        """
        self._bound(len(names))
        named = {*names} - {WILDCARD}
        if WILDCARD in names:
            self.forced.update(name for name, version in self.returned.items() if version != ABSENT)
            self._set_wildcard(True)
        self._insert(named - self.names)
        self.forced |= named
        self._changes = None
        self._bound(len(self.names))

    def drop(self, names: Collection[str]) -> None:
        """Take delta's `resource_names_unsubscribe`.

        Raises:
            PeerError: the client exceeds its number of names.
        """
        self._bound(len(names))
        if WILDCARD in names:
            self._set_wildcard(False)
        gone = {*names} & self.names
        self._remove(gone)
        self.forced.update(name for name in gone if self.covers(name))

    def force(self, name: str) -> None:
        """Send a name once more, even if the client may have its version."""
        self.forced.add(name)
        self._changes = None

    def answer(self, nonce: str, error: str | None) -> Answer | None:
        """Match an answer to its response; None if no response waits for it."""
        covered = self.unanswered.take(nonce)
        if not covered:
            return None
        version = covered[-1].version
        if error is None:
            self._ack(covered)
            return Answer(self.type_url, version, None)
        self.nacked_version, self.error = version, error[:MAX_ERROR_CHARS]
        return Answer(self.type_url, version, self.error, self._nack(covered))

    def _ack(self, covered: Iterable[Sent]) -> None:
        self._changes = None
        for sent in covered:
            self.acked_version = sent.version
            if self.nacked:
                accepted = {*sent.carried}
                self.nacked = {
                    name: version
                    for name, version in self.nacked.items()
                    if name not in accepted and self.returned.get(name) == version
                }
        if not self.nacked:
            # A later good version ends the complaint about an earlier one.
            self.nacked_version = self.error = ""

    def _nack(self, covered: Sequence[Sent]) -> str:
        """Record a NACK; return the name of its resource, empty if its response had several."""
        self._changes = None
        for sent in covered:
            if not sent.repeatable:
                continue
            for name, version in sent.carried.items():
                # A newer response may have brought another version since.
                if self.covers(name) and self.returned.get(name, ABSENT) == version:
                    self.returned[name] = UNSURE
                    self._stale.add(name)
        alone = [sent for sent in covered if len(sent.carried) == 1 and any(sent.carried.values())]
        for sent in alone:
            self.nacked.update(sent.carried)
        return next(iter(alone[0].carried)) if alone and len(covered) == 1 else ""

    def changes(self, snapshot: Snapshot) -> Changes:
        """Compare the returned resources with the subscribed ones."""
        version = snapshot.version(self.type_url)
        if self._compared != version:
            self._compare(snapshot, version)
        if self._changes is None:
            self._changes = self._pending_changes(snapshot)
        return self._changes

    def _compare(self, snapshot: Snapshot, version: str) -> None:
        here = snapshot.of_type(self.type_url)
        covered = (name for name in here if self.covers(name)) if self.wildcard else self.names & here.keys()
        unlike = {name for name in covered if self.returned.get(name) != here[name].version}
        unlike.update(self.names.difference(self.returned, here))
        unlike.update(name for name in self.returned.keys() - here.keys() if self.returned[name] != ABSENT)
        self._compared, self._stale, self._changes = version, unlike, None

    def _pending_changes(self, snapshot: Snapshot) -> Changes:
        """Sort stale and forced names into changes; the work grows with their number, not with all names."""
        names = self._stale | self.forced
        if not names:
            return _NOTHING
        here = snapshot.of_type(self.type_url)
        changed = tuple(
            here[name]
            for name in sorted(names & here.keys())
            if self.covers(name) and (name in self.forced or self.returned.get(name) != here[name].version)
        )
        if alone := next((entry for entry in changed if self._needs_own_response(entry.name)), None):
            return Changes((alone,))  # The others follow once this is recorded.
        gone, missing = split_removed(sorted(names - here.keys()), self.returned, self.forced)
        if not (changed or missing or gone):
            self._stale.clear()
        return Changes(changed, missing, gone)

    def record(self, changes: Changes) -> None:
        """Record that a response brings `changes`."""
        for resource in changes.changed:
            self.returned[resource.name] = resource.version
        for name in (*changes.missing, *changes.gone):
            if name in self.names:
                self.returned[name] = ABSENT
            else:
                self.returned.pop(name, None)
        sent = {*changes.missing, *changes.gone, *(resource.name for resource in changes.changed)}
        # New sets: a set that was large keeps its memory.
        self.forced, self._stale, self._changes = self.forced - sent, self._stale - sent, None

    def record_shared(self, shared: Sent) -> None:
        """Record that a shared response brings a settled client to its version of the type."""
        self.returned.update(shared.carried)
        self._compared, self._stale, self._changes = shared.version, set(), None

    def sent(self, nonce: str, sent: Sent) -> None:
        """Record a response."""
        self.unanswered.add(nonce, sent)
        self.nonce, self.sent_version, self.initial_response_pending = nonce, sent.version, False

    def _needs_own_response(self, name: str) -> bool:
        return self.type_url == TYPE_SECRET or name in self.nacked or self.returned.get(name) == UNSURE

    def _set_wildcard(self, wildcard: bool) -> None:  # noqa: FBT001 - a private setter
        if wildcard != self.wildcard:
            self.wildcard = wildcard
            self._compared = None
            if not wildcard:
                self._forget(self.returned.keys() | self.forced)

    def _insert(self, names: set[str]) -> None:
        self.names |= names
        self._hashes += sum(map(hash, names))
        self._chosen_bytes += sum(map(len, names))
        self._changes = None

    def _remove(self, names: set[str]) -> None:
        self.names -= names
        self._hashes -= sum(map(hash, names))
        self._chosen_bytes -= sum(map(len, names))
        self._changes = None
        if not self.wildcard:
            self._forget(names)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.names:
                self.returned.pop(name, None)
                self.nacked.pop(name, None)
                self.forced.discard(name)
                self._stale.discard(name)

    def _bound(self, count: int) -> None:
        if count > self._max_names:
            raise PeerError(f"{count} resource names in one subscription, allowed: {self._max_names}")
