"""Picks on two real vLLM replicas against the engines' own report of cached tokens.

Tenants with long system prompts chat in turns through the real Envoy, first with KV events, then with the
local index alone, each time on empty caches that hold about half of all tenants' prompts. Before each
request the bench reads the number of the prompt's cached tokens by replica from the product's own view of the
events, and compares it with the `cached_tokens` of the serving replica.

Needs a Python with vLLM's CPU build, and a small model in Hugging Face's format with its tokenizer and chat
template: docs/kv-events.md describes both. Not part of `python -m bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from bench import vllm_engines
from ext_proc.kv.service import KvEvents
from ext_proc.kv.view import Freshness
from ext_proc.prompt.decode import BodyReader, Prompt
from fleet.names import HEADER_ENDPOINT, HEADER_MATCHED, HEADER_SERVED
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from fleet.store import FleetStore, FleetView
from warmroute.demo import processes, report
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.http_client import HttpClient
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.vllm_engines import Replica
    from warmroute.demo.report import Target

_REPLICAS: Final = 2
_SYSTEM_WORDS: Final = 420
"""About 460 tokens of SmolLM2's."""
_CONVERSATIONS: Final = 2
_SETTLE_SECONDS: Final = 0.3
"""Between requests: an engine publishes at the end of a step, and the bench compares recorded blocks."""
_PHASES: Final = ("events", "estimate")
_WORDS: Final = tuple(
    """you are the patient clerk of a railway station and answer in short sentences about trains platforms
    tickets delays bicycles luggage timetables weather rivers bridges signals steam never speak of anything
    else unless somebody asks for the way to the harbour or the museum""".split()  # noqa: SIM905 - a text
)


@dataclass
class Exchange:
    """One request: what was foreseen, and what the engine says."""

    predicted: dict[str, int]
    """Address to the tokens that the events say it holds."""
    served: str
    picked: str
    header_ratio: float | None
    """What the product's pick said of its endpoint: the share of the prompt that it holds."""
    prompt_tokens: int
    cached_tokens: int
    seconds: float


@dataclass
class Conversation:
    """One tenant's chat."""

    messages: list[dict[str, str]]
    turns_left: int


@dataclass
class Phase:
    """What one phase saw."""

    exchanges: list[Exchange] = field(default_factory=list)
    failures: int = 0

    def figures(self) -> dict[str, Any]:
        """Return the phase's figures."""
        done = self.exchanges
        judged = [entry for entry in done if entry.header_ratio is not None]
        off = [
            abs((entry.header_ratio or 0.0) * entry.prompt_tokens - entry.cached_tokens) for entry in judged
        ]
        warm = [entry for entry in done if max(entry.predicted.values(), default=0) > 0]
        return {
            "requests": len(done),
            "failures": self.failures,
            "foreseen_exactly_ratio": report.ratio(
                sum(entry.predicted.get(entry.served, 0) == entry.cached_tokens for entry in done), len(done)
            ),
            "told_off_by_tokens_mean": report.ratio(sum(off), len(off)),
            "told_off_by_a_block_ratio": report.ratio(
                sum(value > vllm_engines.BLOCK_TOKENS for value in off), len(off)
            ),
            "served_by_warmest_ratio": report.ratio(
                sum(e.predicted.get(e.served, 0) == max(e.predicted.values()) for e in warm), len(warm)
            ),
            "cached_ratio": report.ratio(
                sum(entry.cached_tokens for entry in done), sum(entry.prompt_tokens for entry in done)
            ),
            "seconds_mean": report.ratio(sum(entry.seconds for entry in done), len(done)),
            "served": {a: sum(e.served == a for e in done) for a in sorted({e.served for e in done})},
        }


def conversations(tenants: int, turns: int, draw: random.Random) -> list[Conversation]:
    """Return every tenant's conversations; those of one tenant share its system prompt."""
    made = []
    for _ in range(tenants):
        system = " ".join(draw.choice(_WORDS) for _ in range(_SYSTEM_WORDS))
        made += [Conversation([{"role": "system", "content": system}], turns) for _ in range(_CONVERSATIONS)]
    return made


class Watcher:
    """The product's own view of the replicas' events, next to the one under test."""

    def __init__(self, text: str) -> None:
        settings = parse_settings(text)
        self._store = FleetStore()
        self._pool = settings.pools[0].name
        self.events = KvEvents(settings, self._store, CollectorRegistry())
        self._view = FleetView(membership(settings))
        self._bodies = BodyReader(one_pass=False)

    async def start(self) -> None:
        """Follow the replicas; return once all their blocks are recorded."""
        await self.events.start()
        self._store.publish(self._view)
        addresses = self._view.membership.addresses
        async with asyncio.timeout(30):
            while not all(  # noqa: ASYNC110 (freshness has no event)
                self.events.view.freshness(a) is Freshness.WHOLE for a in addresses
            ):
                await asyncio.sleep(0.05)

    def predicted(self, body: bytes) -> dict[str, int]:
        """Return the number of a request's cached tokens, by address."""
        parsed = self._bodies.read(body, complete=True)
        if not isinstance(parsed.prompt, Prompt):
            return {}
        prompt = self.events.lookup.locate(self._pool, vllm_engines.MODEL, parsed.prompt, parsed.envelope)
        return {} if prompt is None else self.events.view.cached_tokens(prompt.keys)


async def run_phase(
    client: HttpClient, watcher: Watcher, talks: list[Conversation], draw: random.Random
) -> Phase:
    """Send every turn, one after the other, the conversations in random order."""
    phase = Phase()
    while open_talks := [talk for talk in talks if talk.turns_left]:
        talk = draw.choice(open_talks)
        talk.turns_left -= 1
        question = " ".join(draw.choice(_WORDS) for _ in range(draw.randint(8, 30))) + "?"
        talk.messages.append({"role": "user", "content": question})
        body = json.dumps(
            {"model": vllm_engines.MODEL, "messages": talk.messages, "max_tokens": 12, "temperature": 0}
        ).encode()
        predicted = watcher.predicted(body)
        began = time.monotonic()
        response = await client.request("POST", "/v1/chat/completions", body)
        if response.status != 200:
            phase.failures += 1
            continue
        answer, headers = json.loads(response.body), response.headers
        talk.messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        usage, matched = answer["usage"], headers.get(HEADER_MATCHED, "-")
        phase.exchanges.append(
            Exchange(
                predicted=predicted,
                served=headers.get(HEADER_SERVED, ""),
                picked=headers.get(HEADER_ENDPOINT, ""),
                header_ratio=None if matched in {"", "-"} else float(matched),
                prompt_tokens=usage["prompt_tokens"],
                cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
                seconds=response.ended_at - began,
            )
        )
        await asyncio.sleep(_SETTLE_SECONDS)
    return phase


async def one_phase(
    name: str, replicas: Sequence[Replica], model: Path, directory: Path, args: argparse.Namespace
) -> Phase:
    """Run a phase on a deployment of its own, with the caches emptied before."""
    for replica in replicas:
        await replica.forget()
    settings = ClusterSettings("serve", engine=EngineSettings(model=vllm_engines.MODEL))
    cluster = Cluster(settings, Path(tempfile.mkdtemp(prefix=name, dir=directory)))
    cluster.engines = [replica.address for replica in replicas]
    watched = {
        "endpoints": [replica.settings() for replica in replicas],
        "engine": "vllm",
        "tokenizer": str(model / "tokenizer.json"),
        "chat_template": str(args.chat_template or model / "chat_template.jinja"),
    }
    cluster.pool_overrides = watched
    cluster.write_settings()
    watcher = Watcher(cluster.settings_path.read_text())
    if name == "estimate":
        cluster.pool_overrides = {"engine": "vllm"}
        cluster.write_settings()
    async with AsyncExitStack() as stack:
        stack.callback(cluster.kill)
        stack.push_async_callback(watcher.events.stop)
        # Events start with the first newly filled block, so one is filled.
        for replica in replicas:
            await _warm_up(replica)
        await watcher.start()
        await cluster.start_services()
        await stack.enter_async_context(EnvoyProcess(await cluster.bootstrap(), directory=cluster.directory))
        await cluster.wait_answer("envoy", cluster.address, "/v1/models")
        if name == "events":
            await asyncio.sleep(2.0)
        client = HttpClient(cluster.address, time.monotonic)
        stack.callback(client.close)
        draw = random.Random(args.seed)
        return await run_phase(client, watcher, conversations(args.tenants, args.turns, draw), draw)


async def _warm_up(replica: Replica) -> None:
    client = HttpClient(replica.address, time.monotonic)
    body = {"model": vllm_engines.MODEL, "prompt": list(range(100, 140)), "max_tokens": 1}
    try:
        await client.request("POST", "/v1/completions", json.dumps(body).encode())
    finally:
        client.close()


async def picks_on_vllm(args: argparse.Namespace) -> dict[str, Phase]:
    """Start the replicas and run the phases.

    Raises:
        BenchError: a part did not start.
    """
    model = Path(args.model)
    if not (model / "tokenizer.json").exists():
        raise BenchError(f"{model}: no tokenizer.json there")
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    replicas: list[Replica] = []
    try:
        for number in range(_REPLICAS):
            name = f"vllm-{number}"
            replicas.append(vllm_engines.start(name, args.python, model, args.blocks, directory))
        report.progress(f"{_REPLICAS} replicas are starting; this takes a minute or two")
        await asyncio.gather(*(replica.ready() for replica in replicas))
        phases = {}
        for name in _PHASES:
            report.progress(f"-- {name}")
            phases[name] = await one_phase(name, replicas, model, directory, args)
        return phases
    finally:
        await asyncio.gather(*(replica.child.stop() for replica in replicas))
        shutil.rmtree(directory, ignore_errors=True)


def result_of(phases: dict[str, Phase]) -> tuple[dict[str, Any], list[Target]]:
    """Return the object that `--json` prints, and the targets."""
    figures = {name: phase.figures() for name, phase in phases.items()}
    events = figures["events"]
    return figures, [
        report.at_least("foreseen_exactly_ratio", events["foreseen_exactly_ratio"], 0.95),
        report.at_most("told_off_by_a_block_ratio", events["told_off_by_a_block_ratio"], 0.05),
        report.at_least("served_by_warmest_ratio", events["served_by_warmest_ratio"], 0.95),
        report.exactly("failures", sum(phase.failures for phase in phases.values()), 0),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.vllm", description=__doc__)
    parser.add_argument("--python", required=True, help="a Python that has vLLM")
    parser.add_argument("--model", required=True, help="folder of a model in Hugging Face's format")
    parser.add_argument("--chat-template", help="default: chat_template.jinja in the model's folder")
    parser.add_argument("--blocks", type=int, default=40, help="of 32 tokens in each replica's KV cache")
    parser.add_argument("--tenants", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    result, targets = result_of(processes.run(picks_on_vllm(args)))
    for name, figures in result.items():
        report.progress(f"{name}: {json.dumps(figures)}")
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
