"""Made bodies through the exchange in every mode: no exception, and the replies that Envoy demands."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from bench.body_dense import bad_bytes, dense
from bench.body_maker import Made, make
from ext_proc.director.prompts import RequestReader
from ext_proc.pick import PickResult, Reason
from ext_proc.prompt import cut, outline, parts, prompts
from ext_proc.prompt.blocks import block_hashes, identity_of
from ext_proc.prompt.decode import BodyReader, Prompt, Unreadable
from ext_proc.prompt.encoding import decode
from ext_proc.prompt.envelope import Envelope
from ext_proc.protocol.exchange import Exchange, NeedsPick
from ext_proc.protocol.modes import BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX, NONE, STREAMED, UNDECLARED
from fleet.envoy_api.config.core.v3 import base_pb2
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.settings import parse_settings
from warmroute.demo.report import progress

if TYPE_CHECKING:
    from ext_proc.protocol.attributes import HttpRequest

MODES: Final = (NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX, UNDECLARED)
BODY_LIMITS: Final = (64, 500, 4096, 524_288)
SHOWN: Final = 20
"""Broken rules to report, at most."""
BATCH: Final = 2000
_LIMITS: Final = (
    (outline, "MAX_VALUES"),
    (outline, "MAX_MARKS"),
    (outline, "MAX_COLONS"),
    (outline, "MAX_OPENERS"),
    *((module, "MAX_PIECES") for module in (prompts, parts, cut)),
)
_OFTEN: Final = 0.3
_ENOUGH: Final = 1 << 40
_SESSION_FIELDS: Final = ("", "metadata.user_id", *Envelope.__struct_fields__)
_SETTINGS: Final = parse_settings(
    """
pools: [{name: p, endpoints: [{address: "127.0.0.1:8000"}]}]
listeners: [{name: l, address: "127.0.0.1:9000", pool: p}]
ext_proc: {pick: {sessions: {field: metadata.user_id}}}
""",
    environ={},
)


class BrokenRule(Exception):  # noqa: N818 - it is a finding
    """What a body made the exchange do that it must not."""


class Driven:
    """One exchange, with the reader behind it, and how often it needed a pick."""

    def __init__(self, body_limit: int) -> None:
        self.read: Prompt | Unreadable | None = None
        self.picks = 0
        limits = _SETTINGS.limits.model_copy(update={"body_bytes": body_limit})
        settings = _SETTINGS.model_copy(update={"limits": limits})
        self._reader = RequestReader(settings, lambda: 0.0)
        self._exchange = Exchange(body_limit=body_limit)

    def answer(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        """Return the replies to a message."""
        event = self._exchange.receive(message)
        if isinstance(event, NeedsPick):
            event = self._exchange.resume(self._pick(event.request))
        return [pb.ProcessingResponse.FromString(reply) for reply in event]

    def _pick(self, request: HttpRequest) -> PickResult:
        self.picks += 1
        if request.no_body is not None:
            return PickResult.none(request.no_body)
        self.read = self._reader.read(request).prompt
        if not isinstance(self.read, Prompt):
            return PickResult.none(Reason(self.read.value))
        identity = identity_of(self.read.model or "", self.read.salt, self.read.adapter)
        block_hashes(self.read.text, identity=identity, block_bytes=256, max_blocks=2048)
        return PickResult(("10.0.0.1:8000",), Reason.COLD, prefix="0" * 16)


def messages_of(rng: random.Random, made: Made, mode: int) -> list[pb.ProcessingRequest]:
    """Return what Envoy sends for a request with this body."""
    headers = pb.ProcessingRequest()
    fields = {":path": made.path, "content-type": "application/json", "content-encoding": made.coding}
    for key, value in fields.items():
        if value:
            headers.request_headers.headers.headers.append(
                base_pb2.HeaderValue(key=key, raw_value=value.encode("latin-1"))
            )
    if mode != UNDECLARED:
        headers.protocol_config.request_body_mode = mode  # type: ignore[assignment] # An enum takes its numbers.
    messages = [headers]
    if mode == NONE:
        return messages
    cuts = sorted(rng.randrange(len(made.body) + 1) for _ in range(rng.choice((0, 1, 3))))
    trailers = rng.random() < 0.2
    pieces = [made.body]
    if mode in (STREAMED, FULL_DUPLEX):
        pieces = [made.body[begin:end] for begin, end in zip([0, *cuts], [*cuts, None], strict=True)]
    elif mode == BUFFERED_PARTIAL and cuts:
        pieces = [made.body[: cuts[0]]]
        trailers = False
    for number, piece in enumerate(pieces):
        message = pb.ProcessingRequest()
        message.request_body.body = piece
        message.request_body.end_of_stream = (
            number == len(pieces) - 1 and not trailers and not (mode == BUFFERED_PARTIAL and bool(cuts))
        )
        messages.append(message)
    if trailers:
        message = pb.ProcessingRequest()
        message.request_trailers.SetInParent()
        messages.append(message)
    return messages


def drive(rng: random.Random, made: Made) -> Driven:
    """Play one request. Raises `BrokenRule` for a reply that Envoy would not take, or whatever escapes."""
    mode = rng.choice(MODES)
    driven = Driven(rng.choice(BODY_LIMITS))
    sent, echoed, kinds, with_metadata = b"", b"", [], 0
    messages = messages_of(rng, made, mode)
    for message in messages:
        kind = message.WhichOneof("request") or ""
        sent += message.request_body.body
        replies = driven.answer(message)
        got = [reply.WhichOneof("response") for reply in replies]
        if mode != FULL_DUPLEX and got != [kind]:
            raise BrokenRule(f"{kind} is answered by {got}")
        kinds += got
        for reply in replies:
            with_metadata += reply.HasField("dynamic_metadata")
            echoed += reply.request_body.response.body_mutation.streamed_response.body
            if mode != FULL_DUPLEX and reply.request_body.response.HasField("body_mutation"):
                raise BrokenRule("the body is changed")
    if mode == FULL_DUPLEX:
        _check_duplex(messages, kinds, sent, echoed)
    if with_metadata > 1 or driven.picks > 1:
        raise BrokenRule(f"decided {driven.picks} times and said it {with_metadata} times")
    return driven


def _check_duplex(
    messages: list[pb.ProcessingRequest], kinds: list[str | None], sent: bytes, echoed: bytes
) -> None:
    if echoed != sent:
        raise BrokenRule("the body that goes on is another one")
    trailers = messages[-1].WhichOneof("request") == "request_trailers"
    expected = ["request_headers", *["request_body"] * kinds.count("request_body")]
    if kinds != expected + ["request_trailers"] * trailers:
        raise BrokenRule(f"full duplex: {kinds}")


def check_read(rng: random.Random, made: Made, *, session_field: str, tight: bool) -> None:
    """Read a body by itself. A legal one has a prompt, and a cut of it the beginning of that prompt.

    `tight`: limits may leave none of it.
    """
    reader = BodyReader()
    whole = reader.read(made.plain, complete=True, path=made.path).prompt
    named = BodyReader([session_field]).read(made.plain, complete=True, path=made.path).prompt
    if (named._replace(session="") if isinstance(named, Prompt) else named) != whole:
        raise BrokenRule(f"with sessions by {session_field}, it is {named}")
    in_steps = BodyReader(one_pass=False).read(made.plain, complete=True, path=made.path).prompt
    if in_steps != whole:
        raise BrokenRule(f"with messages as they are spelled, it is {in_steps}")
    if not made.legal:
        return
    decoded = decode(made.body, made.coding, _ENOUGH)
    if isinstance(decoded, Unreadable) or not decoded.complete or decoded.body != made.plain:
        raise BrokenRule(f"decoded as {decoded}")
    if not isinstance(whole, Prompt):
        if tight:
            return
        raise BrokenRule(f"legal, but {whole}")
    at = rng.randrange(len(made.plain))
    part = reader.read(made.plain[:at], complete=False, path=made.path).prompt
    if not isinstance(part, Prompt) or whole.text.startswith(part.text):
        return
    # A whole body may meet a limit earlier than its leading part does: then it has the shorter text.
    if not (tight and part.text.startswith(whole.text)):
        raise BrokenRule(f"cut at {at}, the text is another one")


def play(seed: int, number: int) -> str:
    """Make one body and play it; return what became of it. Raises what must not happen."""
    made = dense(seed, number) or bad_bytes(seed, number) or make(seed, number)
    rng = random.Random(f"{seed}:{number}:play")
    name = random.Random(f"{seed}:{number}:session").choice(_SESSION_FIELDS)
    session_field = f"{name}.id" if number % 3 == 0 and name else name
    tight = rng.random() < _OFTEN
    limits = {place: rng.randrange(1, 40) for place in _LIMITS[:3]}
    pieces = rng.randrange(8, 30)
    limits[outline, "MAX_OPENERS"] = rng.randrange(1, 40)
    kept = {place: getattr(*place) for place in _LIMITS}
    try:
        if tight:
            # Small bodies meet the limits of large ones.
            for module, name in _LIMITS:
                setattr(module, name, limits.get((module, name), pieces))
        driven = drive(rng, made)
        check_read(rng, made, session_field=session_field, tight=tight)
    finally:
        for (module, name), value in kept.items():
            setattr(module, name, value)
    if driven.read is None:
        return "not_asked"
    return "prompt" if isinstance(driven.read, Prompt) else driven.read.value


def play_batch(seed: int, begin: int, end: int) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Play bodies `begin` to `end`; return how they were read, and what was broken by which."""
    outcomes: Counter[str] = Counter()
    broken: list[dict[str, Any]] = []
    for number in range(begin, end):
        try:
            outcomes[play(seed, number)] += 1
        except Exception as error:  # noqa: BLE001 - whatever escapes is the finding, and is counted
            broken.append({"seed": seed, "number": number, "error": f"{type(error).__name__}: {error}"[:500]})
    return outcomes, broken


def fuzz(count: int, seed: int, *, first: int = 0, processes: int = 2) -> dict[str, Any]:
    """Play `count` bodies from number `first` on, in several processes."""
    outcomes: Counter[str] = Counter()
    broken: list[dict[str, Any]] = []
    begins = range(first, first + count, BATCH)
    ends = [min(begin + BATCH, first + count) for begin in begins]
    with ProcessPoolExecutor(processes) as pool:
        for done, (counted, violations) in enumerate(
            pool.map(play_batch, [seed] * len(begins), begins, ends), 1
        ):
            outcomes += counted
            broken += violations
            if done % 50 == 0:
                progress(f"{done * BATCH} bodies, {len(broken)} broken")
    return {
        "bodies": count,
        "seed": seed,
        "first": first,
        "outcomes": dict(sorted(outcomes.items())),
        "broken_rules": len(broken),
        "broken": broken[:SHOWN],
    }
