"""Run a command that ends with its parent: `tethered` gives the command line (Linux).

A process that has threads must not run Python between fork and exec, so this is a program of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tethered(command: list[str]) -> list[str]:
    """Return the command line that runs `command` until this process ends."""
    return [sys.executable, "-S", "-E", __file__, str(os.getpid()), *command]


def main(parent: int, command: list[str]) -> None:
    """Ask the kernel to kill this process when `parent` ends, SIGKILL included, and become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - the command is the caller's


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
