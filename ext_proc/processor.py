"""Requests from Envoy's messages to their replies, without the transport.

`ExternalProcessor` has what all requests of a worker share, `RequestStream` is one request. Its steps:

    receive   the exchange takes messages, until it needs a pick
    read      the body is parsed; the model chooses the pool, where the listener has several; the request
              claims its key, where duplicates are refused
    confirm   the other workers confirm the claim, where they share keys: the only step that waits
    decide    the pick, within the endpoint-picker protocol
    reply     the exchange's replies; the decision is final
    settle    it is booked, counted and traced, so that the next pick sees it

No exception of ours leaves a stream: each step catches and counts it, and the message is answered without a
pick.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ext_proc import spans
from ext_proc.decisions import PickDecisions
from ext_proc.idempotency.guard import DUPLICATE
from ext_proc.model_choice import ModelChoice
from ext_proc.pick.result import Decision, PickResult, Reason
from ext_proc.prompt.blocks import runs_of
from ext_proc.prompt.path import model_in_path
from ext_proc.prompt.unreadable import Unreadable
from ext_proc.protocol.answer import AnswerHead
from ext_proc.protocol.attributes import LISTENER, AttributeMap
from ext_proc.protocol.body_buffer import BufferedBytes
from ext_proc.protocol.endpoint_picker import EndpointPickerProtocol, Target
from ext_proc.protocol.exchange import Exchange, NeedsPick
from ext_proc.protocol.modes import State
from ext_proc.protocol.reply import NOTHING
from ext_proc.server_metrics import Faults, Metrics, Served
from ext_proc.spans import PickSpans
from fleet import recorded_prompt
from fleet.names import METADATA_BLOCKS, METADATA_TRACE, session_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from opentelemetry.trace import Span, Tracer
    from prometheus_client import CollectorRegistry

    from ext_proc.director.director import Director
    from ext_proc.director.traffic import Token
    from ext_proc.idempotency.guard import Idempotency, RequestKey
    from ext_proc.idempotency.store import Claim
    from ext_proc.model_choice import Chosen
    from ext_proc.pick.request import PickRequest
    from ext_proc.prompt.decode import ParsedBody
    from ext_proc.protocol.attributes import HttpRequest
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
    from fleet.settings import Settings

log = logging.getLogger(__name__)


class ExternalProcessor:
    """What all requests of a worker share. Single-threaded."""

    def __init__(
        self,
        director: Director,
        keys: Idempotency,
        tracer: Tracer,
        registry: CollectorRegistry,
        *,
        clock: Callable[[], float] = time.perf_counter,
        draw: Callable[[], float] = random.random,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`draw` is uniform in [0, 1), `wall` returns Unix seconds."""
        settings = director.settings
        self.director = director
        self.models = ModelChoice(director, settings)
        self.keys = keys
        self.clock = clock
        self.metrics = Metrics.on(registry)
        self.faults = Faults(self.metrics.faults, clock)
        self.spans = PickSpans(tracer, draw, director)
        self.decisions = PickDecisions(settings.limits.decisions, wall)
        self.picker_protocol = EndpointPickerProtocol(director, draw)
        self.buffered = BufferedBytes(settings.limits.held_body_bytes)
        self.metrics.buffered_bytes.set_function(lambda: self.buffered.now)
        self.streams = 0
        """Open streams."""
        self.metrics.streams.set_function(lambda: self.streams)
        self._warned_streamed = False
        self._apply(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings, to the director as well."""
        self.director.reconfigure(settings)
        self.buffered.limit = settings.limits.held_body_bytes
        self.decisions.resize(settings.limits.decisions)
        self.keys.reconfigure(settings)
        self._apply(settings)

    def _apply(self, settings: Settings) -> None:
        self.settings = settings
        # Of each request: a model's attribute behind another one costs more than this one.
        self.body_bytes, self.most_streams = settings.limits.body_bytes, settings.limits.ext_proc_streams
        self.clear_route_cache = settings.ext_proc.clear_route_cache
        self.records = bool(settings.recording.directory)
        pick = settings.ext_proc.pick
        sessions = [listener.session_header for listener in settings.listeners]
        headers = [*sessions, *pick.headers, *settings.ext_proc.idempotency.headers]
        of_sessions = pick.sessions.every_header
        self.models.reconfigure(settings)
        self.attribute_map = AttributeMap(
            [*headers, *self.models.headers],
            of_sessions,
            {session_attribute((name, *of_sessions)) for name in sessions},
            (LISTENER,) if self.models.listeners else (),
        )

    def count(self, decision: Decision, seconds: float, *, streamed: bool = False) -> None:
        """Count a decision; `streamed`: the body came too late for it."""
        self.metrics.picks.note(decision.result.reason, seconds)
        if streamed and not self._warned_streamed:
            self._warned_streamed = True
            log.warning(
                "request_body_mode is STREAMED: headers leave before the body is read, so no request can be"
                " sent to an endpoint because it is warm; use BUFFERED, BUFFERED_PARTIAL or"
                " FULL_DUPLEX_STREAMED"
            )


class RequestStream:
    """One request: messages in, replies out, and `close` at its end."""

    __slots__ = (
        "_admitted", "_answer", "_chosen", "_claim", "_duplicate", "_exchange", "_key", "_lasts",
        "_parsed", "_processor", "_reported", "_seconds", "_span", "_token",
    )  # fmt: skip

    def __init__(self, processor: ExternalProcessor, *, lasts: bool = True) -> None:
        """`lasts` is False where the stream ends with the pick: nothing that lasts as long as the request."""
        self._lasts = lasts
        self._processor = processor
        self._admitted = processor.streams < processor.most_streams
        self._exchange = Exchange(
            body_limit=processor.body_bytes if self._admitted else 0,
            attribute_map=processor.attribute_map,
            buffered=processor.buffered,
            clear_route_cache=processor.clear_route_cache,
        )
        self._parsed: ParsedBody | None = None
        """None before it is read, and after a fault."""
        self._chosen: Chosen | None = None
        """Where the listener chooses by the model."""
        self._key: RequestKey | None = None
        self._claim: Claim | None = None
        """On the request's key, where duplicates are refused."""
        self._answer: AnswerHead | None = None
        """Of a stream that shows an answer alone."""
        self._duplicate = self._reported = False
        self._seconds = 0.0
        self._span: Span | None = None
        self._token: Token | None = None
        processor.streams += 1  # Once nothing can fail, because only `close` subtracts it.

    @property
    def result(self) -> PickResult | None:
        """The result that Envoy has; None before."""
        return self._exchange.result

    @property
    def may_leave(self) -> bool:
        """Whether the stream may end now without loss for the request."""
        return self._exchange.may_leave

    def replies(self, message: pb.ProcessingRequest) -> list[bytes] | Coroutine[Any, Any, list[bytes]]:
        """Answer one message with serialised ones, at once unless workers share keys.

        Never raises for a fault of ours.
        """
        event = self._receive(message)
        if isinstance(event, list):
            if self._exchange.state is State.OBSERVING:
                self._observe(message)
            return event
        request = self._read(event.request)
        if self._claim is not None and self._processor.keys.shared:
            return self._confirmed(self._claim, request)
        return self._reply(request)

    @property
    def done(self) -> bool:
        """Whether the stream has shown all that counts of an answer."""
        return self._answer is not None and self._answer.done

    def _observe(self, message: pb.ProcessingRequest) -> None:
        """Read the name that an answer gives; Envoy waits for nothing here."""
        with self._processor.faults:
            answer = self._answer = self._answer or AnswerHead()
            answer.take(message)
            if answer.done and answer.name and self._admitted:
                self._processor.director.stored(answer.name, answer.address)

    async def _confirmed(self, claim: Claim, request: HttpRequest) -> list[bytes]:
        """Answer the deciding message once the other workers have answered for its key."""
        if not await self._processor.keys.confirm(claim):
            self._claim, self._duplicate = None, True
        return self._reply(request)

    def leave_early(self) -> list[bytes]:
        """Return the buffered body to Envoy before the stream ends; never raises for a fault of ours."""
        with self._processor.faults:
            event = self._exchange.leave_early()
            if isinstance(event, list):
                return event
            return self._reply(self._read(event.request))
        return []

    def close(self) -> None:
        """End the request: it is no longer in flight; never raises for a fault of ours."""
        processor = self._processor
        processor.streams -= 1
        token, self._token = self._token, None
        claim, self._claim = self._claim, None
        with processor.faults:
            self._exchange.close()
        if token is not None:
            with processor.faults:
                processor.director.finished(token)
        if claim is not None:
            with processor.faults:
                processor.keys.end(claim)

    def _receive(self, message: pb.ProcessingRequest) -> list[bytes] | NeedsPick:
        exchange = self._exchange
        try:
            event = exchange.receive(message)
        except Exception as error:  # noqa: BLE001 - a fault of ours may not fail a request
            self._processor.faults.note(error)
            return self._without_pick()
        if exchange.served is not None and not self._reported:
            self._reported = True
            self._report(*exchange.served)
        return event

    def _without_pick(self) -> list[bytes]:
        """Answer a message for which the exchange failed."""
        decision = Decision(PickResult.none(Reason.FAULT))
        replies = self._exchange.resume(decision.result)
        if self._exchange.result is decision.result:
            self.settle(decision, self._exchange.without_body(Reason.FAULT))
        return replies

    def _read(self, request: HttpRequest) -> HttpRequest:
        """Read the request, choose its pool by the model where the listener has several, and claim its key.

        Return the request for that pool.
        """
        processor = self._processor
        try:
            # The reply carries the span's name.
            self._span = processor.spans.begin(request.traceparent, processor.settings.telemetry)
            if request.late or not self._admitted:
                return request
            started_at = processor.clock()
            self._parsed = processor.director.reader.read(request)
            if processor.models.listeners:
                stored = processor.director.stored_at(request.path) if request.no_body else ""
                whole = self._exchange.whole_body
                self._chosen = processor.models.choose(request, self._parsed, whole, stored)
                request, self._parsed = self._chosen.request, self._chosen.parsed
            self._key = processor.keys.key_of(request, self._parsed) if self._lasts else None
            if self._key is not None and processor.keys.refuses(self._key):
                self._claim = processor.keys.begin(self._key)
                self._duplicate = self._claim is None
            if request.no_body is None:
                self._seconds = processor.clock() - started_at
        except Exception as error:  # noqa: BLE001 - a fault of ours may not fail a request
            processor.faults.note(error)
            self._parsed = self._chosen = None
        return request

    def _with_prompt(self, metadata: Mapping[str, str], picked: PickRequest) -> Mapping[str, str]:
        """Add what a recording keeps of a prompt; a fault of it costs the recording only."""
        try:
            block_bytes = self._processor.settings.ext_proc.pick.block_bytes
            runs = runs_of(picked.blocks, recorded_prompt.run_blocks(block_bytes))
            prompt = recorded_prompt.encode(picked.text_bytes, runs)
        except Exception as error:  # noqa: BLE001 - a fault of ours may not cost the pick
            self._processor.faults.note(error)
            return metadata
        return {**metadata, METADATA_BLOCKS: prompt}

    def _reply(self, request: HttpRequest) -> list[bytes]:
        """Decide, and answer the message for which the exchange needs the decision."""
        metadata = NOTHING if self._key is None else self._key.metadata
        if self._span is not None:
            metadata = {**metadata, METADATA_TRACE: spans.traceparent_of(self._span)}
        try:
            decision = self._decide(request)
            if self._processor.records and decision.request is not None:
                metadata = self._with_prompt(metadata, decision.request)
            replies = self._resume(decision.result, metadata)
        except Exception as error:  # noqa: BLE001 - a fault of ours may not fail a request
            self._processor.faults.note(error)
            decision = Decision(self._after_fault(request))
            replies = self._resume(decision.result, metadata)
        self._parsed = self._chosen = None  # The stream lasts as long as the response.
        self.settle(decision, request, metadata.get(METADATA_TRACE, ""))
        return replies

    def _resume(self, result: PickResult, metadata: Mapping[str, str]) -> list[bytes]:
        chosen = self._chosen
        if chosen is None:
            return self._exchange.resume(result, metadata)
        metadata = {**metadata, **chosen.metadata}
        return self._exchange.resume(result, metadata, reroute=chosen.clears_route, body=chosen.body)

    def _decide(self, request: HttpRequest) -> Decision:
        processor, parsed = self._processor, self._parsed
        if request.late:
            return Decision(PickResult.none(Reason.STREAMED))
        if self._duplicate:
            return Decision(PickResult.refuse(Reason.DUPLICATE, DUPLICATE))
        if self._chosen is not None and self._chosen.refusal is not None:
            return Decision(PickResult.refuse(Reason.UNKNOWN_MODEL, self._chosen.refusal))
        if not self._admitted:
            decision = Decision(PickResult.none(Reason.OVER_LIMIT))
        elif parsed is None:
            decision = Decision(PickResult.none(Reason.FAULT))
        else:
            started_at = processor.clock()
            decision = processor.director.pick(request, parsed, explain=self._span is not None)
            if request.no_body is None:
                self._seconds += processor.clock() - started_at
        result = self._enforced(decision.result, request)
        if result is decision.result:
            return decision
        if result.endpoints[:1] == decision.result.endpoints[:1] and result.endpoints:
            return msgspec.structs.replace(decision, result=result)
        return Decision(result)

    def _enforced(self, result: PickResult, request: HttpRequest) -> PickResult:
        """Return a result within the endpoint-picker protocol."""
        processor, settings = self._processor, self._processor.settings.ext_proc
        if request.subset is None and not settings.name_always:
            return result
        target = Target(request.cluster, _model(request, self._parsed))
        return processor.picker_protocol.enforce(result, target, request.subset, settings.pick.fallbacks)

    def _after_fault(self, request: HttpRequest) -> PickResult:
        """Return the result after a fault of ours: no pick, unless the gateway requires one."""
        result = PickResult.none(Reason.FAULT)
        try:
            return self._enforced(result, request)
        except Exception as error:  # noqa: BLE001 - a fault of ours may not fail a request
            self._processor.faults.note(error)
            return result

    def settle(self, decision: Decision, request: HttpRequest, trace: str = "") -> None:
        """Apply a decision that is final: the replies are built."""
        processor, exchange = self._processor, self._exchange
        try:
            sent = None
            if decision.request is not None:
                sent = processor.director.book(decision)
            # A stream that ends early would look like an idle, fast endpoint; unknown is better than wrong.
            result = decision.result
            if result.endpoints and self._lasts and exchange.lasts:
                self._token = processor.director.started(result.rank_name or result.endpoints[0], sent)
            processor.count(decision, self._seconds, streamed=exchange.streamed)
            request_id, cluster = request.request_id, request.cluster
            processor.decisions.note(
                decision, self._seconds, request_id=request_id, cluster=cluster, trace=trace
            )
            span, self._span = self._span, None
            if span is not None:
                spans.end(span, decision, self._seconds, request_id)
        except Exception as error:  # noqa: BLE001 - a fault of ours may not fail a request
            processor.faults.note(error)

    def _report(self, address: str, refused: bool) -> None:  # noqa: FBT001 - as the exchange has it
        """Process a gateway's report of the endpoint that served."""
        processor, result = self._processor, self._exchange.result
        try:
            if address:
                processor.metrics.served[Served.of(address, result)].inc()
            if address or refused:
                processor.director.answered(result, address, refused=refused)
        except Exception as error:  # noqa: BLE001 - a fault of ours may not fail a request
            processor.faults.note(error)


def _model(request: HttpRequest, parsed: ParsedBody | None) -> str | None:
    """Return the request's model; empty without one, None if unknown."""
    prompt = None if parsed is None else parsed.prompt
    if prompt is None or isinstance(prompt, Unreadable):
        return model_in_path(request.path) or None
    return "" if prompt.model is None and prompt.complete else prompt.model
