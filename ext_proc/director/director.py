"""One request's way to its decision: prompt -> pool -> warm endpoints -> profile; then its booking."""

from __future__ import annotations

import secrets
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from prometheus_client import Gauge
from xxhash import xxh3_64_intdigest

from ext_proc.director import admission
from ext_proc.director.accuracy import Accuracy
from ext_proc.director.places import Places, StoredNames, session_name, stored_name
from ext_proc.director.pools import Pools
from ext_proc.director.prompts import RequestReader, gives_work, session_digest
from ext_proc.director.sent import RecentRefusals, SentPrompt, SentPrompts
from ext_proc.director.sessions import Sessions
from ext_proc.director.traffic import Token, TrafficCounter
from ext_proc.pick import Decision, PickRequest, PickResult, Reason
from ext_proc.pick.cost_terms import LEADING_BYTES
from ext_proc.pick.demand import LOOK_BACK
from ext_proc.pick.request import WINDOW_SECONDS
from ext_proc.pick.subset import subset
from ext_proc.prefix.leading import leading_mark
from ext_proc.prefix.warmth import Warmth
from ext_proc.prompt.blocks import blocks_within, units
from ext_proc.prompt.outgrown import behind
from ext_proc.prompt.path import model_in_path
from ext_proc.prompt.stored import name_in_path
from ext_proc.prompt.unreadable import Unreadable
from fleet.ranks import address_of_rank
from fleet.store import Missed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from prometheus_client import CollectorRegistry

    from ext_proc.kv.lookup import KvLookup, KvPrompt
    from ext_proc.pick import PoolState, Refusal, SchedulerProfile
    from ext_proc.pick.first_token import SentRequest
    from ext_proc.pick.subset import Subset
    from ext_proc.prompt.decode import ParsedBody, Prompt
    from ext_proc.protocol.attributes import HttpRequest
    from ext_proc.protocol.endpoint_picker import ViewSource
    from fleet.settings import Settings
    from fleet.store import FleetView

_MOST_GROWTH: Final = 4
"""Of a conversation's body in one turn, as a factor: shorter ones do not outgrow `limits.body_bytes`."""


class Director:
    """Picks endpoints for requests and remembers the prompts of each. Single-threaded."""

    def __init__(
        self,
        source: ViewSource,
        settings: Settings,
        registry: CollectorRegistry,
        clock: Callable[[], float],
        kv: KvLookup | None = None,
    ) -> None:
        """`kv` looks prompts up in engines' KV events."""
        self._source = source
        self._clock = clock
        self._kv = kv
        self._apply(settings)
        self.traffic = TrafficCounter(clock, settings.signals.latency_window_seconds)
        self.warmth = _warmth(settings, None)
        """The index of warm endpoints. Changed settings may replace it."""
        self.sessions = Sessions(
            settings.ext_proc.pick.sessions.entries, settings.ext_proc.pick.sessions.expiry_seconds
        )
        self.places = Places(_places(settings))
        self._stored = StoredNames(self.places, registry)
        self._accuracy = Accuracy(registry)
        self.pools = Pools(source, settings, self.warmth, self.traffic, clock, self._accuracy)
        self._sent = SentPrompts(tracks=settings.signals.access_log)
        self._refusals = RecentRefusals()
        # Clients cannot guess the first serial, and no other worker begins near it.
        self._serials = count(1 + secrets.randbits(63))
        blocks = Gauge("warmroute_prefix_index_blocks", "Blocks in the prefix index", registry=registry)
        blocks.set_function(
            lambda: sum(self.warmth.index.block_count(address) for address in self.pools.addresses)
        )
        nbytes = Gauge("warmroute_prefix_index_bytes", "Memory of the prefix index", registry=registry)
        nbytes.set_function(lambda: self.warmth.index.nbytes)
        sessions = Gauge("warmroute_sessions", "Sessions whose endpoint is remembered", registry=registry)
        sessions.set_function(lambda: len(self.sessions))

    def pick(self, request: HttpRequest, parsed: ParsedBody, *, explain: bool = False) -> Decision:
        """Pick for one request that `reader` has read. It changes nothing before `book`.

        `explain`: the decision lists other endpoints as well.
        """
        if not self.pools.follow():
            return Decision(PickResult.none(Reason.NO_FLEET))
        allowed = None if request.subset is None else subset(request.subset)
        prompt = parsed.prompt
        if isinstance(prompt, Unreadable):
            return self._without_prompt(request, parsed, prompt, allowed)
        pool = self.pools.find(request.cluster, prompt.model)
        if pool is None:
            return Decision(PickResult.none(Reason.NO_POOL))
        if not pool.shape.addresses:
            return Decision(PickResult.none(Reason.NO_ENDPOINT))
        stored = self._stored.at(
            parsed, request.path if request.no_body else "", pool.shape.endpoints, allowed
        )
        # The model may follow in the missing rest of a cut body.
        model = pool.shape.model_of(prompt.model, complete=prompt.complete)
        too_short = pool.too_short(prompt) if pool.context_lengths else 0.0
        profile = None if model is None else pool.profile(model, allowed, too_short)
        if self._refuses and (refusal := self._refusal(request, pool, profile, allowed)) is not None:
            return Decision(PickResult.refuse(Reason.SHED, refusal))
        if stored and (profile is None or not profile.candidates.places(stored)):
            return Decision(PickResult((stored,), Reason.STORED))
        if model is None or profile is None:
            reason = Reason.UNKNOWN_MODEL if allowed is None else Reason.NO_ENDPOINT
            return Decision(PickResult.none(reason))
        decision = profile.pick(
            self.pick_request(
                request, parsed, prompt, pool, model, explain=explain, stored=stored, too_short=too_short
            )
        )
        return decision if pool.shape.ranks == 1 else pool.by_endpoint(decision)

    def _without_prompt(
        self, request: HttpRequest, parsed: ParsedBody, unreadable: Unreadable, allowed: Subset | None
    ) -> Decision:
        """Refuse a request without a readable prompt by headers, or send it by what it names or weights."""
        model_named = model_in_path(request.path) or None
        pool = self.pools.find(request.cluster, model_named)
        if pool is not None and gives_work(request.attributes):
            # Where engines name their models, the request may be for any of them.
            model = pool.shape.model_of(model_named, complete=not pool.shape.rows_by_model)
            profile = None if model is None else pool.profile(model, allowed)
            if self._refuses and (refusal := self._refusal(request, pool, profile, allowed)) is not None:
                return Decision(PickResult.refuse(Reason.SHED, refusal))
        if pool is not None and (
            stored := self._stored.at(parsed, request.path, pool.shape.endpoints, allowed)
        ):
            return Decision(PickResult((stored,), Reason.STORED))
        return Decision(PickResult.none(request.no_body or Reason(unreadable.value)))

    @property
    def view(self) -> FleetView | None:
        """The newest view of the fleet; None until the first full sync."""
        return self._source.view

    def started(self, address: str, sent: SentRequest | None = None) -> Token:
        """Count a request in flight to an endpoint or rank; `sent` is what `book` returned for it."""
        token = self.traffic.started(address, sent)
        self.pools.note_in_flight(address, token.started_at)
        return token

    def finished(self, token: Token) -> None:
        """Count a request as ended."""
        self.traffic.finished(token)
        self.pools.note_end(token.address, token.sent)

    def answered(self, result: PickResult | None, address: str, *, refused: bool) -> None:
        """Process a gateway's report of a response: an error, or the endpoint that served it."""
        self._sent.tracks = True
        if result is not None and result.endpoints and (refused or address != result.endpoints[0]):
            served = "" if refused else address
            self.missed(Missed(result.prompt, result.endpoints[0], served, result.serial, result.request))

    def missed(self, missed: Missed) -> None:
        """Take back the booking of a request that its pick has refused, or that another endpoint served.

        For another worker's request, only the blocks that it has shared are taken back.
        """
        prompt, picked, served, serial, request = missed
        if not prompt:
            return
        now = self._clock()
        if not served:
            if request:
                self._refusals.note(request, picked, now)
            self.pools.put_off_trial(picked)
        names = self.pools.columns_of(picked)
        taken_back = self._sent.take_back(serial, prompt, names)
        if taken_back is None:
            return
        sent, kept = taken_back
        # Where leading blocks stay warm, the leading part may have been there before.
        self.warmth.take_back(sent.address, sent.blocks, kept, 0 if kept else sent.mark)
        # Every attempt names the same rank.
        columns = dict(enumerate(self.pools.columns_of(served) if served in self.pools else ()))
        there = columns.get(names.index(sent.address), "")
        if there:
            self._record(SentPrompt(there, sent.blocks, 0, now))
        if sent.session:
            self.sessions.take_back(sent.session, sent.address, there or sent.session_before, now)
            if self._hard and (place := address_of_rank(there or sent.session_before)):
                self.places.place(session_name(sent.session), place)
        if sent.kv_key and self._kv is not None:
            self._kv.view.expect_no_more(picked, sent.kv_key)

    def stored_at(self, path: str) -> str:
        """Return the endpoint that has what a path names; empty: none is known."""
        name = name_in_path(path)
        return self.places.find(stored_name(name)) if name else ""

    def stored(self, name: str, address: str) -> None:
        """Remember the endpoint whose answer has given a name to what it has stored."""
        if address in self.pools and self.settings.ext_proc.pick.stored_names:
            self.places.place(stored_name(name), address)

    def take_remote(self, address: str, blocks: Sequence[int]) -> None:
        """Record a prompt that another worker sent, if the endpoint is in the fleet."""
        warm = self.warmth.add_remote(address, blocks)
        if warm is not None and blocks:
            self._sent.note(SentPrompt(address, blocks, warm, self._clock()), shared=True)

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings; blocks of another size, or more of them, need a new index."""
        before = self.settings
        self._apply(settings)
        pick, was = settings.ext_proc.pick, before.ext_proc.pick
        self.traffic.window_seconds = settings.signals.latency_window_seconds
        self.sessions.entries = pick.sessions.entries
        self.sessions.expiry_seconds = pick.sessions.expiry_seconds
        self.places.entries = _places(settings)
        outgrown = settings.limits.index_blocks_per_endpoint > before.limits.index_blocks_per_endpoint
        other = (pick.block_bytes, pick.forget_after_seconds) != (was.block_bytes, was.forget_after_seconds)
        if outgrown or other:
            self.warmth = _warmth(settings, self.warmth.on_added)
            self._sent = SentPrompts(tracks=self._sent.tracks)
        self.pools.reconfigure(settings, self.warmth)

    def _apply(self, settings: Settings) -> None:
        self.settings = settings
        self.reader = RequestReader(settings, self._clock)
        self._block_bytes = settings.ext_proc.pick.block_bytes
        self._long = settings.limits.body_bytes // _MOST_GROWTH
        self._hard = settings.ext_proc.pick.sessions.mode == "hard"
        self._refuses = settings.ext_proc.pick.admission.enabled

    def status(self) -> dict[str, Any]:
        """Return endpoints with their traffic and index size, for the admin server."""
        traffic = self.traffic.by_name()
        return {
            pool.shape.name: {
                address: {
                    "in_flight": self.traffic.in_flight(address),
                    "started_total": entry.started_total if (entry := traffic.get(address)) else 0,
                    "duration_p99_seconds": entry.duration_p99_seconds if entry else None,
                    "index_blocks": self.warmth.index.block_count(address),
                }
                for address in pool.shape.addresses
            }
            for pool in self.pools
        }

    def _refusal(
        self, request: HttpRequest, pool: PoolState, profile: SchedulerProfile | None, allowed: Subset | None
    ) -> Refusal | None:
        """Return a refusal in the engines' place.

        If the request may be for any of the pool's engines, all of them must be at their limit.
        """
        settings = self.settings.ext_proc.pick.admission
        tenant = self.reader.tenant(request.attributes)
        if admission.priority(settings, request.attributes, tenant) >= settings.shed_below:
            return None
        now = self._clock()
        profiles = pool.profiles_apart(allowed) if profile is None else (profile,)
        return admission.first(admission.refusal(settings, *each.waits(now)) for each in profiles)

    def pick_request(
        self,
        request: HttpRequest,
        parsed: ParsedBody,
        prompt: Prompt,
        pool: PoolState,
        model: str,
        *,
        explain: bool = False,
        stored: str = "",
        too_short: float = 0.0,
    ) -> PickRequest:
        """Look a prompt up in a pool; `stored` is the endpoint that has what it names."""
        now, warmth, text, reader = self._clock(), self.warmth, prompt.text, self.reader
        tenant = reader.tenant(request.attributes)
        own = pool.shape.aliases.get(model, model)
        identity, blocks = reader.blocks(prompt, own, tenant)
        whole = text or request.request_id.encode("utf-8", "surrogatepass")
        leading_hash = blocks[0] if blocks else xxh3_64_intdigest(identity + whole)
        body = parsed.body
        digest = xxh3_64_intdigest(body, xxh3_64_intdigest(identity)) if body else leading_hash
        kv = None
        if self._kv is not None and blocks:
            kv = self._kv.locate(pool.shape.name, own, prompt, parsed.envelope)
        matched, uncached = self._matched(pool, blocks, kv), pool.caching.off
        if uncached is not None:
            matched[uncached] = 0
        # Taking positions costs less than computing the values.
        edges = (matched.item(matched.argmin()), matched.item(matched.argmax()))
        mark = 0
        if blocks and not edges[1]:
            mark, _ = leading_mark(text, identity, blocks, self._block_bytes, LEADING_BYTES)
        session = session_digest(
            reader.session(request.attributes) or prompt.session, pool.shape.name, tenant
        )
        return PickRequest(
            leading_hash,
            blocks,
            len(text),
            matched,
            now,
            explain=explain,
            popularity=warmth.popularity,
            session=self.sessions.endpoint(session, now) if session else "",
            adapter=_adapter(pool, own, prompt.adapter),
            leading_mark=mark,
            earlier_holders=_caching(warmth.leading.holders(mark), pool) if mark else (),
            edges=edges,
            prompt=blocks[-1] if blocks else leading_hash,
            refused_by=self._refusals.by(digest, now),
            request=digest,
            serial=next(self._serials),
            headers_only=request.no_body is not None,
            pool=pool.shape.name,
            model=model,
            pinned=stored or (self.places.find(session_name(session)) if self._hard and session else ""),
            stored=bool(stored),
            subset=None if request.subset is None else subset(request.subset),
            too_short=too_short,
            session_digest=session,
            identity=identity,
            text=text,
            cut_blocks=self._cut_blocks(parsed, prompt, pool, own, tenant),
            kv_keys=None if kv is None else kv.keys,
            kv_shape=0 if kv is None else kv.shape,
        )

    def _cut_blocks(
        self, parsed: ParsedBody, prompt: Prompt, pool: PoolState, own: str, tenant: str
    ) -> Sequence[int]:
        """Return the blocks of a long prompt without what a leading part of the body does not show.

        The next turn of its conversation may have only these. Empty: it has the same.
        """
        if not prompt.complete or len(parsed.body) < self._long:
            return ()
        hidden, shape = behind(parsed.body, prompt.text), pool.shape
        model = shape.model_of(None, complete=False) if hidden.model else own
        if model is None or (not hidden.leads and model == own):
            return ()
        cut = prompt._replace(text=prompt.text[hidden.leads :])
        return self.reader.blocks(cut, shape.aliases.get(model, model), tenant)[1]

    def _matched(self, pool: PoolState, blocks: Sequence[int], kv: KvPrompt | None) -> NDArray[np.int64]:
        """Return the number of warm leading blocks by endpoint of a pool."""
        if kv is None or self._kv is None:
            return self.pools.column(pool).matched(blocks)
        matched = np.zeros(len(pool.shape.addresses), np.int64)
        position = pool.shape.position
        local = {address: units(count) for address, count in self.warmth.index.matched(blocks).items()}
        merged = self._kv.merged(kv, local, units(len(blocks)), pool.shape.ranks)
        for address, warm in merged.items():
            if (row := position.get(address)) is not None:
                matched[row] = min(blocks_within(warm), len(blocks))
        return matched

    def book(self, decision: Decision) -> SentRequest | None:
        """Apply a final decision to the state for later requests; return what `started` gets."""
        request, result = decision.request, decision.result
        if request is None or (pool := self.pools.get(request.pool)) is None:
            return None
        first, blocks, now = result.rank_name or result.endpoints[0], request.blocks, request.now
        total, seconds, expected = pool.book(decision)
        self.traffic.picked(first, seconds)
        matched = request.matched.item(pool.shape.position[first])
        self._accuracy.picked(request.pool, request.text_bytes, units(matched) * self._block_bytes)
        sent = SentPrompt(first, blocks, 0, now, serial=result.serial)
        if blocks:
            look_back = LOOK_BACK * request.matched.size
            also = {*request.edges} if request.edges else ()
            self.warmth.popularity.count(blocks, now, also, total, look_back)
            sent.mark = self._note_leading(request, first, matched)
        if request.cut_blocks:
            self.warmth.record(first, request.cut_blocks)
        if request.kv_keys is not None and self._kv is not None:
            sent.kv_key = self._kv.view.expect(result.endpoints[0], request.kv_keys, request.kv_shape)
        # A session does not follow a trial: that endpoint may not be reliable yet.
        if request.session_digest and not decision.trial:
            sent.session, sent.session_before = request.session_digest, request.session
            self.sessions.note(request.session_digest, first, now)
            if self._hard:
                self.places.place(session_name(request.session_digest), result.endpoints[0])
        self._record(sent)
        return expected

    def _note_leading(self, request: PickRequest, address: str, matched: int) -> int:
        """Record the endpoint of a prompt's leading part, for the time after its blocks are forgotten.

        It is recorded if no endpoint had any of it (`leading_mark`), or `address` has all of it. Return the
        mark of a new part, otherwise 0.
        """
        if request.leading_mark:
            self.warmth.leading.record(request.leading_mark, address)
            return request.leading_mark
        text, identity, blocks = request.text, request.identity, request.blocks
        mark, whole = leading_mark(text, identity, blocks, self._block_bytes, LEADING_BYTES)
        if matched >= max(whole, 1):
            self.warmth.leading.record(mark, address, in_use=True)
        return 0

    def _record(self, sent: SentPrompt) -> None:
        """Count a prompt's blocks as warm, and remember it until its outcome is certain."""
        blocks = sent.blocks
        if blocks:
            sent.warm = self.warmth.record(sent.address, blocks)
        if blocks or sent.session or sent.kv_key:
            self._sent.note(sent)


def _caching(holders: Sequence[str], pool: PoolState) -> Sequence[str]:
    """Return the holders without engines that keep no prefixes."""
    off, position = pool.caching.off, pool.shape.position
    return (
        holders if off is None else [each for each in holders if each in position and not off[position[each]]]
    )


def _adapter(pool: PoolState, model: str, named: str) -> str:
    """Return the request's adapter, otherwise the model if engines serve several by name."""
    return f"{model}\0{named}" if named or (pool.shape.several and pool.shape.names(model)) else ""


def _places(settings: Settings) -> int:
    pick = settings.ext_proc.pick
    return pick.stored_names + (pick.sessions.entries if pick.sessions.mode == "hard" else 0)


def _warmth(settings: Settings, on_added: Callable[[str, list[int]], None] | None) -> Warmth:
    return Warmth(
        settings.limits.index_blocks_per_endpoint,
        grace_seconds=settings.ext_proc.pick.forget_after_seconds,
        popularity_seconds=WINDOW_SECONDS,
        on_added=on_added,
    )
