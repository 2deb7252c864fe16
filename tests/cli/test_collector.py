"""The garbage collector does not hold the loop of a service: not for what a start has made, nor by floods."""

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

rest, full = warmroute.cli.service.freeze_garbage_collector, []

def measured():
    rest()
    objects = len(gc.get_objects())
    gc.callbacks.append(lambda phase, info: phase == "stop" and info["generation"] == 2 and full.append(1))
    for _ in range(1000):
        # As many empty messages as are read at once.
        messages = [[b""] for _ in range(4096)]
    print(objects, len(full), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

warmroute.cli.service.freeze_garbage_collector = measured
sys.exit(main(["serve", sys.argv[1]]))
"""


def test_a_started_service_is_left_alone_by_full_collections(tmp_path: Path) -> None:
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
    assert full <= 15, "with Python's own thresholds there are 37"
