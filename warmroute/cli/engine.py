"""`warmroute engine`: the simulator as an HTTP server, in vLLM's place."""

from __future__ import annotations

import argparse
import asyncio
import signal

import uvloop

from fleet.errors import WarmrouteError
from fleet.service.descriptors import raise_limit
from warmroute.simulator.fits import timing
from warmroute.simulator.http import ServerConfig, listening
from warmroute.simulator.model import EngineConfig


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument("--address", default="127.0.0.1:8000", help="host:port; port 0 takes a free one")
    parser.add_argument("--model", default="warm-model", help="the name of the model served")
    parser.add_argument("--fit", default="h100_sxm/tp4", help="measured hardware that sets the speed")
    parser.add_argument("--speed-up", type=float, default=1.0, help="divides every duration")
    parser.add_argument("--blocks", type=int, default=43_750, help="KV blocks")
    parser.add_argument("--block-tokens", type=int, default=16, help="tokens of a block")
    parser.add_argument("--max-num-seqs", type=int, default=1024, help="requests in a batch")
    parser.add_argument("--max-batched-tokens", type=int, default=8192, help="tokens of a step")
    parser.add_argument("--ranks", type=int, default=1, help="data-parallel ranks, each a whole engine")
    parser.add_argument("--jitter", type=float, default=0.02, help="share by which steps vary")
    parser.add_argument("--seed", type=int, default=0, help="fixes the jitter and the generated text")
    parser.add_argument(
        "--admin",
        action="store_true",
        help="let peers that are not on loopback use /admin (faults, restart, counters)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT.

    Raises:
        WarmrouteError: an option's value cannot be used, or the port is taken.
    """
    raise_limit()
    config = _config(args)
    host, port = _address(args.address)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, host, port))
    except OSError as error:
        # Imported late, because an engine needs no settings.
        from fleet.service.binding import cannot_listen, why_not_bound  # noqa: PLC0415

        raise cannot_listen("--address", args.address, why_not_bound(error)) from error
    return 0


def _config(args: argparse.Namespace) -> ServerConfig:
    for option in ("speed_up", "blocks", "block_tokens", "max_num_seqs", "max_batched_tokens", "ranks"):
        if not getattr(args, option) > 0:
            raise WarmrouteError(f"--{option.replace('_', '-')}: {getattr(args, option):g}; allowed: above 0")
    if not 0 <= args.jitter < 1:
        raise WarmrouteError(f"--jitter: {args.jitter:g}; allowed: 0 or more, and below 1")
    engine = EngineConfig(
        timing=timing(args.fit).faster(args.speed_up),
        num_blocks=args.blocks,
        block_tokens=args.block_tokens,
        max_num_seqs=args.max_num_seqs,
        max_batched_tokens=args.max_batched_tokens,
        jitter_ratio=args.jitter,
        seed=args.seed,
    )
    return ServerConfig(engine, model=args.model, admin=args.admin, ranks=args.ranks)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise WarmrouteError(f"--address: {text!r}; allowed: host:port with a port up to 65535")
    return host.strip("[]"), int(port)


async def _serve(config: ServerConfig, host: str, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with listening(config, host, port) as (_, bound):
        print(f"listening on {bound}", flush=True)
        await stop.wait()
