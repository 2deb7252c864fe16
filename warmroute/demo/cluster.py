"""A whole deployment on loopback: engines, Warmroute's services or none, Envoy. Stops as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import yaml

from fleet.settings import parse_settings
from warmroute.demo import envoy_alone
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.http_client import ExchangeError, HttpClient
from warmroute.demo.processes import BenchError, Child, free_port, free_ports, warmroute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

Router = Literal["envoy", "serve", "apart"]
"""Who chooses: Envoy alone, Warmroute in one process, or Warmroute as `xds` and `ext-proc`."""

_READY_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 5.0
POOL: Final = "engines"


@dataclass(frozen=True)
class EngineSettings:
    """How each engine is started."""

    kind: Literal["simulator", "llama"] = "simulator"
    model: str = "smol"
    speed_up: float = 1.0
    blocks: int = 2048
    block_tokens: int = 16
    max_num_seqs: int = 64

    def argv(self, address: str) -> list[str]:
        """Return the command line of an engine that listens on `address`."""
        if self.kind == "llama":
            return [
                sys.executable,
                "-m",
                "warmroute.demo.llama_engine",
                "--address",
                address,
                "--model",
                self.model,
            ]
        return warmroute(
            *("engine", "--address", address, "--model", self.model, "--speed-up", f"{self.speed_up:g}"),
            *("--blocks", str(self.blocks), "--block-tokens", str(self.block_tokens)),
            *("--max-num-seqs", str(self.max_num_seqs)),
        )


@dataclass(frozen=True)
class ClusterSettings:
    """What to start."""

    router: Router
    engines: int = 4
    engine: EngineSettings = field(default_factory=EngineSettings)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Sections of warmroute.yaml beyond addresses and listeners; `pools` stand in place of the only one."""
    alone: envoy_alone.Policy = "round_robin"
    """How Envoy alone spreads requests."""


class Cluster:
    """What runs. `address` is Envoy's; `children` are engines and services by name."""

    def __init__(self, settings: ClusterSettings, directory: Path) -> None:
        self.settings = settings
        self.directory = directory
        self.children: dict[str, Child] = {}
        self.engines: list[str] = []
        self.address = f"127.0.0.1:{free_port()}"
        self.admin_address = f"127.0.0.1:{free_port()}"
        # Workers have theirs at the ports behind their parent's.
        workers = settings.overrides.get("ext_proc", {}).get("workers", 1)
        self.ext_proc_admin_address = f"127.0.0.1:{free_ports(workers + 1)}"
        self.envoy: EnvoyProcess | None = None
        """Once it runs."""
        self.pool_overrides: dict[str, Any] = {}
        """Fields of the pool that differ from defaults; they count from the next `write_settings` on."""
        self.listener_overrides: dict[str, Any] = {}
        """Fields of the listener, likewise."""
        self._clients: dict[str, HttpClient] = {}

    @property
    def settings_path(self) -> Path:
        """The settings file that the services read."""
        return self.directory / "warmroute.yaml"

    async def start_engines(self) -> None:
        """Start the engines on ports of their own choice and learn these."""
        started = [
            self.start(f"engine-{number}", self.settings.engine.argv("127.0.0.1:0"))
            for number in range(self.settings.engines)
        ]
        for child in started:
            await child.wait_for(lambda child=child: child.line_after("listening on ") is not None)
            address = child.line_after("listening on ")
            assert address is not None
            self.engines.append(address)

    def write_settings(self) -> None:
        """Write the settings file at once, checked as the services check it."""
        text = yaml.safe_dump(self._settings(), sort_keys=False)
        parse_settings(text, str(self.settings_path))
        new = self.settings_path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.settings_path)

    async def start_services(self) -> None:
        """Start Warmroute in the chosen form, and wait until it is ready."""
        file = str(self.settings_path)
        if self.settings.router == "serve":
            self.start("serve", warmroute("serve", file))
            await self.wait_answer("serve", self.admin_address, "/readyz")
        elif self.settings.router == "apart":
            self.start("xds", warmroute("xds", file))
            self.start("ext-proc", warmroute("ext-proc", file))
            await self.wait_answer("xds", self.admin_address, "/readyz")
            await self.wait_answer("ext-proc", self.ext_proc_admin_address, "/readyz")

    async def bootstrap(self) -> dict[str, Any]:
        """Return Envoy's bootstrap: static for Envoy alone, otherwise the output of `warmroute bootstrap`."""
        if self.settings.router == "envoy":
            settings = parse_settings(self.settings_path.read_text())
            return envoy_alone.bootstrap(settings.pools[0], settings.listeners[0], self.settings.alone)
        process = await asyncio.create_subprocess_exec(
            *warmroute("bootstrap", str(self.settings_path)), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise BenchError(f"warmroute bootstrap ended with status {process.returncode}")
        loaded: dict[str, Any] = yaml.safe_load(output)
        return loaded

    def start(self, name: str, argv: list[str]) -> Child:
        """Start or restart a child."""
        child = Child(name, argv, self.directory)
        self.children[name] = child
        return child

    async def status(self) -> dict[str, Any]:
        """Return /api/v1/status; apart, that of xds with the picks of ext-proc."""
        status: dict[str, Any] = await self.get_json(self.admin_address, "/api/v1/status") or {}
        if self.settings.router == "apart":
            other = await self.get_json(self.ext_proc_admin_address, "/api/v1/status") or {}
            status = {**other, **status, "picks": other.get("picks")}
        return status

    async def get_json(self, address: str, path: str) -> Any:
        """Get a JSON document, or None when there is no answer now: figures to show may be missing."""
        text = await self.get(address, path)
        return None if text is None else msgspec.json.decode(text)

    async def get(self, address: str, path: str, seconds: float = 1.0) -> bytes | None:
        """Get a page, or None when there is no answer with status 200 within `seconds`."""
        client = self._clients.setdefault(address, HttpClient(address, time.monotonic))
        try:
            async with asyncio.timeout(seconds):
                response = await client.request("GET", path)
        except (ExchangeError, TimeoutError):
            return None
        return response.body if response.status == 200 else None

    async def wait_answer(self, name: str, address: str, path: str, seconds: float = _READY_SECONDS) -> None:
        """Return when the part called `name` answers a page with status 200.

        Raises:
            BenchError: it ended, or too much time has passed.
        """
        child = self.children.get(name)
        deadline = time.monotonic() + seconds
        while await self.get(address, path) is None:
            tail = child.tail() if child else ""
            if child is not None and not child.running:
                raise BenchError(f"{name} ended at its start:\n{tail}")
            if time.monotonic() > deadline:
                raise BenchError(f"{name} does not answer {path} on {address}:\n{tail}")
            await asyncio.sleep(_POLL_SECONDS)

    async def stop(self) -> None:
        """End every child; services drain, all at a time."""
        for client in self._clients.values():
            client.close()
        await asyncio.gather(*(child.stop(_STOP_SECONDS) for child in self.children.values()))

    def kill(self) -> None:
        """End every child at once."""
        for child in self.children.values():
            child.kill()

    def _settings(self) -> dict[str, Any]:
        sockets = self.directory
        sections: dict[str, Any] = {
            "pools": [
                {
                    "name": POOL,
                    "models": [self.settings.engine.model],
                    "endpoints": [{"address": address} for address in self.engines],
                    **self.pool_overrides,
                }
            ],
            "listeners": [
                {"name": "front", "address": self.address, "pool": POOL, **self.listener_overrides}
            ],
            "xds": {"address": f"unix:{sockets}/xds.sock"},
            "ext_proc": {"address": f"unix:{sockets}/ext_proc.sock"},
            "control": {"address": f"unix:{sockets}/control.sock"},
            "admin": {"address": self.admin_address, "ext_proc_address": self.ext_proc_admin_address},
        }
        for name, section in self.settings.overrides.items():
            ours = sections.get(name)
            sections[name] = {**ours, **section} if isinstance(ours, dict) else section
        return sections


@contextlib.asynccontextmanager
async def running_cluster(settings: ClusterSettings) -> AsyncIterator[Cluster]:
    """Run a deployment for as long as the context lasts.

    Raises:
        BenchError: a part did not start.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    cluster = Cluster(settings, directory)
    try:
        await cluster.start_engines()
        cluster.write_settings()
        bootstrap, _ = await asyncio.gather(cluster.bootstrap(), cluster.start_services())
        async with EnvoyProcess(bootstrap, directory=directory) as cluster.envoy:
            await cluster.wait_answer("envoy", cluster.address, "/v1/models")
            yield cluster
        await cluster.stop()
    finally:
        cluster.kill()
        shutil.rmtree(directory, ignore_errors=True)
