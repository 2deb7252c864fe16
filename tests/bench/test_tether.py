"""A tethered process ends with its parent, even one that is killed, and is the command itself meanwhile."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import subprocess, sys
from warmroute.demo.tether import tethered
code = "import time; print('up', flush=True); time.sleep(60)"
child = subprocess.Popen(tethered([sys.executable, "-c", code]))
print(child.pid, flush=True)
child.wait()
"""


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal on a parent's death is Linux's")
def test_a_killed_parent_takes_its_child_along() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        states = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        child = int((states - {"up"}).pop())
        assert _alive(child)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(60)
        deadline = time.monotonic() + 60
        while _alive(child):
            assert time.monotonic() < deadline
            time.sleep(0.01)
