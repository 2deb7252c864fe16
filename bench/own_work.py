"""What ext_proc's own work on one request costs in CPU, in parts, without a transport.

The messages are those of the real Envoy by our own configuration: one each request, with the whole body and
attributes. Each goes through a `RequestStream` of a worker with its default settings, access log included:
bytes in, bytes out. Conversations take turns and grow by a message and its answer each time, so that most of
a prompt is warm where it went before. Each engine has some requests in flight, and every tick brings new
loads. Times are in microseconds of CPU for a request:

- all: everything from the message to the end of the stream: the mean over rounds of 64 requests, so that
  work that only some requests do counts, and of these means the lower quartile;
- around: the same with a constant decision in place of pick, booking and counts of requests in flight;
- decode, exchange, read, blocks, pick, reply, book, settle, close: the parts, each without the others inside
  it, and `rest`: means by the clock over the middle half of further requests, which it slows down a little;
- calls: Python functions that one request calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import inspect
import json
import random
import statistics
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from bench.lane_site import prose
from ext_proc.director.director import Director
from ext_proc.director.prompts import RequestReader
from ext_proc.idempotency.guard import Idempotency
from ext_proc.kv.service import KvEvents
from ext_proc.pick.result import Decision, PickResult, Reason
from ext_proc.processor import ExternalProcessor, RequestStream
from ext_proc.protocol import message
from ext_proc.protocol.exchange import Exchange
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import CROWDED_ATTRIBUTE, EXT_PROC_FILTER
from fleet.service.telemetry import tracer_provider
from fleet.settings import parse_settings
from fleet.store import FleetStore
from testing.signals import Load, Signal, view_with
from warmroute.demo import report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ext_proc.prompt.decode import ParsedBody
    from ext_proc.protocol.attributes import HttpRequest
    from warmroute.demo.report import Target

SIZES: Final = {"4kb": 4 * 1024, "48kb": 48 * 1024, "220kb": 220 * 1024}
ENDPOINTS: Final = (4, 100)
CONVERSATIONS: Final = 64
BATCH: Final = 64
"""Requests whose messages are made at once."""
IN_FLIGHT: Final = 4
"""For each endpoint: a stream ends behind this number of younger ones."""
SECONDS_EACH: Final = 0.001
"""Between two requests, on the worker's clock."""
MOST: Final = {("4kb", 4): 100.0, ("4kb", 100): 120.0, ("48kb", 4): 200.0}
MOST_AROUND: Final = {("4kb", 4): 40.0}
PARTS: Final = {
    "decode": (message, "decode"),
    "exchange": (Exchange, "receive"),
    "read": (RequestStream, "_read"),
    "blocks": (RequestReader, "blocks"),
    "pick": (Director, "pick"),
    "reply": (Exchange, "resume"),
    "book": (Director, "book"),
    "settle": (RequestStream, "settle"),
    "close": (RequestStream, "close"),
}
_SETTINGS: Final = """
pools: [{name: p, models: [m], endpoints: [{address: "127.0.0.1:8000"}]}]
listeners: [{name: l, address: "127.0.0.1:9000", pool: p}]
"""


class Worker:
    """One worker with its fleet, and the streams that are open."""

    def __init__(self, endpoints: int, seed: int = 7) -> None:
        settings, registry = parse_settings(_SETTINGS, environ={}), CollectorRegistry()
        self._draw, self._now = random.Random(seed), 1000.0
        self._tick_seconds, self._tick_at = settings.xds.tick_seconds, 0.0
        ends = tuple(Endpoint(f"10.{n >> 8}.{n & 255}.1:8000", "p", ("m",)) for n in range(endpoints))
        self._membership = Membership((Pool("p", ends),))
        self._store = FleetStore()
        kv = KvEvents(settings, self._store, registry, self._clock)
        director = Director(self._store, settings, registry, self._clock, kv.lookup)
        keys = Idempotency(settings, registry, self._clock, "bench")
        tracer = tracer_provider(settings.telemetry, "ext_proc", registry).get_tracer("bench")
        self._director = director
        self._processor = ExternalProcessor(director, keys, tracer, registry)
        self.open: deque[RequestStream] = deque()
        self._most_open = IN_FLIGHT * endpoints

    def serve(self, data: bytes) -> list[bytes]:
        """Answer one request, and end the oldest stream that has an answer long since."""
        stream = RequestStream(self._processor)
        replies = answer(stream, data)
        self.open.append(stream)
        if len(self.open) > self._most_open:
            self.open.popleft().close()
        return replies

    def without_picks(self) -> None:
        """Decide without a pick from now on; blocks are hashed all the same."""
        director: Any = self._director
        first = next(iter(self._membership.addresses))
        decision = Decision(PickResult((first,), Reason.WARM, 0.75, f"{1:016x}", 0.01, None, 1 << 60, 2, 3))

        def pick(_request: HttpRequest, parsed: ParsedBody, **_: bool) -> Decision:
            director.reader.blocks(parsed.prompt, "m", "")
            return decision

        director.pick, director.book = pick, lambda _: None
        director.started, director.finished = (lambda *_: 1), lambda _: None

    def advance(self) -> None:
        """Let time pass up to the next request; ticks publish."""
        self._now += SECONDS_EACH
        if self._now < self._tick_at:
            return
        self._tick_at = self._now + self._tick_seconds
        loads = {address: self._load() for address in self._membership.addresses}
        self._store.publish(view_with(self._membership, dict.fromkeys(loads, 1000), loads))

    def _clock(self) -> float:
        return self._now

    def _load(self) -> Load:
        values = {
            "queue_depth": float(self._draw.randrange(3)),
            "running": float(self._draw.randrange(1, 8)),
            "memory_used_ratio": self._draw.uniform(0.2, 0.9),
            "prefill_tokens_per_second": self._draw.uniform(15e3, 25e3),
            "trust_ratio": 1.0,
            "reachable": 1.0,
        }
        return Load(**{name: Signal(value, self._now, "bench") for name, value in values.items()})


def answer(stream: RequestStream, data: bytes) -> list[bytes]:
    """Return a stream's replies to a message, as the transports do."""
    replies: Any = stream.replies(message.decode(data))
    if inspect.iscoroutine(replies):
        try:
            replies.send(None)
        except StopIteration as returned:
            replies = returned.value
    return [reply if isinstance(reply, bytes) else reply.SerializeToString() for reply in replies]


class Messages:
    """Envoy's messages for chats of about one size: conversations that take turns, each time longer."""

    def __init__(self, size: int, seed: int = 7) -> None:
        self._draw, self._size, self._next = random.Random(seed), size, 0
        self._text = prose(self._draw, 16 * size)
        self._system = self._part(size // 4)
        self._talks: list[list[str]] = [[] for _ in range(CONVERSATIONS)]

    def message(self) -> bytes:
        """Return the next one; a conversation begins at three quarters of the size, and ends at five."""
        talk = self._talks[self._next % CONVERSATIONS]
        self._next += 1
        turn = self._size // 16
        if len(talk) >= 15:
            talk.clear()
        for _ in range(2 if talk else 7 + self._draw.randrange(4) * 2):
            talk.append(self._part(turn))
        roles = ("user", "assistant")
        messages = [{"role": "system", "content": self._system}]
        messages += [{"role": roles[n % 2], "content": text} for n, text in enumerate(talk)]
        body = {"model": "m", "temperature": 0.2, "messages": messages, "stream": True}
        return message_of(json.dumps(body).encode(), self._draw)

    def _part(self, size: int) -> str:
        start = self._draw.randrange(len(self._text) - size)
        return self._text[start : start + size]


def message_of(body: bytes, draw: random.Random) -> bytes:
    """Return the message of the real Envoy 1.40; `tests/bench/test_own_work.py` has one of it to compare."""
    sent = pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=True))
    sent.metadata_context.SetInParent()
    number = draw.getrandbits(128)
    uuid = f"{number:032x}"
    values = {
        "request.id": "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])),
        CROWDED_ATTRIBUTE: "",
        "request.headers['content-type']": "application/json",
        "xds.cluster_name": "p",
        "request.path": "/v1/chat/completions",
    }
    fields = sent.attributes[EXT_PROC_FILTER].fields
    for name in draw.sample(sorted(values), len(values)):
        fields[name].string_value = values[name]
    sent.protocol_config.request_body_mode = 2  # type: ignore[assignment] # BUFFERED
    return sent.SerializeToString()


class Laps:
    """Time in parts: each without the parts inside it."""

    def __init__(self) -> None:
        self.now: dict[str, float] = {}
        self._inside: list[float] = [0.0]

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        """Wrap the functions of all parts."""
        with contextlib.ExitStack() as stack:
            for part, (owner, name) in PARTS.items():
                original = getattr(owner, name)
                setattr(owner, name, self._wrapped(part, original))
                stack.callback(setattr, owner, name, original)
            yield

    def _wrapped(self, part: str, original: Any) -> Any:
        inside, clock = self._inside, time.perf_counter

        def timed(*args: Any, **named: Any) -> Any:
            inside.append(0.0)
            begun = clock()
            try:
                return original(*args, **named)
            finally:
                took = clock() - begun
                self.now[part] += took - inside.pop()
                inside[-1] += took

        return timed


def measure(size: int, endpoints: int, rounds: int) -> dict[str, Any]:
    """Return the figures of one size and fleet."""
    worker, messages = Worker(endpoints), Messages(size)
    for _ in range(10 * CONVERSATIONS):
        worker.advance()
        worker.serve(messages.message())
    gc.collect()
    gc.freeze()
    figures = {"all": seconds(worker, messages, rounds)}
    figures |= parts(worker, messages, rounds * BATCH // 2)
    called = calls(worker, messages)
    while worker.open:
        worker.open.popleft().close()
    worker.without_picks()
    figures["around"] = seconds(worker, messages, rounds)
    gc.unfreeze()
    shown = {f"{name}_us": round(value * 1e6, 1) for name, value in figures.items()}
    return {"endpoints": endpoints, **shown, "calls": called}


def seconds(worker: Worker, messages: Messages, rounds: int) -> float:
    """Return the thread's time of one request: the lower quartile of the rounds' means."""
    means = []
    for _ in range(rounds):
        taken = 0.0
        # Made ahead, so that no request finds its own bytes in the processor's caches.
        for data in [messages.message() for _ in range(BATCH)]:
            worker.advance()
            begun = time.thread_time()
            worker.serve(data)
            taken += time.thread_time() - begun
        means.append(taken / BATCH)
    return statistics.quantiles(means, n=4)[0]


def parts(worker: Worker, messages: Messages, requests: int) -> dict[str, float]:
    """Return the mean time of each part over the requests of the middle half by their whole time."""
    laps, timed = Laps(), []
    with laps.timing():
        for _ in range(requests):
            worker.advance()
            data, laps.now = messages.message(), dict.fromkeys(PARTS, 0.0)
            begun = time.perf_counter()
            worker.serve(data)
            timed.append((time.perf_counter() - begun, laps.now))
    timed.sort(key=lambda entry: entry[0])
    middle = timed[len(timed) // 4 : -len(timed) // 4]
    means = {part: statistics.fmean(lap[part] for _, lap in middle) for part in PARTS}
    return {**means, "rest": statistics.fmean(whole for whole, _ in middle) - sum(means.values())}


def calls(worker: Worker, messages: Messages) -> int:
    """Return how many Python functions one request calls."""
    counts = []
    for _ in range(BATCH):
        data, count = messages.message(), 0

        def note(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal count
            count += event == "call"

        worker.advance()
        sys.setprofile(note)
        worker.serve(data)
        sys.setprofile(None)
        counts.append(count)
    return int(statistics.median(counts))


def targets_of(runs: Sequence[dict[str, Any]]) -> Iterator[Target]:
    """Hold the figures against what is wanted."""
    for run in runs:
        for name, most in (("all", MOST), ("around", MOST_AROUND)):
            if (bound := most.get((run["size"], run["endpoints"]))) is not None:
                figure = f"{name}_{run['size']}_{run['endpoints']}_endpoints_us"
                yield report.at_most(figure, run[f"{name}_us"], bound)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.own_work",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, action="append", help="may be repeated; default: all")
    parser.add_argument("--endpoints", type=int, action="append", help="default: 4 and 100")
    parser.add_argument("--rounds", type=int, default=20, help="of 64 requests; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(argv)
    if min(args.endpoints or ENDPOINTS) < 1 or args.rounds < 2:
        parser.error("allowed: --endpoints from 1 and --rounds from 2")
    runs = asyncio.run(_measured(args.size or list(SIZES), args.endpoints or ENDPOINTS, args.rounds))
    return report.finish({"runs": runs}, list(targets_of(runs)), as_json=args.json)


async def _measured(sizes: Sequence[str], fleets: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    runs = []
    for size in sizes:
        for endpoints in fleets:
            run = {"size": size, **measure(SIZES[size], endpoints, rounds)}
            report.progress("  ".join(f"{name} {value}" for name, value in run.items()))
            runs.append(run)
    return runs


if __name__ == "__main__":
    sys.exit(report.command(main))
