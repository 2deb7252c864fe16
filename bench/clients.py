"""What real clients send: whether each request gets a pick, and whether all its bytes arrive.

The official OpenAI and Anthropic clients (pinned, in an environment of their own below the user's cache),
curl by HTTP/1.0, in chunks and by HTTP/2, clients that offer h2c as Java's does, and agents whose
conversations grow to 2 MB with images. They send conversations, one request after the other, to the real
Envoy with `warmroute serve`. In the end, many bodies of 32 MiB come at once: they must arrive whole and in
bounded memory, and may be too many for picks in time. The engines answer with the digest of the body that
they have read. curl is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import web

from bench import peers_site
from fleet.names import HEADER_MATCHED, HEADER_REASON, PICKED_REASONS
from testing.raw_http import Upload, over_http1
from warmroute.demo import processes, report
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from warmroute.demo.report import Target

PACKAGES: Final = {"openai": "3.57.0", "anthropic": "2.14.0"}
ENGINES: Final = 4
TURNS: Final = 8
SCRIPT: Final = Path(__file__).parent / "clients_sdk.py"
DIGEST: Final = "x-body-sha256"
LEAST_PICKED: Final = 0.99
LEAST_MATCHED: Final = 0.95
_ATTEMPTS: Final = 20
_PARSED_BYTES: Final = 4 << 20
"""Larger bodies are only digested: many arrive at once."""
_LARGE: Final = "large"
_AGENT: Final = "-agent"
_LARGE_BYTES: Final = 32 << 20
_PIECE: Final = b"word " * 13_107
MOST_MEMORY_MIB: Final = 6.0
"""That one large body in flight may add to Envoy: its buffers, the leading part and the message with it."""
_WORDS: Final = ("alpha", "river", "stone", "window", "cloud", "market", "engine", "paper")
_CURL: Final[Mapping[str, Sequence[str]]] = {
    "curl-1.0": ("--http1.0",),
    "curl-1.1": ("--http1.1",),
    "curl-1.1-chunked": ("--http1.1", "--header", "transfer-encoding: chunked"),
    "curl-2": ("--http2-prior-knowledge",),
    # curl sends no such field over HTTP/2, and no content-length either.
    "curl-2-no-length": ("--http2-prior-knowledge", "--header", "transfer-encoding: chunked"),
}
_OFFER: Final = {
    "connection": "Upgrade, HTTP2-Settings",
    "upgrade": "h2c",
    "http2-settings": "AAMAAABkAAQCAAAAAAIAAAAA",
    "content-type": "application/json",
}
"""The headers of Java's HttpClient on a fresh connection to an `http://` address."""


class Exchange(NamedTuple):
    """One request and what became of it."""

    client: str
    turn: int
    """From 1 on."""
    status: int
    whole: bool
    """Whether the engine has read the bytes that the client sent."""
    reason: str
    matched: float
    bytes: int

    @classmethod
    def of(
        cls, client: str, turn: int, status: int, sent: str, size: int, headers: Mapping[str, str]
    ) -> Exchange:
        """Read a response's headers, their names in lower case; `sent` is the body's digest."""
        matched = float(headers.get(HEADER_MATCHED) or 0)
        return cls(
            client, turn, status, headers.get(DIGEST) == sent, headers.get(HEADER_REASON, ""), matched, size
        )


class Engine:
    """An engine that tells what it has read, with a metrics page as vLLM's."""

    def __init__(self) -> None:
        self._finished = 0
        self._tokens = 0

    def app(self) -> web.Application:
        """The HTTP application."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/{tail:.*}", self._answer)
        return app

    async def _metrics(self, _request: web.Request) -> web.Response:
        figures = {
            "num_requests_running": 0,
            "num_requests_waiting": 0,
            "kv_cache_usage_perc": 0.1,
            "prompt_tokens_total": self._tokens,
            "generation_tokens_total": self._finished,
            "request_success_total": self._finished,
        }
        return web.Response(text="".join(f"vllm:{name} {value}\n" for name, value in figures.items()))

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        digest, body = hashlib.sha256(), b""
        async for piece in request.content.iter_any():
            digest.update(piece)
            body += piece if len(body) < _PARSED_BYTES else b""
        self._finished += 1
        self._tokens += len(body) // 4
        headers = {DIGEST: digest.hexdigest()}
        kind = (
            "message"
            if request.path == "/v1/messages"
            else "response"
            if "responses" in request.path
            else "chat"
        )
        if len(body) < _PARSED_BYTES and json.loads(body).get("stream"):
            return web.Response(text=_STREAMS[kind], content_type="text/event-stream", headers=headers)
        return web.json_response(_ANSWERS[kind], headers=headers)


_MESSAGE: Final = {
    "id": "x", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "ok"}], "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
_ANSWERS: Final[Mapping[str, Any]] = {
    "chat": {
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}],
    },
    "response": {
        "id": "x", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    },
    "message": _MESSAGE,
}  # fmt: skip
_CHUNK: Final = {
    "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
    "choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}],
}  # fmt: skip
_STREAMS: Final[Mapping[str, str]] = {
    "chat": f"data: {json.dumps(_CHUNK)}\n\ndata: [DONE]\n\n",
    "message": (
        f"event: message_start\ndata: {json.dumps({'type': 'message_start', 'message': _MESSAGE})}\n\n"
        'event: message_stop\ndata: {"type": "message_stop"}\n\n'
    ),
}


class Site(NamedTuple):
    """What runs."""

    address: str
    """Envoy's."""
    pids: tuple[int, int]
    """Envoy's and `warmroute serve`'s."""


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Site]:
    """Run engines, `warmroute serve` and Envoy."""
    runners = [web.AppRunner(Engine().app(), access_log=None) for _ in range(ENGINES)]
    cluster = Cluster(ClusterSettings("serve", ENGINES, EngineSettings(model="m")), directory)
    try:
        for runner in runners:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            cluster.engines.append("{}:{}".format(*runner.addresses[0][:2]))
        cluster.write_settings()
        made, _ = await asyncio.gather(cluster.bootstrap(), cluster.start_services())
        async with EnvoyProcess(made, directory=directory) as envoy:
            await cluster.wait_answer("envoy", cluster.address, "/v1/models")
            await _first_pick(cluster.address)
            yield Site(cluster.address, (envoy.pid, cluster.children["serve"].pid))
        await cluster.stop()
    finally:
        cluster.kill()
        for runner in runners:
            await runner.cleanup()


async def _first_pick(address: str) -> None:
    """Return when Envoy has connected to ext_proc.

    Raises:
        BenchError: it did not.
    """
    for _ in range(_ATTEMPTS):
        reply = await over_http1(address, Upload([chat("first", 1)], length=True))
        if reply.headers.get(HEADER_REASON) in PICKED_REASONS:
            return
        await asyncio.sleep(0.25)
    raise BenchError(f"no pick in {_ATTEMPTS} requests")


def chat(name: str, turn: int) -> bytes:
    """Return the body of a conversation's turn."""
    words = random.Random(name).choices(
        ["alpha", "river", "stone", "window", "cloud", "market", "engine"], k=6000
    )
    messages = [{"role": "system", "content": " ".join(words)}]
    for number in range(turn):
        messages.append({"role": "user", "content": f"This is turn {number}."})
        messages.append({"role": "assistant", "content": "ok"})
    return json.dumps({"model": "m", "messages": messages[:-1]}).encode()


async def _libraries(python: Path, address: str) -> list[Exchange]:
    process = await asyncio.create_subprocess_exec(
        str(python), str(SCRIPT), f"http://{address}", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise BenchError(f"{SCRIPT.name} ended with status {process.returncode}")
    return [
        Exchange.of(*(line[key] for key in ("client", "turn", "status", "sent", "bytes", "headers")))
        for line in map(json.loads, output.splitlines())
    ]


async def _curl(name: str, address: str, directory: Path) -> list[Exchange]:
    made = []
    body_file, head_file = directory / "body.json", directory / "head.txt"
    for turn in range(1, TURNS + 1):
        body = chat(name, turn)
        body_file.write_bytes(body)
        process = await asyncio.create_subprocess_exec(
            "curl", "--silent", "--max-time", "30", "--output", "/dev/null", "--dump-header", str(head_file),
            *_CURL[name], "--header", "content-type: application/json", "--data-binary", f"@{body_file}",
            f"http://{address}/v1/chat/completions",
        )  # fmt: skip
        await process.wait()
        first, *lines = head_file.read_text().strip().split("\n")
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        digest = hashlib.sha256(body).hexdigest()
        made.append(Exchange.of(name, turn, int(first.split()[1]), digest, len(body), headers))
    return made


async def _h2c_offer(name: str, address: str, *, length: bool) -> list[Exchange]:
    made = []
    for turn in range(1, TURNS + 1):
        body = chat(name, turn)
        pieces = [body[start : start + 16_384] for start in range(0, len(body), 16_384)]
        reply = await over_http1(address, Upload(pieces, headers=_OFFER, length=length))
        digest = hashlib.sha256(body).hexdigest()
        made.append(Exchange.of(name, turn, reply.status, digest, len(body), reply.headers))
    return made


class Memory(NamedTuple):
    """What many large bodies at once take."""

    bodies: int
    envoy_mib: float
    """Growth of the peak, for each body."""
    serve_mib: float


async def _large(site: Site, count: int) -> tuple[list[Exchange], Memory]:
    """Upload many bodies of 32 MiB at once, in chunks."""
    pieces = [b'{"model": "m", "prompt": "', *[_PIECE] * (_LARGE_BYTES // len(_PIECE)), b'"}']
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    before = [_peak_mib(pid) for pid in site.pids]
    replies = await asyncio.gather(*(over_http1(site.address, Upload(pieces)) for _ in range(count)))
    growth = [(_peak_mib(pid) - mib) / count for pid, mib in zip(site.pids, before, strict=True)]
    size, sent = sum(map(len, pieces)), digest.hexdigest()
    made = [Exchange.of(_LARGE, 1, reply.status, sent, size, reply.headers) for reply in replies]
    return made, Memory(count, *growth)


def _peak_mib(pid: int) -> float:
    """Return the most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def measure(python: Path, directory: Path, large: int) -> tuple[list[Exchange], Memory | None]:
    """Send everything, one request after the other; then `large` bodies at once."""
    memory = None
    async with running(directory) as site:
        address = site.address
        exchanges = await _libraries(python, address)
        for name in _CURL:
            exchanges += await _curl(name, address, directory)
        exchanges += await _h2c_offer("h2c-offer", address, length=True)
        exchanges += await _h2c_offer("h2c-offer-chunked", address, length=False)
        if large:
            made, memory = await _large(site, large)
            exchanges += made
    return exchanges, memory


def figures(exchanges: Sequence[Exchange]) -> dict[str, Any]:
    """Sum up some exchanges."""
    later = [exchange.matched for exchange in exchanges if exchange.turn > 1]
    return {
        "requests": len(exchanges),
        "picked": statistics.fmean(exchange.reason in PICKED_REASONS for exchange in exchanges),
        "whole": statistics.fmean(exchange.whole for exchange in exchanges),
        "matched": statistics.fmean(later) if later else None,
        "failures": sum(exchange.status != 200 for exchange in exchanges),
        "largest": max(exchange.bytes for exchange in exchanges),
    }


def targets(exchanges: Sequence[Exchange], memory: Memory | None) -> list[Target]:
    """What must hold of all exchanges, and of those one after the other."""
    every = figures(exchanges)
    single = figures([exchange for exchange in exchanges if exchange.client != _LARGE])
    agents = figures([exchange for exchange in exchanges if exchange.client.endswith(_AGENT)])
    bounded = (
        []
        if memory is None
        else [
            report.at_most("envoy_mib_a_large_body", memory.envoy_mib, MOST_MEMORY_MIB),
            report.at_most("serve_mib_a_large_body", memory.serve_mib, MOST_MEMORY_MIB),
        ]
    )
    return [
        *bounded,
        report.at_least("share_picked", single["picked"], LEAST_PICKED),
        report.exactly("share_whole", every["whole"], 1.0),
        report.at_least("matched_from_turn_2", every["matched"], LEAST_MATCHED),
        report.at_least("matched_by_agents", agents["matched"], LEAST_MATCHED),
        report.exactly("failures", every["failures"], 0),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=peers_site.default_folder(),
        help="of the clients' environment; default: %(default)s",
    )
    parser.add_argument(
        "--large", type=int, default=100, help="bodies of 32 MiB at once; default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    pinned = [f"{name}=={version}" for name, version in PACKAGES.items()]
    python = peers_site.install_in(args.folder / "-".join(["clients", *PACKAGES.values()]), pinned)
    directory = Path(tempfile.mkdtemp(prefix="warmroute-clients-"))
    try:
        exchanges, memory = processes.run(measure(python, directory, args.large))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    by_client: dict[str, list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        by_client[exchange.client].append(exchange)
    rows = {name: figures(made) for name, made in by_client.items()}
    for name, row in rows.items():
        shown = "  ".join(
            f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
        )
        report.progress(f"{name:18} {shown}")
    result = {"versions": PACKAGES, "clients": rows, "large": memory and memory._asdict()}
    return report.finish(result, targets(exchanges, memory), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
