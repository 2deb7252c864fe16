"""One request's way to its pick: request -> prompt -> pool -> who is warm -> pick -> record."""

from __future__ import annotations

import secrets
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from prometheus_client import Gauge

from ext_proc.director import admission
from ext_proc.director.inquiry import AskedLately, Inquiry, gives_work, inquiry, note_leading, read, tenant_of
from ext_proc.director.pools import Pools
from ext_proc.director.sent import Noted, Refused, Sent
from ext_proc.director.sessions import Sessions
from ext_proc.director.traffic import Token, TrafficCounter
from ext_proc.pick import Meant, Pick, Question, Reason
from ext_proc.pick.demand import LOOK_BACK
from ext_proc.pick.pool import WINDOW_SECONDS
from ext_proc.prefix.warmth import Warmth
from ext_proc.prompt.unreadable import Unreadable
from ext_proc.protocol.request import model_in_path
from ext_proc.protocol.subset import subset
from fleet.store import Missed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from prometheus_client import CollectorRegistry

    from ext_proc.director.pools import ViewSource
    from ext_proc.kv.lookup import Asked, KvLookup
    from ext_proc.pick import Composition, PoolState, Refusal
    from ext_proc.pick.candidates import Candidates
    from ext_proc.protocol.request import RouteRequest
    from ext_proc.protocol.subset import Subset
    from fleet.settings import Settings


class Choice(NamedTuple):
    """A pick, with what is noted of its request once it is final."""

    pick: Pick
    asks: Inquiry | None = None
    """None: there is nothing to note."""
    question: Question | None = None
    kv: Asked | None = None
    candidates: Candidates | None = None


class Router:
    """Chooses endpoints for requests and remembers what it sent where. Single-threaded."""

    def __init__(
        self,
        source: ViewSource,
        settings: Settings,
        registry: CollectorRegistry,
        clock: Callable[[], float],
        kv: KvLookup | None = None,
    ) -> None:
        """`kv` answers from engines' KV events, where there are any."""
        self._source = source
        self._clock = clock
        self._kv = kv
        self.settings = settings
        self.traffic = TrafficCounter(clock, settings.signals.latency_window_seconds)
        self.warmth = _warmth(settings, None)
        """Who is warm. Changed settings may put another one here."""
        self.sessions = Sessions(
            settings.ext_proc.pick.sessions.entries, settings.ext_proc.pick.sessions.expiry_seconds
        )
        self.pools = Pools(source, settings, self.warmth, self.traffic, clock)
        self._sent = Sent(wanted=settings.signals.access_log)
        self._refused = Refused()
        # Where it begins no client knows, and no other worker is near.
        self._serials = count(1 + secrets.randbits(63))
        blocks = Gauge("warmroute_prefix_index_blocks", "Blocks held in the prefix index", registry=registry)
        blocks.set_function(lambda: sum(self.warmth.held(address) for address in self.pools.addresses))
        nbytes = Gauge("warmroute_prefix_index_bytes", "Memory of the prefix index", registry=registry)
        nbytes.set_function(lambda: self.warmth.index_nbytes)
        sessions = Gauge("warmroute_sessions", "Sessions whose endpoint is remembered", registry=registry)
        sessions.set_function(lambda: len(self.sessions))

    def route(self, request: RouteRequest) -> Pick:
        """Choose for a request whose pick is final at once, and note it."""
        return self.book(self.choose(request))

    def choose(self, request: RouteRequest) -> Choice:
        """Choose for one request: the one function that reads as its sentence. Nothing is noted yet."""
        if not self.pools.follow():
            return Choice(Pick.none(Reason.NO_FLEET))
        told = read(request, self.settings, self._clock)
        if isinstance(told, Unreadable):
            return Choice(self._unread(request, Reason(told.value)))
        prompt = told.prompt
        pool = self.pools.find(request.cluster, prompt.model)
        if pool is None:
            return Choice(Pick.none(Reason.NO_POOL, meant=Meant(model=prompt.model)))
        if not pool.shape.addresses:
            return Choice(Pick.none(Reason.NO_ENDPOINT, meant=Meant(pool.shape.name, prompt.model)))
        # A prompt that was read from a cut body may lack a model that follows in the rest.
        model = pool.shape.model_of(prompt.model, complete=prompt.complete)
        allowed = None if request.subset is None else subset(request.subset)
        picks = None if model is None else pool.bound(model, allowed)
        refusal = self._refusal(request, pool, picks, allowed)
        if refusal is not None:
            return Choice(Pick.refuse(Reason.SHED, refusal))
        if model is None or picks is None:
            reason = Reason.UNKNOWN_MODEL if allowed is None else Reason.NO_ENDPOINT
            return Choice(Pick.none(reason, meant=Meant(pool.shape.name, model)))
        asks = inquiry(request, self.settings, pool, model, told)
        kv = self._asked_of_kv(asks, told.body)
        question = self.question(asks, kv, explain=request.explain)
        pick = picks.pick(question)
        if request.headers_only:
            pick = replace(pick, reason=Reason.HEADERS)
        return Choice(pick, asks, question, kv, picks.candidates)

    def _unread(self, request: RouteRequest, reason: Reason) -> Pick:
        """Refuse by its headers a request of which no prompt was read; else let it go by weights."""
        named = model_in_path(request.path) or None
        pool = self.pools.find(request.cluster, named)
        if pool is not None and gives_work(request):
            # Where engines name their models, it is not certain whose engines are meant.
            model = pool.shape.model_of(named, complete=not pool.shape.rows_by_model)
            allowed = None if request.subset is None else subset(request.subset)
            picks = None if model is None else pool.bound(model, allowed)
            refusal = self._refusal(request, pool, picks, allowed)
            if refusal is not None:
                return Pick.refuse(Reason.SHED, refusal)
        return Pick.none(reason, meant=Meant("" if pool is None else pool.shape.name, named))

    def follow(self) -> bool:
        """Take over the newest view of the fleet; False as long as there is none."""
        return self.pools.follow()

    def sampling_floor(self) -> float:
        """The least share of requests to trace now, as the fleet's view tells."""
        view = self._source.view
        return 0.0 if view is None else view.sampling_ratio_floor

    def started(self, pick: Pick) -> Token:
        """Count a request that is on its way to the first endpoint of its pick."""
        token = self.traffic.started(pick.endpoints[0])
        self.pools.note_in_flight(token.address)
        return token

    def finished(self, token: Token) -> None:
        """Count it off, however it ended."""
        self.traffic.finished(token)
        self.pools.note_in_flight(token.address)

    def answered(self, pick: Pick | None, address: str, *, refused: bool) -> None:
        """Hear of a response from a gateway: that it is an error, or who served it, where that is told."""
        self._sent.wanted = True
        if pick is not None and pick.endpoints and (refused or address != pick.endpoints[0]):
            served = "" if refused else address
            self.missed(Missed(pick.prompt, pick.endpoints[0], served, pick.serial, pick.request))

    def missed(self, missed: Missed) -> None:
        """Take back what was noted of a request that its pick has refused, or that was served elsewhere.

        It may be another worker's, of which only what that one has shared is known here.
        """
        prompt, picked, served, serial, request = missed
        if not prompt:
            return
        now = self._clock()
        if not served:
            if request:
                self._refused.note(request, picked, now)
            self.pools.put_off_trial(picked)
        found = self._sent.take_back(serial, prompt, picked)
        if found is None:
            return
        noted, kept = found
        # Whose leading blocks are warm all the same may have had the leading part before.
        self.warmth.take_back(picked, noted.blocks, kept, 0 if kept else noted.mark)
        there = served if served in self.pools else ""
        if there:
            self._note(Noted(there, noted.blocks, 0, now))
        if noted.session:
            self.sessions.take_back(noted.session, picked, there or noted.session_before, now)
        if noted.kv_key and self._kv is not None:
            self._kv.take_back(picked, noted.kv_key)

    def take_remote(self, address: str, blocks: Sequence[int]) -> None:
        """Note what another worker sent where, as far as the endpoint is known here."""
        warm = self.warmth.add_remote(address, blocks)
        if warm is not None and blocks:
            self._sent.note(Noted(address, blocks, warm, self._clock()), shared=True)

    def reconfigure(self, settings: Settings) -> None:
        """Take over changed settings; blocks of another size, or more of them, make another index."""
        before, self.settings = self.settings, settings
        pick, was = settings.ext_proc.pick, before.ext_proc.pick
        self.traffic.window_seconds = settings.signals.latency_window_seconds
        self.sessions.entries = pick.sessions.entries
        self.sessions.expiry_seconds = pick.sessions.expiry_seconds
        outgrown = settings.limits.index_blocks_per_endpoint > before.limits.index_blocks_per_endpoint
        other = (pick.block_bytes, pick.forget_after_seconds) != (was.block_bytes, was.forget_after_seconds)
        if outgrown or other:
            self.warmth = _warmth(settings, self.warmth.on_added)
            self._sent = Sent(wanted=self._sent.wanted)
        self.pools.reconfigure(settings, self.warmth)

    def status(self) -> dict[str, Any]:
        """What the admin server shows: endpoints with their traffic and index size. No request's content."""
        seen = {entry.address: entry for entry in self.traffic.snapshot()}
        return {
            pool.shape.name: {
                address: {
                    "in_flight": self.traffic.in_flight(address),
                    "started_total": seen[address].started_total if address in seen else 0,
                    "duration_p99_seconds": seen[address].duration_p99_seconds if address in seen else None,
                    "index_blocks": self.warmth.held(address),
                }
                for address in pool.shape.addresses
            }
            for pool in self.pools
        }

    def _refusal(
        self, request: RouteRequest, pool: PoolState, picks: Composition | None, allowed: Subset | None
    ) -> Refusal | None:
        """Return the answer in the engines' place, where the settings ask for such answers.

        Where it is not known which engines of the pool are meant, whichever they are must be at their limit.
        """
        settings = self.settings.ext_proc.pick.admission
        if not settings.enabled:
            return None
        tenant = tenant_of(request.headers, self.settings)
        if admission.priority(settings, request.headers, tenant) >= settings.shed_below:
            return None
        now = self._clock()
        whichever = pool.bound_apart(allowed) if picks is None else (picks,)
        return admission.first(admission.refusal(settings, *each.waits(now)) for each in whichever)

    def _asked_of_kv(self, asks: Inquiry, body: bytes) -> Asked | None:
        """Return the prompt in the terms of KV events; None where the pool's engines tell none."""
        if self._kv is None or not asks.blocks:
            return None
        prompt = asks.prompt
        return self._kv.ask(
            asks.pool.shape.name,
            asks.model,
            body,
            complete=prompt.complete,
            adapter=prompt.adapter,
            salt=prompt.salt,
            text=prompt.text,
            tokens=prompt.tokens,
        )

    def question(self, asks: Inquiry, kv: Asked | None = None, *, explain: bool = False) -> Question:
        """Put all that is known beside a prompt."""
        now, blocks, text, warmth = self._clock(), asks.blocks, asks.prompt.text, self.warmth
        matched = self._matched(asks, kv)
        # Finding where they stand takes less than finding them.
        edges = (matched.item(matched.argmin()), matched.item(matched.argmax()))
        key = asks.leading_key() if blocks and not edges[1] else b""
        return Question(
            asks.leading_hash,
            blocks,
            len(text),
            matched,
            now,
            explain,
            AskedLately(warmth, now),
            self.sessions.endpoint(asks.session, now) if asks.session else "",
            asks.adapter,
            key,
            warmth.had(key) if key else (),
            edges,
            asks.prompt_digest,
            self._refused.by(asks.request_digest, now),
            asks.request_digest,
            next(self._serials),
        )

    def _matched(self, asks: Inquiry, kv: Asked | None) -> NDArray[np.int64]:
        """Return how many leading blocks each of a pool's endpoints holds."""
        pool, blocks = asks.pool, asks.blocks
        if kv is None or self._kv is None:
            return self.pools.column(pool).matched(blocks)
        matched = np.zeros(len(pool.shape.addresses), np.int64)
        position = pool.shape.position
        for address, held in self._kv.merged(kv, self.warmth.matched(blocks), len(blocks)).items():
            if (row := position.get(address)) is not None:
                matched[row] = min(held, len(blocks))
        return matched

    def book(self, choice: Choice) -> Pick:
        """Note what a pick changes for those who come later, now that it is final, and return it."""
        pick, asks, question, kv, candidates = choice
        if asks is None or question is None:
            return pick
        first, blocks, now, warmth = pick.endpoints[0], asks.blocks, question.now, self.warmth
        held = question.matched.item(asks.pool.shape.position[first])
        cold_bytes = question.text_bytes - held * self.settings.ext_proc.pick.block_bytes
        cold_share = 1.0 - pick.matched_share if blocks else 0.0
        asks.pool.note(
            asks.model, first, pick.cold_seconds, asks.adapter, now, cold_bytes, cold_share, candidates
        )
        noted = Noted(first, blocks, 0, now, serial=pick.serial)
        if blocks:
            total = asks.pool.demand(asks.model).at(now)
            also = {*(question.edges or ())}
            warmth.asked(blocks, now, also, total, LOOK_BACK * question.matched.size)
            noted.mark = note_leading(warmth, asks, first, held, question.leading_key)
        if kv is not None and self._kv is not None:
            noted.kv_key = self._kv.sent(first, kv)
        # A session does not follow a trial: nobody knows yet whether that one can be relied on.
        if asks.session and not pick.trial:
            noted.session, noted.session_before = asks.session, question.session
            self.sessions.note(asks.session, first, now)
        self._note(noted)
        return pick

    def _note(self, noted: Noted) -> None:
        """Count a prompt's blocks as warm, and remember it until its outcome can be told no more."""
        blocks = noted.blocks
        if blocks:
            noted.warm = self.warmth.record(noted.address, blocks)
        if blocks or noted.session or noted.kv_key:
            self._sent.note(noted)


def _warmth(settings: Settings, on_added: Callable[[str, list[int]], None] | None) -> Warmth:
    return Warmth(
        settings.limits.index_blocks_per_endpoint,
        grace_seconds=settings.ext_proc.pick.forget_after_seconds,
        popularity_seconds=WINDOW_SECONDS,
        on_added=on_added,
    )
