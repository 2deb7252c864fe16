"""The demo as a bench: the same requests by each policy; `--json` prints the targets."""

from __future__ import annotations

import sys

from warmroute.demo import report
from warmroute.demo.app import main

if __name__ == "__main__":
    sys.exit(report.command(main))
