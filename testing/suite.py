"""`make test`: every test but the slow ones, and the branch coverage by the pure ones.

Tests that take ports, start processes or drive a real Envoy mostly wait. The pure ones run at the same time
with the lowest priority and so use what the others leave of the cores. Only pure tests are traced: a tracer
doubles what a test computes, and the services that other tests start would be slower than those that users
run. Bytecode is written even where PYTHONDONTWRITEBYTECODE is set, as in many containers: otherwise every
service that a test starts would compile the product again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

COVERAGE = (sys.executable, "-m", "coverage")
LOWEST_PRIORITY = ("nice", "-n", "19")


def run_tests(io_workers: int) -> list[int]:
    """Run both parts, and return pytest's exit status of each."""
    cores = len(os.sched_getaffinity(0))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    pytest = ("-m", "pytest", "--part")
    pure = (*LOWEST_PRIORITY, *COVERAGE, "run", *pytest, "pure", "-n", str(cores), "--dist", "worksteal")
    # By file: what a file starts once, it starts once. In their order, in which short ones come last.
    by_file = ("--dist", "loadfile", "--no-loadscope-reorder")
    others = (sys.executable, *pytest, "io", "-n", str(io_workers), *by_file)
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(pure, stdout=output, stderr=subprocess.STDOUT, env=environment) as beside:
            statuses = [subprocess.run(others, check=False, env=environment).returncode]
        output.seek(0)
        print(output.read().decode(errors="replace"), end="", flush=True)
    return [*statuses, beside.returncode]


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
    parser.add_argument("--io-workers", type=int, default=3, help="for tests that are not pure (default 3)")
    options = parser.parse_args()
    subprocess.run([*COVERAGE, "erase"], check=True)
    statuses = run_tests(options.io_workers)
    print(f"Branch coverage by the pure tests alone: {covered_percent()} %")
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main())
