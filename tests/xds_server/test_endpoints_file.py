"""The file source against real files: replaced and turned links are read, wrong files change nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from fleet.errors import SettingsError
from fleet.settings import FileDiscoverySettings, PoolSettings, load_endpoints
from tests.fleet.notices import noticed
from xds_server.endpoints.file import FileSource
from xds_server.endpoints.source import SourceMetrics, TroubleReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from fleet.endpoint import Endpoint

ONE = "- address: 10.0.0.1:80\n"
TWO = ONE + "- {address: '10.0.0.2:80', models: [b], locality: {zone: z}}\n"


class Watched:
    """A source on a file, and its endpoints."""

    def __init__(self, path: Path, look_seconds: float = 5.0) -> None:
        self.registry = CollectorRegistry()
        self.results: list[tuple[Endpoint, ...]] = []
        pool = PoolSettings(name="p", models=("a",))
        trouble = TroubleReport("file", "file", SourceMetrics(self.registry))
        self.source = FileSource(pool, FileDiscoverySettings(path=str(path)), trouble, look_seconds)
        self.task = asyncio.create_task(self.source.run(self.results.append))

    @property
    def errors(self) -> float:
        value = self.registry.get_sample_value("warmroute_endpoint_source_errors_total", {"source": "file"})
        assert value is not None
        return value

    @property
    def failing(self) -> float | None:
        return self.registry.get_sample_value("warmroute_endpoint_sources_failing")

    @property
    def newest(self) -> list[str] | None:
        return [endpoint.address for endpoint in self.results[-1]] if self.results else None

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def watch() -> AsyncIterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def start(path: Path, look_seconds: float = 0.3) -> Watched:
        made.append(Watched(path, look_seconds))
        return made[-1]

    yield start
    for watched in made:
        await watched.close()


async def test_file_endpoints_get_the_pools_defaults(tmp_path: Path, watch: Callable[..., Watched]) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(TWO)
    watched = watch(path)
    await watched.until(lambda: bool(watched.results))
    first, second = watched.results[0]
    assert (first.address, first.pool, first.models) == ("10.0.0.1:80", "p", ("a",))
    assert (first.engine, first.metrics_url) == ("auto", "http://10.0.0.1:80/metrics")
    assert (first.node, first.fault_domains) == ("10.0.0.1", ("10.0.0.1",))
    assert (second.models, second.locality.zone) == (("b",), "z")


async def test_replaced_file_and_turned_link_are_read(tmp_path: Path, watch: Callable[..., Watched]) -> None:
    """As editors and Kubernetes do it. No look in between: the notice alone must do."""
    (tmp_path / "old.yaml").write_text(ONE)
    (tmp_path / "new.json").write_text('[{"address": "10.0.0.3:80"}]')
    path = tmp_path / "endpoints.yaml"
    path.symlink_to("old.yaml")
    watched = watch(path, 60.0)
    await watched.until(lambda: watched.newest == ["10.0.0.1:80"])
    await noticed(tmp_path)
    link = tmp_path / "link"
    link.symlink_to("new.json")
    link.rename(path)
    await watched.until(lambda: watched.newest == ["10.0.0.3:80"])
    other = tmp_path / "other"
    other.write_text(TWO)
    other.rename(path)
    await watched.until(lambda: watched.newest == ["10.0.0.1:80", "10.0.0.2:80"])


async def test_retargeted_directory_link_is_noticed(tmp_path: Path, watch: Callable[..., Watched]) -> None:
    for name, text in (("v1", ONE), ("v2", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "endpoints.yaml").write_text(text)
    (tmp_path / "current").symlink_to("v1")
    watched = watch(tmp_path / "current" / "endpoints.yaml")
    await watched.until(lambda: watched.newest == ["10.0.0.1:80"])
    (tmp_path / "next").symlink_to("v2")
    (tmp_path / "next").rename(tmp_path / "current")
    await watched.until(lambda: watched.newest == [])


@pytest.mark.parametrize("broken", ["", "- address: gpu-1:80\n", "a: 1", "- [", ONE + ONE, None])
async def test_broken_or_missing_file_keeps_endpoints(
    broken: str | None, tmp_path: Path, watch: Callable[..., Watched], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(ONE)
    watched = watch(path)
    await watched.until(lambda: bool(watched.results))
    caplog.clear()
    with caplog.at_level(logging.INFO, "xds_server.endpoints.source"):
        if broken is None:
            path.unlink()
        else:
            path.write_text(broken)
        await watched.until(lambda: watched.errors >= 1)
        assert len(watched.results) == 1
        assert watched.failing == 1
        path.write_text("[]")
        await watched.until(lambda: watched.newest == [])
    assert watched.failing == 0
    assert [record.levelname for record in caplog.records].count("INFO") == 1


async def test_other_files_and_idle_looks_read_nothing(tmp_path: Path, watch: Callable[..., Watched]) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(ONE)
    watched = watch(path, 0.05)
    await watched.until(lambda: bool(watched.results))
    (tmp_path / "other.yaml").write_text("- [")
    await asyncio.sleep(0.25)
    assert len(watched.results) == 1
    path.write_text(TWO)
    await watched.until(lambda: len(watched.results) == 2)


async def test_file_is_polled_without_notifications(
    tmp_path: Path,
    watch: Callable[..., Watched],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A host whose inotify instances are used up: one line says so, and changes are taken all the same."""

    async def refused(*_: object, **__: object) -> AsyncIterator[None]:
        raise RuntimeError("Too many open files")
        yield

    monkeypatch.setattr("watchfiles.awatch", refused)
    path = tmp_path / "list.yaml"
    path.write_text(ONE)
    watched = watch(path, look_seconds=0.02)
    await watched.until(lambda: watched.newest == ["10.0.0.1:80"])
    path.write_text(TWO)
    await watched.until(lambda: watched.newest == ["10.0.0.1:80", "10.0.0.2:80"])
    path.write_text(ONE)
    await watched.until(lambda: watched.newest == ["10.0.0.1:80"])
    assert [record.message.count("Too many open files") for record in caplog.records] == [1]
    assert watched.errors == 0


async def test_file_and_directory_may_come_later(tmp_path: Path, watch: Callable[..., Watched]) -> None:
    watched = watch(tmp_path / "later" / "endpoints.yaml", 0.05)
    await watched.until(lambda: watched.errors >= 1)
    assert watched.results == []
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "endpoints.yaml").write_text(ONE)
    await watched.until(lambda: watched.newest == ["10.0.0.1:80"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- address: gpu-1:80\n", ":1: [0].address: 'gpu-1:80'; allowed: ip:port"),
        (
            ONE + "- addres: x\n",
            ":2: [1].addres: unknown field, value 'x'; did you mean address?",
        ),
        (ONE + ONE, ":2: [1].address: '10.0.0.1:80'; allowed: each address once"),
        ("a: 1", "allowed: a list of endpoints"),
        ("", "None; allowed: a list of endpoints, [] for none"),
    ],
)
def test_each_problem_names_path_value_and_what_is_allowed(text: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_endpoints(path)
    assert line in str(caught.value)
