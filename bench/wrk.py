"""Load by wrk: POST requests whose bodies come from a folder in turn, each with a number of its own."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

from warmroute.demo.processes import BenchError
from warmroute.demo.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PATH: Final = "/v1/chat/completions"
MARK: Final = "##########"
"""In a body: wrk puts a number of the same length here, another one for each request."""
_TIMEOUT_SECONDS: Final = 30
_LOG_CHARACTERS: Final = 2000
_SCRIPT: Final = "load.lua"
_LUA: Final = f"""
local heads, tails, sent = {{}}, {{}}, 0

function init(arguments)
  wrk.headers["Content-Type"] = "application/json"
  for _, name in ipairs(arguments) do
    local file = assert(io.open(name, "rb"))
    local request = wrk.format("POST", "{PATH}", wrk.headers, file:read("*a"))
    file:close()
    local first, last = request:find("{MARK}", 1, true)
    heads[#heads + 1], tails[#tails + 1] = request:sub(1, first - 1), request:sub(last + 1)
  end
end

function request()
  sent = sent + 1
  local at = (sent - 1) % #heads + 1
  return heads[at] .. string.format("%0{len(MARK)}d", sent) .. tails[at]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{{"requests": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f, "refused": %d, "broken": %d}}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
"""


class Load(NamedTuple):
    """What wrk measured."""

    requests: int
    """Answers, of any status."""
    seconds: float
    p50_ms: float
    p99_ms: float
    refused: int
    """Answers with a status of 400 or more."""
    broken: int
    """Errors of connections, and requests without an answer within 30 s."""

    @property
    def a_second(self) -> float:
        """Requests that had an answer in a second."""
        return self.requests / self.seconds


class Wrk:
    """wrk with one set of bodies."""

    def __init__(self, directory: Path, bodies: Iterable[str]) -> None:
        """Write bodies and script to a folder.

        Raises:
            BenchError: wrk is not installed.
        """
        directory.mkdir(exist_ok=True)
        script = directory / _SCRIPT
        script.write_text(_LUA)
        self._files = []
        for number, body in enumerate(bodies):
            file = directory / f"{number}.json"
            file.write_text(body)
            self._files.append(str(file))
        self._argv = [_installed("wrk", "wrk"), "--threads", "1", "--timeout", f"{_TIMEOUT_SECONDS}s"]
        self._argv += ["--script", str(script)]

    async def run(self, address: str, connections: int, seconds: int, core: int | None = None) -> Load:
        """Load one address; `core`: the only one that wrk may use.

        Raises:
            BenchError: wrk failed, or got no answer at all.
        """
        pinned = [] if core is None else [_installed("taskset", "util-linux"), "--cpu-list", str(core)]
        argv = [*pinned, *self._argv, "--connections", str(connections), "--duration", f"{seconds}s"]
        argv = tethered([*argv, f"http://{address}", "--", *self._files])
        # In a thread: asyncio would fork, which a process with gRPC must not.
        done = await asyncio.to_thread(
            subprocess.run, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        lines = done.stdout.splitlines()
        loads = [Load(**json.loads(line)) for line in lines if line.startswith('{"requests"')]
        if not loads or not loads[0].requests:
            log = done.stdout[-_LOG_CHARACTERS:]
            raise BenchError(f"wrk ended with {done.returncode}, without an answer of {address}:\n{log}")
        return loads[0]


def _installed(program: str, package: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise BenchError(f"no {program} on the path: install it (Debian: apt-get install {package})")
    return path
