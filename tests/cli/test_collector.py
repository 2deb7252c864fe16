"""Python's full collections do not hold the loop of a busy service."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path

_RUN = """
import gc, os, signal, sys
import warmroute.cli.service
from warmroute.cli.main import main

exempt, full = warmroute.cli.service.exempt_from_collection, []

def measured():
    exempt()
    objects = len(gc.get_objects())
    gc.callbacks.append(lambda phase, info: phase == "stop" and info["generation"] == 2 and full.append(1))
    # As many objects as a thousand streams have, then floods of as many empty messages as are read at once.
    streams = [[] for _ in range(500_000)]
    for _ in range(100):
        messages = [[b""] for _ in range(4096)]
    print(objects, len(full), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

warmroute.cli.service.exempt_from_collection = measured
sys.exit(main(["serve", sys.argv[1]]))
"""


def test_no_full_collection_in_a_busy_service(tmp_path: Path) -> None:
    settings = {
        "pools": [{"name": "chat", "endpoints": [{"address": "127.0.0.1:9"}]}],
        "listeners": [{"name": "llm", "address": "127.0.0.1:10000", "pool": "chat"}],
        "xds": {"address": f"unix:{tmp_path}/xds.sock"},
        "ext_proc": {"address": f"unix:{tmp_path}/ext_proc.sock"},
        "control": {"address": f"unix:{tmp_path}/control.sock"},
        "admin": {"address": "", "ext_proc_address": ""},
    }
    file = tmp_path / "warmroute.yaml"
    file.write_text(yaml.safe_dump(settings))
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(file)], stdout=subprocess.PIPE, text=True, timeout=120, check=True
    )
    objects, full = map(int, done.stdout.split())
    assert objects < 1000, "what the start has made is frozen"
    assert full == 0
