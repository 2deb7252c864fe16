"""Every command of README, quickstart and operations works as it is typed, one after the other.

They run on a host of their own as far as that goes without privileges: a folder, and ports in the place of
those that the documents name or that are defaults. Engines are the simulated ones that the quickstart starts.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from warmroute.demo.envoy import envoy_binary
from warmroute.demo.processes import Child, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 120.0
QUICKSTART = "docs/quickstart.md"
DOCUMENTS = ("README.md", QUICKSTART, "docs/operations.md")
NOT_RUN = {
    ("README.md", "make demo"): "tests/bench/test_demo.py runs the demo on a terminal",
    ("README.md", "make test"): "this test is part of it",
    (QUICKSTART, ". .venv/bin/activate"): "the tests run in an environment of their own",
    (QUICKSTART, "warmroute top"): "it ends at a key",
}
"""Lines that cannot be run here, each with its reason."""
ENGINE = "warmroute engine"
SERVERS = ("envoy", "warmroute serve", "warmroute xds", "warmroute ext-proc", ENGINE)
ASK_ADMIN = ("top", "explain", "diagnose", "weight", "drain")
"""Verbs that ask an admin server, whose default port is another here."""


def blocks(document: str) -> list[list[str]]:
    """The document's blocks of shell commands: lines without comments, continued ones joined."""
    text = (ROOT / document).read_text()
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        lines = (re.sub(r"\s+# .*$", "", line) for line in block.replace("\\\n", " ").splitlines())
        found.append([line.strip() for line in lines if line.strip() and not line.startswith("#")])
    return found


def settings_of(document: str) -> str:
    """The settings file that the document shows first."""
    block = re.search(r"^```yaml\n(pools:.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    assert block
    return block[1]


def is_server(line: str) -> bool:
    return line.startswith(SERVERS)


class Host:
    """A folder to type commands in. `servers` are the lines that run on, with their processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: list[tuple[str, Child]] = []
        named = (10000, 19000, 19001, 9901, 9902, 8011, 8012)
        self.ports = {port: free_port() for port in named}
        self.replaced = {f"127.0.0.1:{port}": f"127.0.0.1:{free}" for port, free in self.ports.items()}
        for number in (1, 2):
            # As docs/quickstart.md and docs/operations.md call the engines.
            engine = self.replaced[f"127.0.0.1:801{number}"]
            self.replaced |= {f"10.0.0.1{number}:8000": engine, f"10.0.0.{number}:8000": engine}
        (folder / "warmroute.yaml").write_text(self.here(settings_of(QUICKSTART)))
        (folder / "README.md").write_bytes((ROOT / "README.md").read_bytes())
        (folder / ".curlrc").write_text("fail\nsilent\nshow-error\n")
        self.environment = {
            "HOME": str(folder),
            "PATH": f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "WARMROUTE_ADMIN_ADDRESS": self.replaced["127.0.0.1:19000"],
            "WARMROUTE_ADMIN_EXT_PROC_ADDRESS": self.replaced["127.0.0.1:19001"],
            **{
                f"WARMROUTE_{name.upper()}_ADDRESS": f"unix:{folder}/{name}.sock"
                for name in ("xds", "ext_proc", "control")
            },
        }
        (folder / "bin").mkdir()
        self._shadow("envoy", self._envoy())
        self._shadow("warmroute", self._warmroute())

    def here(self, text: str) -> str:
        """Put this host's addresses in the place of the documents'."""
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def run(self, block: list[str]) -> str:
        """Run a block's lines in turn; return what those that end have printed."""
        if any(line.startswith(("warmroute serve", "warmroute xds")) for line in block):
            self.stop(but=ENGINE)  # Another form of the same services.
        printed = ""
        for line in block:
            if is_server(line):
                self._start(line)
            else:
                ran = subprocess.run(
                    ["/bin/bash", "-c", self.here(line)],
                    cwd=self.folder,
                    env=os.environ | self.environment,
                    capture_output=True,
                    text=True,
                    timeout=WAIT_SECONDS,
                    check=False,
                )
                assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}{self.tails()}"
                printed += ran.stdout
        for line, child in self.servers:
            self.wait(lambda line=line: self._serves(line), line, child)
        return printed

    def wait(self, ready: Callable[[], bool], what: str, child: Child | None = None) -> None:
        """Wait until it is; the process beside it must not end meanwhile."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not ready():
            assert child is None or child.running, f"{what}: has ended\n{self.tails()}"
            assert time.monotonic() < deadline, f"{what}: in vain\n{self.tails()}"
            time.sleep(0.1)

    def tails(self) -> str:
        """What the servers have said last."""
        return "\n".join(f"--- {line}\n{child.tail()}" for line, child in self.servers)

    def stop(self, but: str = "\n") -> None:
        """End what runs, but for lines that begin so."""
        kept = [entry for entry in self.servers if entry[0].startswith(but)]
        ending = [child for line, child in self.servers if not line.startswith(but)]
        for child in ending:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        while any(child.running for child in ending) and time.monotonic() < deadline:
            time.sleep(0.05)
        for child in ending:
            child.kill()
        self.servers = kept
        base_ids = (path.read_text() for path in (self.folder / "base-ids").iterdir())
        for base_id in base_ids:
            Path(f"/dev/shm/envoy_shared_memory_{base_id}0").unlink(missing_ok=True)

    def envoy_admin(self, line: str) -> str:
        """The admin interface of the Envoy that a line starts."""
        config = yaml.safe_load((self.folder / line.split()[2]).read_text())
        return f"127.0.0.1:{config['admin']['address']['socket_address']['port_value']}"

    def _start(self, line: str) -> None:
        command = self.here(line).removesuffix("&")
        given = " ".join(f"{name}='{value}'" for name, value in self.environment.items())
        script = f"cd {self.folder} && export {given} && exec {command}"
        self.servers.append(
            (line, Child(f"server-{len(self.servers)}", ["/bin/bash", "-c", script], self.folder))
        )

    def _serves(self, line: str) -> bool:
        if line.startswith("envoy"):
            return b"127.0.0.1" in get(f"{self.envoy_admin(line)}/listeners")
        if line.startswith(ENGINE):
            return b"my-model" in get(f"{self.here(line.split()[3])}/v1/models")
        port = 19001 if line.startswith("warmroute ext-proc") else 19000
        return bool(get(f"127.0.0.1:{self.ports[port]}/readyz"))

    def _shadow(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def _envoy(self) -> str:
        """Envoy with another default base id; one that the line names, or asks for, counts.

        It leaves its shared memory behind, which the test removes.
        """
        (self.folder / "base-ids").mkdir()
        return (
            f'[[ "$*" == *base-id* ]] || set -- "$@" --base-id {self.ports[10000]}\n'
            f'exec {envoy_binary()} "$@" --base-id-path {self.folder}/base-ids/$$ '
            "--concurrency 1 --log-level warning"
        )

    def _warmroute(self) -> str:
        """The command with other default ports of admin interfaces."""
        asked, envoy = (self.replaced[f"127.0.0.1:{port}"] for port in (19000, 9901))
        real = f'{sys.executable} -m warmroute.cli.main "$@"'
        return (
            f"export PYTHONPATH={ROOT}\n"
            f'case " $* " in *" --admin "*) exec {real};; esac\n'
            f"case $1 in {'|'.join(ASK_ADMIN)}) exec {real} --admin {asked};; "
            f"bootstrap|doctor) exec {real} --admin {envoy};; esac\n"
            f"exec {real}"
        )


def get(url: str) -> bytes:
    """The page, or nothing where there is no good answer."""
    try:
        with urllib.request.urlopen(f"http://{url}", timeout=5) as answer:
            return bytes(answer.read()) or b"ok"
    except (urllib.error.URLError, OSError):
        return b""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """With the engines that the quickstart starts."""
    made = Host(tmp_path)
    try:
        made.run(next(block for block in runnable(QUICKSTART) if block[0].startswith(ENGINE)))
        yield made
    finally:
        made.stop()


def runnable(document: str) -> list[list[str]]:
    """The blocks without the lines of `NOT_RUN`."""
    kept = ([line for line in block if (document, line) not in NOT_RUN] for block in blocks(document))
    return [block for block in kept if block]


def test_what_is_not_run_is_still_there() -> None:
    lines = Counter(
        (document, line) for document in DOCUMENTS for block in blocks(document) for line in block
    )
    assert {entry: lines[entry] for entry in NOT_RUN} == dict.fromkeys(NOT_RUN, 1)


def test_commands_of_the_readme(host: Host) -> None:
    """Beyond that they work: what the quickstart says of the second response, and of the second Envoy."""
    _, start, request, look, second = runnable(QUICKSTART)
    host.run(start)
    # A stall of the host may cost a request its pick.
    host.wait(lambda: "x-warmroute-reason: warm" in host.run(request), "a warm pick")
    headers = dict(line.split(": ", 1) for line in host.run(request).splitlines() if ": " in line)
    assert headers["x-warmroute-matched"] == "1.00"
    assert headers["x-warmroute-served"] == headers["x-warmroute-endpoint"]
    host.run(look)
    host.run(second)
    first, other = (host.envoy_admin(line) for line, _ in host.servers if line.startswith("envoy"))
    assert first != other
    shared = f"127.0.0.1:{host.ports[10000]}".encode()
    assert shared in get(f"{first}/listeners")
    assert shared in get(f"{other}/listeners"), "both listen on the same port, as the quickstart says"


def test_commands_of_the_operators_page(host: Host) -> None:
    printed = [host.run(block) for block in runnable("docs/operations.md")]
    told = next(json.loads(text) for text in printed if '"kept_over_restart"' in text)
    overridden = {address for address, entry in told["weights"].items() if entry["overridden_until"]}
    assert overridden == {host.here("10.0.0.1:8000")}
