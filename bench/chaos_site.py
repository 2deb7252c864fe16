"""A deployment that lives through chaos: TLS everywhere, endpoints in a watched file, services apart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import ssl
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import yaml

from fleet.settings import load_settings
from testing.certificates import Authority
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import BenchError, warmroute
from xds_server.envoy.tls import SDS_FILES, sds_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from testing.certificates import Issued

HOST: Final = "127.0.0.1"
ENGINE: Final = EngineSettings(
    speed_up=0.2,  # 60 ms a token: streams last for seconds and cost little
    blocks=16_384,
    max_num_seqs=128,
)
_READY_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 90.0
"""Under traffic, on a busy host, a start takes its time; it is no failure of anything."""
_POLL_SECONDS: Final = 0.05


class Site:
    """The running processes and their certificate authority."""

    def __init__(self, cluster: Cluster, sections: dict[str, Any]) -> None:
        self.cluster = cluster
        self.sections = sections
        """Of the settings; what is changed here counts from the next `cluster.write_settings` on."""
        self.authority = Authority(cluster.directory)
        self.endpoints_file = cluster.directory / "endpoints.json"
        self.client_context = ssl.create_default_context(cafile=str(self.authority.file))
        self.front = self.issue()

    @property
    def envoy(self) -> EnvoyProcess:
        """The running Envoy."""
        assert self.cluster.envoy is not None
        return self.cluster.envoy

    @property
    def url(self) -> str:
        """Where clients find Envoy."""
        return f"https://{self.cluster.address}"

    def issue(self) -> Issued:
        """Sign every certificate again; return the listener's."""
        for name in ("warmroute", "envoy", "worker"):
            self.authority.issue(name, name)
        self.front = self.authority.issue("front", HOST)
        return self.front

    def list_endpoints(self, addresses: list[str]) -> None:
        """Write the file with the engines that are to serve."""
        replacement = self.endpoints_file.with_suffix(".new")
        replacement.write_text(json.dumps([{"address": address} for address in addresses]))
        replacement.replace(self.endpoints_file)

    def configure(self) -> None:
        """Write what is read at the start."""
        at = self.cluster.directory
        self.list_endpoints(self.cluster.engines)
        self.cluster.pool_overrides = {
            "endpoints": [],
            "discovery": [{"file": {"path": str(self.endpoints_file)}}],
            "joining": {"slow_start_seconds": 2.0, "drain_seconds": 2.0, "probe_interval_seconds": 0.25},
        }
        self.cluster.listener_overrides = {
            "tls": {"certificate_file": f"{at}/front.crt", "key_file": f"{at}/front.key"}
        }
        self.cluster.write_settings()
        tls = load_settings(self.cluster.settings_path).tls.envoy
        assert tls is not None
        for name in SDS_FILES:
            (at / f"{name}.yaml").write_text(yaml.safe_dump(sds_file(tls, name)))

    async def start_again(self, name: str) -> None:
        """Restart a service or an engine, and wait until it is ready."""
        cluster = self.cluster
        if name.startswith("engine-"):
            address = cluster.engines[int(name.removeprefix("engine-"))]
            cluster.start(name, cluster.settings.engine.argv(address))
            await cluster.wait_answer(name, address, "/v1/models", _AGAIN_SECONDS)
            return
        cluster.start(name, warmroute(name, str(cluster.settings_path)))
        admin = cluster.admin_address if name == "xds" else cluster.ext_proc_admin_address
        await cluster.wait_answer(name, admin, "/readyz", _AGAIN_SECONDS)

    async def served_certificate(self) -> bytes:
        """The certificate that the listener shows to a new connection, in DER."""
        host, port = self.cluster.address.split(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=self.client_context)
        try:
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return bytes(shown)

    async def reloads(self, service: str, metric: str) -> float:
        """How often a service took over what had changed; 0 while it does not answer."""
        admin = self.cluster.admin_address if service == "xds" else self.cluster.ext_proc_admin_address
        page = await self.cluster.get(admin, "/metrics")
        lines = (page or b"").decode().splitlines()
        applied = (line for line in lines if line.startswith(metric) and 'outcome="applied"' in line)
        return sum(float(line.rpartition(" ")[2]) for line in applied)


@contextlib.asynccontextmanager
async def running_site(engines: int = 4, engine: EngineSettings = ENGINE) -> AsyncIterator[Site]:
    """Run the deployment for as long as the context lasts.

    Raises:
        BenchError: a part did not start.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    sections = _sections(str(directory))
    cluster = Cluster(ClusterSettings("apart", engines, engine, sections), directory)
    try:
        site = Site(cluster, sections)
        await cluster.start_engines()
        site.configure()
        await cluster.start_services()
        bootstrap = await cluster.bootstrap()
        async with EnvoyProcess(bootstrap, directory=directory, concurrency=2) as cluster.envoy:
            await _wait_until_served(site)
            yield site
        await cluster.stop()
    finally:
        cluster.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _sections(directory: str) -> dict[str, Any]:
    """Sections of the settings: TLS between all parts, with files in `directory`."""
    ours = {"certificate_file": f"{directory}/warmroute.crt", "key_file": f"{directory}/warmroute.key"}
    shown = {"certificate_file": f"{directory}/envoy.crt", "key_file": f"{directory}/envoy.key"}
    workers = {"certificate_file": f"{directory}/worker.crt", "key_file": f"{directory}/worker.key"}
    authority = f"{directory}/test-ca.crt"
    mutual = {**ours, "client_ca_file": authority}
    return {
        "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.4},
        "limits": {"drain_seconds": 1.0},
        "tls": {
            # A copy each: the settings' YAML takes no aliases.
            **{service: dict(mutual) for service in ("xds", "ext_proc", "control")},
            "envoy": {**shown, "ca_file": authority, "sds_directory": directory},
            "workers": {**workers, "ca_file": authority},
            "roles": {"envoys": ["envoy"], "workers": ["worker"]},
        },
    }


async def _wait_until_served(site: Site) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    connector = aiohttp.TCPConnector(ssl=site.client_context)
    async with aiohttp.ClientSession(connector=connector) as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with session.get(f"{site.url}/v1/models") as response:
                    if response.status == 200:
                        return
            if time.monotonic() > deadline:
                raise BenchError(f"envoy does not serve {site.url}:\n{site.envoy.log[-2000:]}")
            await asyncio.sleep(_POLL_SECONDS)
