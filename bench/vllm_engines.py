"""Real vLLM replicas on CPU as child processes, with KV-cache events, for `bench.vllm`."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from warmroute.demo.http_client import ExchangeError, HttpClient
from warmroute.demo.processes import BenchError, Child, free_port

if TYPE_CHECKING:
    from pathlib import Path

MODEL: Final = "smol"
BLOCK_TOKENS: Final = 32
"""The smallest that vLLM's CPU backend takes."""
_READY_SECONDS: Final = 300.0
_ENVIRONMENT: Final = {
    "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
}


@dataclass(frozen=True)
class Replica:
    """One replica and its ports."""

    child: Child
    port: int
    kv_port: int
    replay_port: int

    @property
    def address(self) -> str:
        """Where it serves HTTP."""
        return f"127.0.0.1:{self.port}"

    def settings(self) -> dict[str, Any]:
        """Return its entry in Warmroute's settings."""
        return {"address": self.address, "kv_events": {"port": self.kv_port, "replay_port": self.replay_port}}

    async def ready(self) -> None:
        """Return when it answers.

        Raises:
            BenchError: it ended, or takes too long.
        """
        client = HttpClient(self.address, time.monotonic)
        deadline = time.monotonic() + _READY_SECONDS
        last = "no request was sent"
        try:
            while True:
                if not self.child.running:
                    raise BenchError(f"{self.child.name} ended at its start:\n{self.child.tail()}")
                if time.monotonic() > deadline:
                    raise BenchError(f"{self.child.name} is not ready: {last}\n{self.child.tail()}")
                try:
                    status = (await client.request("GET", "/health")).status
                except ExchangeError as error:
                    # Nobody listens before the model is loaded.
                    last = f"/health: {error}"
                else:
                    if status == 200:
                        return
                    last = f"/health answers {status}"
                await asyncio.sleep(1.0)
        finally:
            client.close()

    async def forget(self) -> None:
        """Empty its prefix cache."""
        client = HttpClient(self.address, time.monotonic)
        try:
            response = await client.request("POST", "/reset_prefix_cache")
        finally:
            client.close()
        if response.status != 200:
            raise BenchError(f"{self.child.name} answers {response.status} to /reset_prefix_cache")


def start(name: str, python: str, model: Path, blocks: int, directory: Path) -> Replica:
    """Start a replica whose KV cache has `blocks` blocks."""
    port, kv_port, replay_port = free_port(), free_port(), free_port()
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        # With a star it binds; with an address it would connect.
        "endpoint": f"tcp://*:{kv_port}",
        "replay_endpoint": f"tcp://127.0.0.1:{replay_port}",
        "topic": f"kv@{MODEL}",
    }
    argv = [
        "/usr/bin/env",
        *(f"{key}={value}" for key, value in {**_ENVIRONMENT, "PATH": os.environ.get("PATH", "")}.items()),
        # `vllm serve` looks for a package of another name than the CPU wheel's.
        *(python, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "bfloat16", "--max-model-len", "1024", "--max-num-seqs", "4", "--enforce-eager"),
        *("--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(blocks)),
        # In one process it needs half of the memory.
        *("--distributed-executor-backend", "uni", "--enable-prompt-tokens-details"),
        *("--kv-events-config", json.dumps(events)),
    ]
    return Replica(Child(name, argv, directory), port, kv_port, replay_port)
