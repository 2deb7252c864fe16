"""What holds for all tests: which of them are pure, and that a busy host's time proves nothing.

A test is pure if it is in none of `IO_FOLDERS`, and neither its file nor a module of `tests` that the file
imports names one of `IO_MODULES`. Pure tests run traced and with the lowest priority, where nothing may wait
for them. So an audit hook makes one fail that opens a socket or starts a process all the same. A test that
does so through fixtures or the product's own code carries the mark `io`.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from warmroute.demo.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

ROOT = Path(__file__).parents[1]
IO_MODULES = frozenset(
    {
        *(
            "aiohttp",
            "grpc",
            "grpc_health",
            "h2",
            "http",
            "multiprocessing",
            "pty",
            "redis",
            "signal",
            "socket",
        ),
        *("ssl", "subprocess", "testing", "threading", "urllib", "zmq"),
    }
)
PURE_HELPERS = frozenset({"testing.lane_client", "testing.lane_floods", "testing.signals"})
IO_FOLDERS = frozenset({"bench", "envoy", "product", "soak"})
IO_EVENTS = frozenset({"os.fork", "os.posix_spawn", "socket.bind", "socket.connect", "subprocess.Popen"})
IMPORT = re.compile(r"^\s*(?:from|import) +([\w.]+)(?: +import +(\w+))?", re.MULTILINE)

ANY_HOST = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("short", ANY_HOST, max_examples=40)
settings.register_profile("long", ANY_HOST, max_examples=500)
settings.load_profile("short")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=("pure", "io"), help="run only pure tests, or only the others")


@cache
def does_io(path: Path) -> bool:
    """Whether a module is in one of `IO_FOLDERS`, or names one of `IO_MODULES`, or imports one that does."""
    if path.parent.name in IO_FOLDERS:
        return True
    for module, name in IMPORT.findall(path.read_text()):
        if module in PURE_HELPERS or f"{module}.{name}" in PURE_HELPERS:
            continue
        if module.partition(".")[0] in IO_MODULES or module.startswith("warmroute.demo"):
            return True
        if module.startswith("tests"):
            files = (ROOT / f"{part.replace('.', '/')}.py" for part in (module, f"{module}.{name}"))
            if any(file.exists() and does_io(file) for file in files):
                return True
    return False


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files that have no test of the part: reading all of them is a good part of a run."""
    part = config.getoption("part")
    if not part or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    if does_io(collection_path):
        return True if part == "pure" else None
    return True if part == "io" and "pytest.mark.io" not in collection_path.read_text() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("part")
    left_out = []
    for item in items:
        if not item.get_closest_marker("io") and not does_io(item.path):
            item.add_marker(pytest.mark.pure)
        if part and part != ("pure" if item.get_closest_marker("pure") else "io"):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Do not trace tests with the mark `untraced` under `coverage run`: a tracer doubles what they compute.

    `bench.mutants` traces them all the same, because they may be the only ones that notice a mutant.
    """
    coverage = Coverage.current() if item.get_closest_marker("untraced") else None
    if coverage is None or "COVERAGE_RUN" not in os.environ:
        return (yield)
    coverage.stop()
    try:
        return (yield)
    finally:
        coverage.start()


class _Guard:
    """Whether a pure test runs now, and what it did that such a test may not do."""

    def __init__(self) -> None:
        self.active = False
        self.events: set[str] = set()
        # Not with a tracer: CPython 3.11 starts it in new threads by a call that audits and is not reentrant.
        # A hook in Python lets other threads in meanwhile, and they fail.
        if sys.gettrace() is None:
            sys.addaudithook(self._on_event)

    def _on_event(self, event: str, _: tuple[object, ...]) -> None:
        if self.active and event in IO_EVENTS:
            self.events.add(event)


_guard = _Guard()


@pytest.fixture(autouse=True)
def _pure_tests_do_no_io(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that takes ports or starts processes although it counts as pure."""
    _guard.active = request.node.get_closest_marker("pure") is not None
    _guard.events.clear()
    yield
    _guard.active = False
    if _guard.events:
        pytest.fail(f"{', '.join(sorted(_guard.events))} in a pure test: mark its file with pytest.mark.io")


def _concerns_this_test(record: logging.LogRecord) -> bool:
    """Drop what gRPC's poller says of a call whose test and event loop have ended.

    gRPC has one poller a process and each test has a loop of its own, so a late event of an earlier test is
    reported in a later one, where it would count as that test's error.
    """
    error = record.exc_info[1] if record.exc_info else None
    late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
    return not (late and "PollerCompletionQueue._handle_events" in record.getMessage())


logging.getLogger("asyncio").addFilter(_concerns_this_test)


@pytest.fixture(scope="session")
def unused_tcp_port_factory() -> Callable[[], int]:
    """Gives ports that no connection of this host will take meanwhile, as pytest-asyncio's own may be."""
    return free_port


@pytest.fixture
def unused_tcp_port(unused_tcp_port_factory: Callable[[], int]) -> int:
    """One of them."""
    return unused_tcp_port_factory()
