"""The cost of one pick, in parts, by the number of endpoints and the length of the prompt.

A pool of engines is at work. Every prompt begins with a system prompt of half its blocks, which every engine
has cached. A conversation follows; one engine has cached all of it but the last message. Times are in
microseconds. Every step runs after the one before it, as in service; the best of some rounds counts.

- decode: body to prompt; hash: prompt to blocks; look_up: cached blocks by engine;
- pick: from there to the order of endpoints; record: its effect on later picks;
- choice: look_up, pick and record together, which may depend on the number of endpoints;
- score, choose, considered: the parts of pick measured again: cost by endpoint, the order, the explanation;
- route: a whole request, from its body to its record; rest: route without decode, hash and choice;
- hot_choice, hot_route: the same if every other engine lacks the system prompt, so that its price depends on
  its demand: the most work for look-up, prices and comparison;
- tick: the work for all requests between two reads of the loads; filter is part of it.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from ext_proc.director.director import Director
from ext_proc.pick.context import FilterContext
from ext_proc.pick.explanation import comparison
from ext_proc.pick.filters import filtered
from ext_proc.prompt.decode import Prompt
from ext_proc.protocol.attributes import CLUSTER, HttpRequest
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import parse_settings
from fleet.store import FleetStore, FleetView
from testing.signals import Load, Signal, view_with
from warmroute.demo import report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ext_proc.pick import PickRequest, PoolState, SchedulerProfile
    from ext_proc.prompt.decode import ParsedBody
    from warmroute.demo.report import Target

PROMPTS: Final = 64
"""Conversations that take turns, so that no cache of the processor holds just one."""
ROUNDS: Final = 12
REQUESTS_EACH: Final = 64
"""Of the pool's requests lately, for each endpoint."""
_MOST_RATIO: Final = 3.0
_MOST_MICROSECONDS: Final = 150.0
_SETTINGS: Final = """
pools: [{name: p, models: [m], endpoints: [{address: "127.0.0.1:8000"}]}]
listeners: [{name: l, address: "127.0.0.1:9000", pool: p}]
"""


class World:
    """A director over a fleet at work, and requests for it. Time stands still."""

    def __init__(self, endpoints: int, blocks: int, seed: int = 7, *, hot: bool = False) -> None:
        """`hot`: every other engine lacks the system prompt."""
        self.draw = random.Random(seed)
        self.now = 1000.0
        self.settings = parse_settings(_SETTINGS, environ={})
        ends = tuple(Endpoint(f"10.{n >> 8}.{n & 255}.1:8000", "p", ("m",)) for n in range(endpoints))
        self.membership = Membership((Pool("p", ends),))
        self.store = FleetStore()
        self.director = Director(self.store, self.settings, CollectorRegistry(), lambda: self.now)
        self.publish()
        self.director.pools.follow()
        pool = self.director.pools.find("p", "m")
        assert pool is not None
        self.pool: PoolState = pool
        size = self.settings.ext_proc.pick.block_bytes
        system = self._text(blocks // 2 * size)
        talks = [self._text((blocks - blocks // 2 - 1) * size) for _ in range(PROMPTS)]
        talk_blocks = [self._blocks_of(request_of(system + talk)) for talk in talks]
        for number, end in enumerate(ends):
            blocks_of_talk = talk_blocks[(number // 2 if hot else number) % PROMPTS]
            recorded = (
                blocks_of_talk if number < (2 if hot else 1) * PROMPTS else blocks_of_talk[: blocks // 2]
            )
            self.director.warmth.record(end.address, () if hot and number % 2 else recorded)
            for _ in range(self.draw.randrange(1, 8)):
                self.director.traffic.started(end.address)
                self.director.pools.note_in_flight(end.address)
        self.requests = [request_of(system + talk + self._text(size)) for talk in talks]
        self.publish()
        self.director.pools.follow()
        for _ in range(REQUESTS_EACH * endpoints):
            # Others that begin alike: their conversations are theirs.
            self.director.warmth.popularity.count(talk_blocks[0][: blocks // 2], self.now, (blocks // 2 - 1,))
            self.pool.demand("m").add(self.now)

    def publish(self) -> None:
        """Publish signals of this moment."""
        loads = {address: self._load() for address in self.membership.addresses}
        self.store.publish(view_with(self.membership, dict.fromkeys(loads, 1000), loads))

    def profile(self) -> SchedulerProfile:
        """Return what picks in this tick."""
        profile = self.pool.profile("m")
        assert profile is not None
        return profile

    def request(self, request: HttpRequest, parsed: ParsedBody) -> PickRequest:
        """Return what is picked for."""
        assert isinstance(parsed.prompt, Prompt)
        return self.director.pick_request(request, parsed, parsed.prompt, self.pool, "m")

    def blocks(self, parsed: ParsedBody) -> list[int]:
        """Return a prompt's blocks."""
        assert isinstance(parsed.prompt, Prompt)
        return self.director.reader.blocks(parsed.prompt, "m", "")[1]

    def _blocks_of(self, request: HttpRequest) -> list[int]:
        return self.blocks(self.director.reader.read(request))

    def _load(self) -> Load:
        values = {
            "queue_depth": float(self.draw.randrange(3)),
            "running": float(self.draw.randrange(1, 8)),
            "memory_used_ratio": self.draw.uniform(0.2, 0.9),
            "prefill_tokens_per_second": self.draw.uniform(15e3, 25e3),
            "trust_ratio": 1.0,
            "reachable": 1.0,
        }
        return Load(**{name: Signal(value, self.now, "bench") for name, value in values.items()})

    def _text(self, size: int) -> str:
        return self.draw.randbytes(size // 2 + 1).hex()[:size]


def request_of(text: str) -> HttpRequest:
    """Return a chat request."""
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
    return HttpRequest(json.dumps(body).encode(), complete=True, attributes={CLUSTER: "p"})


class Stopwatch:
    """Times of steps that follow each other, request after request, as they do in service.

    What a step costs depends on what ran before it: repeated by itself it finds all it needs in the
    processor's caches, and seems to cost half. Of each request and step the best of the rounds counts.
    """

    def __init__(self, *names: str) -> None:
        self._best = {name: [float("inf")] * PROMPTS for name in names}
        self._at = 0.0
        self._item = 0

    def begin(self, item: int) -> None:
        """Begin with a request."""
        self._item, self._at = item, time.perf_counter()

    def lap(self, name: str) -> None:
        """End a step, and begin the next one."""
        best, now = self._best[name], time.perf_counter()
        best[self._item] = min(best[self._item], now - self._at)
        self._at = time.perf_counter()

    def means(self) -> dict[str, float]:
        """Return the mean over all requests, in microseconds."""
        return {f"{name}_us": round(sum(best) / len(best) * 1e6, 2) for name, best in self._best.items()}


def measure(endpoints: int, blocks: int, *, hot: bool = False) -> dict[str, Any]:
    """Return the figures of one fleet and length of prompts."""
    world = World(endpoints, blocks, hot=hot)
    watch = Stopwatch(
        "route", "decode", "hash", "hash_and_look_up", "score", "choose", "considered", "pick", "record"
    )
    ticks = Stopwatch("tick", "filter")
    gc.collect()
    gc.disable()
    for number in range(ROUNDS):
        for item, request in enumerate(world.requests):
            _steps(world, watch, item, request)
        for item in range(PROMPTS if number < 2 else 4):
            ticks.begin(item)
            _tick(world)
            ticks.lap("tick")
            _filter(world)
            ticks.lap("filter")
    gc.enable()
    parts = {**watch.means(), **ticks.means()}
    parts["look_up_us"] = round(parts.pop("hash_and_look_up_us") - parts["hash_us"], 2)
    choice = sum(parts[name] for name in ("look_up_us", "pick_us", "record_us"))
    rest = parts["route_us"] - choice - parts["decode_us"] - parts["hash_us"]
    figures = {"endpoints": endpoints, "blocks": blocks, "body_bytes": len(world.requests[0].body)}
    return {**figures, "choice_us": round(choice, 2), "rest_us": round(rest, 2), **parts}


def _steps(world: World, watch: Stopwatch, item: int, request: HttpRequest) -> None:
    director, profile = world.director, world.profile()
    watch.begin(item)
    director.book(director.pick(request, director.reader.read(request)))
    watch.lap("route")
    parsed = director.reader.read(request)
    watch.lap("decode")
    world.blocks(parsed)
    watch.lap("hash")
    pick_request = world.request(request, parsed)
    watch.lap("hash_and_look_up")
    decision = profile.pick(pick_request)
    watch.lap("pick")
    director.book(decision)
    watch.lap("record")
    scored = profile.score(pick_request)
    watch.lap("score")
    order = profile.choose(scored)
    watch.lap("choose")
    comparison(profile.candidates.addresses, order, scored, profile.costs.fixed)
    watch.lap("considered")


def _tick(world: World) -> None:
    view = world.store.view
    assert view is not None
    world.store.publish(FleetView(view.membership, view.weights, view.signals))
    world.director.pools.follow()
    world.profile()


def _filter(world: World) -> None:
    columns, settings = world.pool.columns, world.settings.ext_proc.pick
    assert columns is not None
    filtered(FilterContext(world.pool.shape, columns, settings, "m"), settings.filters)


def targets_of(runs: Sequence[dict[str, Any]]) -> Iterator[Target]:
    """Hold the largest fleet against the smallest, and against its target."""
    for blocks in sorted({run["blocks"] for run in runs}):
        alike = sorted((run for run in runs if run["blocks"] == blocks), key=lambda run: run["endpoints"])
        least, most = alike[0], alike[-1]
        name = f"choice_{most['endpoints']}_endpoints_{blocks}_blocks"
        yield report.at_most(f"{name}_us", most["choice_us"], _MOST_MICROSECONDS)
        if len(alike) > 1:
            over = report.ratio(most["choice_us"], least["choice_us"])
            yield report.at_most(f"{name}_over_{least['endpoints']}_endpoints", over, _MOST_RATIO)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the bench's options."""
    parser.add_argument("--endpoints", type=_numbers, default=(10, 100, 1000), help="default 10,100,1000")
    length = "length of a prompt in block_bytes; default: 32,512"
    parser.add_argument("--blocks", type=_numbers, default=(32, 512), help=length)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.pick", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments(parser)
    args = parser.parse_args(argv)
    runs = []
    for blocks in args.blocks:
        for endpoints in args.endpoints:
            run = measure(endpoints, blocks)
            hot = measure(endpoints, blocks, hot=True)
            run |= {f"hot_{name}": hot[name] for name in ("choice_us", "route_us")}
            report.progress("  ".join(f"{name} {value}" for name, value in run.items()))
            runs.append(run)
    return report.finish({"runs": runs}, list(targets_of(runs)), as_json=args.json)


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if all(part.isascii() and part.isdigit() and 2 <= int(part) <= 2048 for part in parts):
        return tuple(int(part) for part in parts)
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: numbers from 2 to 2,048, with commas between")


if __name__ == "__main__":
    sys.exit(report.command(main))
