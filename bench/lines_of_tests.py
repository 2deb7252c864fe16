"""A pytest plugin of `bench.mutants`: write the lines of the product that each test function runs.

`--lines-of-tests` names the JSON file. `seconds` has the time of each test function by its node id without
parameters; `lines` has, by module and line, the positions of the test functions in `seconds`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

PRODUCT = ("fleet", "xds_server", "ext_proc", "warmroute")


class _Recorder:
    """Traces the whole session: the context is the test function that runs."""

    def __init__(self, written: Path, root: Path) -> None:
        self._written = written
        self._root = root
        self._seconds: dict[str, float] = {}
        self._coverage = coverage.Coverage(data_file=None, config_file=False, source=PRODUCT)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(_function(item.nodeid))
        result = yield
        self._coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = _function(report.nodeid)
        self._seconds[test] = self._seconds.get(test, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        positions = {test: position for position, test in enumerate(self._seconds)}
        lines = {
            str(Path(file).relative_to(self._root)): {
                line: [positions[test] for test in tests if test]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        self._written.write_text(json.dumps({"seconds": self._seconds, "lines": lines}))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the name of the file."""
    parser.addoption("--lines-of-tests", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Record from here on, before any module of the product is imported."""
    config.pluginmanager.register(_Recorder(config.getoption("lines_of_tests"), config.rootpath))


def _function(node_id: str) -> str:
    return node_id.partition("[")[0]
