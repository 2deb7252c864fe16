"""What one stream holds of one type: the state that SotW and delta share.

State of a subscription (one per type URL and stream)
    names, wildcard   what the client asked for; the wildcard is a state, not a list of names
    given             name to the version that the client was given, or says that it holds; or UNSURE
    due               names that are owed although their version may be known to the client
    owed              the first request of the type has not been answered yet
    nonce, sent_version, acked_version, nacked_version, error     of the newest response and answers
    refused           name to the version that the client refused when it came alone
    unanswered        nonce to what was sent in responses without ACK or NACK: `answers.py`

Rules
    First request     Always answered, with whatever is there, even if its `version_info` equals ours:
                      versions are hashes of content and outlive a stream, nonces do not. Its nonce
                      belongs to an earlier stream and means nothing. It names the node; later ones
                      need not.
    Nonce             It matches an answer to its response, no more. Requests of a stream come in order, so
                      names count whatever the nonce: while pushes overtake every answer, no request carries
                      the newest one. What such a request adds is due, and nothing else is sent again.
    ACK, NACK         The first request with a response's nonce is its answer: with `error_detail` a NACK,
                      without an ACK; later requests with the same nonce only change names.
    Refused           Envoy stops at the first resource that it refuses, or refuses all because of one, and
                      does not say which. So after a NACK of several resources it is UNSURE which of
                      them the client has, and each comes once more in a response of its own. What was
                      refused alone is not sent again until its content changes, and then alone, so that it
                      takes nothing with it: of one content a name is sent twice at most. SotW's clusters and
                      listeners always come complete: Envoy takes the good ones, and the next change
                      brings all again.
    Secrets           Each in a response of its own from the start: files of others may be anything, and Envoy
                      ACKs a secret that it has refused when it comes again, so who it was would be unknown.
    Wildcard          Legacy: no names in the first request for clusters or listeners. Explicit: the name
                      `*`, of any type. SotW: a list without `*` ends it, and an empty list after any
                      name unsubscribes from everything. Delta: only unsubscribing `*` ends it.
    Resubscription    A name that a client drops is forgotten; asking for it again makes it due. Delta: any
                      name in `resource_names_subscribe` is due, even one already subscribed, because the
                      client may have lost it; so is a name that is unsubscribed while the wildcard still
                      covers it.
    By name only      What is meant for gRPC's clients is never part of the wildcard.
    Unknown names     SotW: left out, so they never block known ones; no empty assignment is made up, for
                      it would take endpoints away from an Envoy that still has some. Delta: told once in
                      `removed_resources`. Either way they are sent as soon as they exist.
    Removal           SotW: absence, for clusters and listeners; nothing for endpoints and routes, which go
                      with what refers to them. Delta: `removed_resources`.
    Reconnection      Delta's `initial_resource_versions` fill `given`: what the wildcard alone covers is not
                      sent again if it is equal. What is named is due all the same: a client may list what it
                      has lost since, such as the endpoints of a cluster that was still warming.
    Nothing known     Without a snapshot requests are held, and answered when the first is set.

Rules over the types of one stream are in `variant.py`.
Source: Envoy's page "xDS REST and gRPC protocol" and its discovery.proto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.errors import PeerError
from fleet.names import GRPC_LISTENER_PREFIX, TYPE_CLUSTER, TYPE_LISTENER, TYPE_SECRET
from xds_server.discovery.answers import MAX_ERROR_CHARS, Answer, Sent, Unanswered
from xds_server.discovery.budget import NAME_BYTES, VERSION_BYTES
from xds_server.discovery.changes import ABSENT, UNSURE, Changes, taken_away

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from xds_server.snapshot.snapshot import Resource, Snapshot

WILDCARD: Final = "*"
FULL_STATE_TYPES: Final = frozenset({TYPE_CLUSTER, TYPE_LISTENER})
"""SotW responses of these types carry everything, and a missing name is a removal."""
MAX_VERSION_CHARS: Final = 64
"""Ours have at most 25."""
Key = tuple[int, int, bool]
"""Number of the names, sum of their hashes (which Python makes with a secret), and the wildcard."""

_NOTHING: Final = Changes()


class Subscription:
    """One type on one stream. Only `variant.py` and the two variants change it."""

    def __init__(self, type_url: str, *, max_names: int, newest_only: bool = False) -> None:
        self.type_url = type_url
        self.names: set[str] = set()
        self.wildcard = False
        self.given: dict[str, str] = {}
        self.due: set[str] = set()
        self.owed = True
        self.nonce = self.error = ""
        self.sent_version = self.acked_version = self.nacked_version = ""
        self.refused: dict[str, str] = {}
        self.unanswered = Unanswered(cumulative=newest_only)
        self.first_version = ""
        """SotW: `version_info` of the first request."""
        self.held: dict[str, Resource] = {}
        """SotW, types that come complete: what the client holds, to repeat what goes only later."""
        self._max_names = max_names
        self._ever_named = False
        self._listed: int | None = None
        """SotW: hash of the names as the newest request lists them."""
        self._hashes = 0
        """Sum over all names."""
        self._chosen_bytes = 0
        self._compared: str | None = None
        """Version of the type at which all was compared."""
        self._unlike: set[str] = set()
        """What differed then and has not been told since; what is `due` counts apart."""
        self._changes: Changes | None = None

    @property
    def full_state(self) -> bool:
        """Whether SotW responses carry everything that is subscribed."""
        return self.type_url in FULL_STATE_TYPES

    @property
    def outstanding(self) -> bool:
        """Whether the newest response waits for its answer."""
        return self.nonce in self.unanswered

    @property
    def key(self) -> Key:
        """What the client asked for, as a value that keeps no name."""
        return len(self.names), self._hashes, self.wildcard

    @property
    def name_bytes(self) -> int:
        """Memory that names and versions take that the client has chosen."""
        return self._chosen_bytes + NAME_BYTES * len(self.names)

    def settled(self, version: str) -> bool:
        """Whether the client is known to have all that it asked for at this version of the type."""
        return self._compared == version and not (self._unlike or self.due or self.owed)

    def covers(self, name: str) -> bool:
        """Whether the client asked for `name`, by itself or by the wildcard."""
        return name in self.names or (self.wildcard and not name.startswith(GRPC_LISTENER_PREFIX))

    def replace(self, names: Collection[str]) -> None:
        """Take SotW's list of names, which is complete each time.

        Raises:
            PeerError: there are more names than one client may have.
        """
        self._bound(len(names))
        listed = hash(tuple(names))  # The names themselves may be one, thousands of times.
        if listed == self._listed:
            return  # As almost every ACK: what it says was done when it was said first.
        wanted = set(names)
        wildcard = WILDCARD in wanted or (self.full_state and not wanted and not self._ever_named)
        self._ever_named = self._ever_named or bool(wanted)
        wanted.discard(WILDCARD)
        added = wanted - self.names
        self._insert(added)
        self._set_wildcard(wildcard)
        self._remove(self.names - wanted)
        self.due |= added
        self._listed = listed

    def begin(self, subscribe: Collection[str], held: Mapping[str, str]) -> None:
        """Take delta's first request: names, or the legacy wildcard, and what the client already holds.

        Raises:
            PeerError: there are more names than one client may have.
        """
        self._bound(len(held))
        self.add(subscribe)
        if self.full_state and not subscribe:
            self._set_wildcard(True)
        # An empty version proves nothing, and would read as ABSENT; a long one is none of ours.
        self.given = {
            name: told
            for name, told in held.items()
            if 0 < len(told) <= MAX_VERSION_CHARS and self.covers(name)
        }
        unnamed = self.given.keys() - self.names
        self._chosen_bytes += sum(map(len, (*self.given.values(), *unnamed)))
        self._chosen_bytes += VERSION_BYTES * len(self.given) + NAME_BYTES * len(unnamed)

    def add(self, names: Collection[str]) -> None:
        """Take delta's `resource_names_subscribe`.

        Raises:
            PeerError: there are more names than one client may have.
        """
        self._bound(len(names))
        named = {*names} - {WILDCARD}
        if WILDCARD in names:
            self.due.update(known for known, version in self.given.items() if version != ABSENT)
            self._set_wildcard(True)
        self._insert(named - self.names)
        self.due |= named
        self._changes = None
        self._bound(len(self.names))

    def drop(self, names: Collection[str]) -> None:
        """Take delta's `resource_names_unsubscribe`.

        Raises:
            PeerError: there are more names than one client may have.
        """
        self._bound(len(names))
        if WILDCARD in names:
            self._set_wildcard(False)
        gone = {*names} & self.names
        self._remove(gone)
        self.due.update(name for name in gone if self.covers(name))

    def owe(self, name: str) -> None:
        """Give the client a name once more, although its version may be known to it."""
        self.due.add(name)
        self._changes = None

    def answer(self, nonce: str, error: str | None) -> Answer | None:
        """Match an answer to its response; None if it answers nothing (any more)."""
        covered = self.unanswered.take(nonce)
        if not covered:
            return None
        version = covered[-1].version
        if error is None:
            self._accepted(covered)
            return Answer(self.type_url, version, None)
        self.nacked_version, self.error = version, error[:MAX_ERROR_CHARS]
        return Answer(self.type_url, version, self.error, self._doubt(covered))

    def _accepted(self, covered: Iterable[Sent]) -> None:
        self._changes = None
        for sent in covered:
            self.acked_version = sent.version
            if self.refused:
                taken = {*sent.carried}
                self.refused = {
                    name: version
                    for name, version in self.refused.items()
                    if name not in taken and self.given.get(name) == version
                }
        if not self.refused:
            # A later good version ends the complaint about an earlier one.
            self.nacked_version = self.error = ""

    def _doubt(self, covered: Sequence[Sent]) -> str:
        """Note a NACK; return the name of what it is about if that came alone."""
        self._changes = None
        for sent in covered:
            if not sent.repeatable:
                continue
            for name, version in sent.carried.items():
                # What has gone out since is another matter.
                if self.covers(name) and self.given.get(name, ABSENT) == version:
                    self.given[name] = UNSURE
                    self._unlike.add(name)
        alone = [sent for sent in covered if len(sent.carried) == 1 and any(sent.carried.values())]
        for sent in alone:
            self.refused.update(sent.carried)
        return next(iter(alone[0].carried)) if alone and len(covered) == 1 else ""

    def changes(self, snapshot: Snapshot) -> Changes:
        """Compare what the client was given with what it asked for."""
        version = snapshot.version(self.type_url)
        if self._compared != version:
            self._compare(snapshot, version)
        if self._changes is None:
            self._changes = self._untold(snapshot)
        return self._changes

    def _compare(self, snapshot: Snapshot, version: str) -> None:
        here = snapshot.of_type(self.type_url)
        covered = (name for name in here if self.covers(name)) if self.wildcard else self.names & here.keys()
        unlike = {name for name in covered if self.given.get(name) != here[name].version}
        unlike.update(self.names.difference(self.given, here))
        unlike.update(name for name in self.given.keys() - here.keys() if self.given[name] != ABSENT)
        self._compared, self._unlike, self._changes = version, unlike, None

    def _untold(self, snapshot: Snapshot) -> Changes:
        """Sort out what differs and what is due; its work follows their number, not that of all names."""
        names = self._unlike | self.due
        if not names:
            return _NOTHING
        here = snapshot.of_type(self.type_url)
        changed = tuple(
            here[name]
            for name in sorted(names & here.keys())
            if self.covers(name) and (name in self.due or self.given.get(name) != here[name].version)
        )
        if alone := next((entry for entry in changed if self._goes_alone(entry.name)), None):
            return Changes((alone,))  # The others are due once this is recorded.
        gone, missing = taken_away(sorted(names - here.keys()), self.given, self.due)
        if not (changed or missing or gone):
            self._unlike.clear()
        return Changes(changed, missing, gone)

    def record(self, changes: Changes) -> None:
        """Note that the client now knows `changes`."""
        for resource in changes.changed:
            self.given[resource.name] = resource.version
        for name in (*changes.missing, *changes.gone):
            if name in self.names:
                self.given[name] = ABSENT
            else:
                self.given.pop(name, None)
        told = {*changes.missing, *changes.gone, *(resource.name for resource in changes.changed)}
        # New sets: one that was large stays as large.
        self.due, self._unlike, self._changes = self.due - told, self._unlike - told, None

    def follow(self, given: Mapping[str, str], version: str) -> None:
        """Note that `given` (name to version) brought a settled client to `version` of the type."""
        self.given.update(given)
        self._compared, self._unlike, self._changes = version, set(), None

    def sent(self, nonce: str, version: str, carried: Mapping[str, str]) -> None:
        """Note a response with what it carried, as `Sent` has it."""
        self.unanswered.add(nonce, Sent(version, carried))
        self.nonce, self.sent_version, self.owed = nonce, version, False

    def _goes_alone(self, name: str) -> bool:
        return self.type_url == TYPE_SECRET or name in self.refused or self.given.get(name) == UNSURE

    def _set_wildcard(self, wildcard: bool) -> None:  # noqa: FBT001 - a private setter
        if wildcard != self.wildcard:
            self.wildcard = wildcard
            self._compared = None
            if not wildcard:
                self._forget(self.given.keys() | self.due)

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
                self.given.pop(name, None)
                self.refused.pop(name, None)
                self.due.discard(name)
                self._unlike.discard(name)

    def _bound(self, count: int) -> None:
        if count > self._max_names:
            raise PeerError(f"{count} resource names in one subscription, allowed: {self._max_names}")
