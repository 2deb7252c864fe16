"""`make test`: pure tests on every core, then the others one after the other, then the branch coverage.

Tests that take ports, start processes or drive a real Envoy have the machine for themselves: in parallel
they would measure each other. Only pure tests are traced: a tracer doubles what a test computes, and the
services that other tests start would be slower than those that users run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

COVERAGE = (sys.executable, "-m", "coverage")


def run_tests(io_workers: int) -> list[int]:
    """Run both parts, and return pytest's exit status of each."""
    cores = len(os.sched_getaffinity(0))
    pure = (*COVERAGE, "run", "-m", "pytest", "--part", "pure", "-n", str(cores), "--dist", "worksteal")
    # By file: what a file starts once, it starts once.
    parallel = ("-n", str(io_workers), "--dist", "loadfile") if io_workers > 1 else ()
    others = (sys.executable, "-m", "pytest", "--part", "io", *parallel)
    return [subprocess.run(command, check=False).returncode for command in (pure, others)]


def covered_percent() -> str:
    """Branch coverage of the product by the tests that were traced."""
    subprocess.run([*COVERAGE, "combine", "--quiet"], check=True)
    report = subprocess.run(
        [*COVERAGE, "report", "--format=total"], check=True, capture_output=True, text=True
    )
    return report.stdout.strip()


def main() -> int:
    """Return the status of the first part that failed, otherwise 0."""
    parser = argparse.ArgumentParser(prog="python -m testing.suite", description=__doc__)
    parser.add_argument("--io-workers", type=int, default=1, help="for tests that are not pure (default 1)")
    options = parser.parse_args()
    subprocess.run([*COVERAGE, "erase"], check=True)
    statuses = run_tests(options.io_workers)
    print(f"Branch coverage by the pure tests alone: {covered_percent()} %")
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main())
