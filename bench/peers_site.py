"""Other routers for LLM requests, each in an environment of its own, and Envoy with Warmroute likewise."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.handshake import cpu_seconds
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import BenchError, free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

OURS: Final = "warmroute"
_INSTALLED: Final = ".installed"
"""A file in an environment that is complete."""


@dataclass(frozen=True)
class Peer:
    """A router from PyPI: pinned, with its defaults, apart from a quiet log."""

    version: str
    command: tuple[str, ...]
    """The console script and its verb."""
    quiet: str
    """The name of the log level for warnings."""

    def argv(self, address: str, metrics_port: int, engines: Sequence[str]) -> list[str]:
        """Return the command's arguments, the console script's name first."""
        host, _, port = address.rpartition(":")
        return [
            *self.command,
            *("--host", host, "--port", port, "--prometheus-port", str(metrics_port)),
            *("--log-level", self.quiet, "--worker-startup-check-interval", "1"),
            *("--worker-urls", *(f"http://{engine}" for engine in engines)),
        ]


PEERS: Final[Mapping[str, Peer]] = {
    "sglang-router": Peer("0.3.2", ("sglang-router", "launch"), "warn"),
    "smg": Peer("1.13.0", ("smg", "launch"), "warn"),
    "vllm-router": Peer("0.1.17", ("vllm-router",), "warning"),
}


def default_folder() -> Path:
    """Where environments of peers are kept: below the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "warmroute-bench" / "peers"


def install(folder: Path, names: Sequence[str]) -> None:
    """Give each peer that lacks one an environment in `folder`.

    Raises:
        BenchError: pip failed.
    """
    for name in names:
        install_in(_environment(folder, name), [f"{name}=={PEERS[name].version}"])


def install_in(environment: Path, packages: Sequence[str]) -> Path:
    """Make an environment with these packages unless it is there; return its Python.

    Raises:
        BenchError: pip failed.
    """
    python = environment / "bin" / "python"
    if (environment / _INSTALLED).exists():
        return python
    environment.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(environment)],
        [str(python), "-m", "pip", "install", "--quiet", *packages],
    ):
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            raise BenchError(f"no environment with {packages} in {environment}:\n{done.stdout[-2000:]}")
    (environment / _INSTALLED).touch()
    return python


def _environment(folder: Path, name: str) -> Path:
    return folder / f"{name}-{PEERS[name].version}"


@dataclass(frozen=True)
class Proxy:
    """A router that runs."""

    name: str
    address: str
    """For clients."""
    pids: tuple[int, ...]
    """Of all its processes."""

    def cpu_seconds(self) -> float:
        """CPU time that all its processes have used."""
        return sum(cpu_seconds(pid) for pid in self.pids)

    def pin(self, core: int) -> None:
        """Let all its threads run on one core only."""
        for pid in self.pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core})


@contextlib.asynccontextmanager
async def running_proxy(
    name: str, engines: Sequence[str], model: str, folder: Path, directory: Path
) -> AsyncIterator[Proxy]:
    """Run one router in front of engines until the context ends; its files go below `directory`.

    Raises:
        BenchError: it did not start.
    """
    own = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory))
    # It has the clients that wait for an answer, too.
    cluster = Cluster(ClusterSettings("serve", len(engines), EngineSettings(model=model), _OVERRIDES), own)
    cluster.engines = list(engines)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if name == OURS:
                cluster.write_settings()
                await cluster.start_services()
                cluster.envoy = await stack.enter_async_context(
                    EnvoyProcess(await cluster.bootstrap(), directory=own)
                )
                pids: tuple[int, ...] = (cluster.envoy.pid, cluster.children["serve"].pid)
            else:
                environment = _environment(folder, name)
                script, *arguments = PEERS[name].argv(cluster.address, free_ports(1), engines)
                python = [str(environment / "bin" / "python"), str(environment / "bin" / script)]
                pids = (cluster.start(name, [*python, *arguments]).pid,)
            await cluster.wait_answer(name, cluster.address, "/v1/models")
            yield Proxy(name, cluster.address, pids)
    finally:
        cluster.kill()


_OVERRIDES: Final[dict[str, Any]] = {"limits": {"drain_seconds": 0.5}}
