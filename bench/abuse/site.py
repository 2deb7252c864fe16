"""What is attacked: `warmroute serve` with a door of each kind, Envoy in front, engines and clients."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from bench.abuse.attacks import Doors
from bench.abuse.figures import Samples
from bench.peer import Peer
from fleet.settings import load_settings
from testing import stream_server
from testing.certificates import Authority
from warmroute.demo.cluster import POOL, Cluster, ClusterSettings, EngineSettings
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.load import LoadRun
from warmroute.demo.processes import Child, free_ports, warmroute
from warmroute.simulator.workload import Span, WorkloadSettings, workload
from xds_server.envoy.tls import SDS_FILES, sds_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bench.abuse.attacks import Attack
    from warmroute.demo.cluster import Router
    from warmroute.simulator.workload import Turn

RATE: Final = 20.0
"""Honest requests a second."""
_ENGINES: Final = 3
_ENGINE: Final = EngineSettings(speed_up=5.0, blocks=8192, max_num_seqs=64)
_STREAM: Final = "abuse"
_REQUEST_SECONDS: Final = 8.0
_MEMORY_SECONDS: Final = 0.05
_PAGE_BYTES: Final = 4096
_TLS_SERVICES: Final = ("xds", "ext_proc", "control", "admin")


class Site:
    """What runs."""

    def __init__(self, cluster: Cluster, *, tls: bool) -> None:
        self.cluster = cluster
        self.tls = tls
        self._apart = cluster.settings.router == "apart"
        self.load = LoadRun(cluster.address, _ENGINE.model, timeout_seconds=_REQUEST_SECONDS)
        first = free_ports(9)
        ports = iter([f"127.0.0.1:{first + number}" for number in range(9)])
        self._bare, self._other_front = next(ports), next(ports)
        self.doors = Doors(
            front=cluster.address,
            xds=next(ports),
            ext_proc=next(ports),
            control=next(ports),
            admin=cluster.admin_address,
            kv_events=next(ports),
            page=next(ports),
            nameserver=next(ports),
            shared=stream_server.url_of(cluster.directory),
            stream=_STREAM,
            idempotency=next(ports),
            model=_ENGINE.model,
            engines=cluster.engines,
        )
        self._prober: Peer | None = None
        self._memory: list[tuple[float, int]] = []

    @property
    def attacked(self) -> Child:
        """The process under attack."""
        return self.cluster.children["xds" if self._apart else "serve"]

    def configure(self) -> None:
        """Write settings and certificates. Hostile engines have pools of their own, without requests."""
        published, scraped = self.cluster.engines.pop(), self.cluster.engines.pop()
        sections: dict[str, Any] = {
            "pools": [
                {
                    "name": POOL,
                    "models": [_ENGINE.model],
                    "endpoints": [{"address": address} for address in self.cluster.engines],
                },
                {
                    "name": "events",
                    "models": [_ENGINE.model],
                    "endpoints": [{"address": published}],
                    "kv_events": {"port": int(self.doors.kv_events.rpartition(":")[2])},
                },
                {
                    "name": "page",
                    "models": [_ENGINE.model],
                    # One that is let in and scraped elsewhere, one that is only probed.
                    "endpoints": [
                        {"address": scraped, "metrics_url": f"http://{self.doors.page}/metrics"},
                        {"address": self.doors.page},
                    ],
                },
                {
                    "name": "named",
                    "models": [_ENGINE.model],
                    "discovery": [
                        {
                            "dns": {
                                "name": "hostile.test",
                                "port": 80,
                                "nameservers": [self.doors.nameserver],
                                "min_ttl_seconds": 1.0,
                                "max_ttl_seconds": 1.0,
                            }
                        }
                    ],
                },
            ],
            "listeners": [
                {"name": "front", "address": self.cluster.address, "pool": POOL},
                # Engines of several pools behind one listener are asked for their models.
                {"name": "several", "address": self._other_front, "pools": [POOL, "page"]},
            ],
            "xds": {"address": self.doors.xds},
            "ext_proc": {
                "address": self.doors.ext_proc,
                "shared": {"url": self.doors.shared, "stream": _STREAM},
                "idempotency": {
                    "enabled": True,
                    "streaming": True,
                    "duplicates": "reject",
                    "url": f"redis://{self.doors.idempotency}",
                },
            },
            "control": {"address": self.doors.control},
            "limits": {"drain_seconds": 0.5},
        }
        if self.tls:
            sections["tls"] = self._certificates()
        self.cluster.settings = replace(self.cluster.settings, overrides=sections)
        self.cluster.write_settings()
        if envoy := load_settings(self.cluster.settings_path).tls.envoy:
            for name in SDS_FILES:
                file = self.cluster.directory / f"{name}.yaml"
                file.write_text(yaml.safe_dump(sds_file(envoy, name)))

    def _certificates(self) -> dict[str, Any]:
        at = self.cluster.directory
        authority = Authority(at)
        for name in ("warmroute", "envoy"):
            authority.issue(name, name, "127.0.0.1")
        ours = {"certificate_file": f"{at}/warmroute.crt", "key_file": f"{at}/warmroute.key"}
        shown = {"certificate_file": f"{at}/envoy.crt", "key_file": f"{at}/envoy.key"}
        mutual = {**ours, "client_ca_file": str(authority.file)}
        return {
            # A copy each: the settings' YAML takes no aliases.
            **{service: dict(mutual if service != "admin" else ours) for service in _TLS_SERVICES},
            "envoy": {**shown, "ca_file": str(authority.file), "sds_directory": str(at)},
            "workers": {**shown, "ca_file": str(authority.file)},
        }

    async def watch(self, stack: contextlib.AsyncExitStack) -> None:
        """Ask for health, read memory and send honest requests for as long as the stack lasts."""
        at, serve = self.cluster.directory, self.attacked
        address = self.doors.xds if self._apart else self.doors.ext_proc
        bare = await stack.enter_async_context(Peer("bare", "bench.abuse.bare_server", (), at))
        await bare.ask(do="start", address=self._bare)
        self._prober = await stack.enter_async_context(Peer("prober", "bench.abuse.prober", (), at))
        tls = [f"{at}/test-ca.crt", f"{at}/envoy.crt", f"{at}/envoy.key"] if self.tls else None
        await self._prober.ask(
            do="start",
            serve=(address, serve.pid),
            bare=(self._bare, bare.pid),
            admin=self.doors.admin,
            tls=tls,
        )
        for task in (
            asyncio.create_task(self.load.run(_honest())),
            asyncio.create_task(self._read_memory(serve)),
        ):
            stack.callback(task.cancel)

    async def take(self) -> Samples:
        """Return all that was sampled since the last call, requests apart: those stay in `load`.

        Raises:
            BenchError: the prober ended.
        """
        assert self._prober is not None
        answers = await self._prober.ask(do="take")
        memory, self._memory = self._memory, []
        return Samples(answers["serve"], answers["bare"], answers["admin"], memory)

    @contextlib.asynccontextmanager
    async def attacker(self, name: str) -> AsyncIterator[Peer]:
        """Run the attacking process; it waits for commands."""
        async with Peer(f"attacker-{name}", "bench.abuse.attacks", (), self.cluster.directory) as peer:
            await peer.ask(do="ready")
            yield peer

    async def _read_memory(self, serve: Child) -> None:
        # If it has ended, requests and health checks fail.
        with contextlib.suppress(OSError, IndexError):
            while True:
                self._memory.append((time.monotonic(), resident_bytes(serve.pid)))
                await asyncio.sleep(_MEMORY_SECONDS)


def _honest() -> Iterator[Turn]:
    """Yield requests without an end: the same minute again and again."""
    minute = workload(
        WorkloadSettings(
            duration_seconds=60.0,
            rate_per_second=RATE,
            tenants=8,
            system_prompt_tokens=Span(200, 400),
            turns=Span(1, 3),
            max_tokens=Span(4, 16),
        )
    )
    for number in itertools.count():
        for turn in minute:
            yield replace(turn, at_seconds=turn.at_seconds + 60.0 * number)


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


async def strike(site: Site, attacker: Peer, name: str, seconds: float) -> int:
    """Attack once; returns how many bytes were sent.

    Raises:
        BenchError: the attacker broke.
    """
    doors = asdict(site.doors)
    answer = await attacker.ask(seconds + 60.0, do="attack", name=name, doors=doors, lasts=seconds)
    return int(answer["sent"])


@contextlib.asynccontextmanager
async def running_site(attack: Attack) -> AsyncIterator[Site]:
    """Run what is attacked for as long as the context lasts.

    Raises:
        BenchError: a part did not start.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    router: Router = "apart" if attack.apart else "serve"
    cluster = Cluster(ClusterSettings(router, _ENGINES + 2, _ENGINE), directory)
    site = Site(cluster, tls=attack.tls)
    try:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(stream_server.running_server(directory))
            await cluster.start_engines()
            site.configure()
            for role in ("xds", "ext-proc") if attack.apart else ("serve",):
                cluster.start(role, warmroute(role, str(cluster.settings_path)))
            made = await cluster.bootstrap()
            cluster.envoy = await stack.enter_async_context(EnvoyProcess(made, directory=directory))
            await cluster.wait_answer("envoy", cluster.address, "/v1/models")
            assert site.attacked.running
            await site.watch(stack)
            yield site
        await cluster.stop()
    finally:
        cluster.kill()
        shutil.rmtree(directory, ignore_errors=True)
