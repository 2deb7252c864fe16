"""Changed settings are taken over while running; a broken file changes nothing."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from fleet.errors import SettingsError
from fleet.service.watch import SettingsWatch
from fleet.settings import Settings, load_settings
from tests.fleet.notices import noticed

GOOD = """\
pools: [{name: chat, endpoints: [{address: "127.0.0.1:1"}]}]
listeners: [{name: main, address: "127.0.0.1:10000", pool: chat}]
"""


class Watched:
    """A settings file under watch, and what was applied of it."""

    def __init__(self, path: Path, text: str = GOOD) -> None:
        self.path = path
        self.applied: list[Settings] = []
        self.fault: Exception | None = None
        self.registry = CollectorRegistry()
        path.write_text(text)
        self.watch = SettingsWatch(path, load_settings(path), self._apply, self.registry)

    async def _apply(self, settings: Settings) -> None:
        if self.fault is not None:
            raise self.fault
        self.applied.append(settings)

    def count(self, outcome: str) -> float | None:
        return self.registry.get_sample_value("warmroute_settings_reloads_total", {"outcome": outcome})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    watched = Watched(tmp_path / "warmroute.yaml")
    task = asyncio.create_task(watched.watch.run())
    await noticed(tmp_path)
    yield watched
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


async def test_error_while_applying_has_its_place(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """A missing certificate fails only then."""
    watched.fault = SettingsError(["listeners[0].tls.certificate_file: '/x' cannot be read"])
    watched.path.write_text(GOOD.replace(':1"', ':2"'))
    await watched.until(lambda: "is refused" in caplog.text)
    assert f"{watched.path}:2: listeners[0].tls.certificate_file: '/x' cannot be read" in caplog.text


async def test_a_changed_file_is_applied_and_a_replaced_one_too(watched: Watched) -> None:
    watched.path.write_text(GOOD.replace(':1"', ':2"'))
    await watched.until(lambda: len(watched.applied) == 1)
    fresh = watched.path.with_suffix(".new")
    fresh.write_text(GOOD.replace(':1"', ':3"'))
    fresh.replace(watched.path)
    await watched.until(lambda: len(watched.applied) == 2)
    assert watched.applied[-1].pools[0].endpoints[0].address == "127.0.0.1:3"
    assert watched.count("applied") == 2


async def test_broken_file_is_refused_counted_and_logged(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.path.write_text(GOOD + "nonsense: 1\n")
    await watched.until(lambda: watched.count("refused") == 1)
    assert watched.applied == []
    assert "nonsense: unknown field" in caplog.text


async def test_other_files_in_the_directory_do_not_wake_it(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """A log next to a broken settings file must not repeat the refusal, which is logged, for ever."""
    watched.path.write_text(GOOD + "nonsense: 1\n")
    await watched.until(lambda: watched.count("refused") == 1)
    for number in range(3):
        watched.path.with_name("log").write_text(str(number))
        await asyncio.sleep(0.15)  # more than what the watch waits for company of a change
    assert watched.count("refused") == 1


async def test_file_that_is_valid_again_is_logged(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """With the content that is in force there is nothing to take over."""
    caplog.set_level(logging.INFO)
    watched.path.write_text(GOOD + "nonsense: 1\n")
    await watched.until(lambda: watched.count("refused") == 1)
    watched.path.write_text(GOOD)
    await watched.until(lambda: f"{watched.path} is good again" in caplog.text)
    assert watched.applied == []


async def test_sighup_reloads_once_and_equal_settings_do_nothing(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    os.kill(os.getpid(), signal.SIGHUP)
    await watched.until(lambda: f"{watched.path} is unchanged" in caplog.text)
    assert watched.applied == []
    assert watched.count("applied") == 0


async def test_a_fault_while_applying_keeps_the_watch_alive(watched: Watched) -> None:
    watched.fault = RuntimeError("ours")
    watched.path.write_text(GOOD.replace(':1"', ':2"'))
    await watched.until(lambda: watched.count("failed") == 1)
    watched.fault = None
    watched.path.write_text(GOOD.replace(':1"', ':3"'))
    await watched.until(lambda: len(watched.applied) == 1)


async def test_restart_settings_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watched = Watched(tmp_path / "warmroute.yaml")
    watched.path.write_text(GOOD + 'xds: {address: "127.0.0.1:7"}\n')
    await watched.watch.reload()
    assert "xds.address has changed and waits for the next start" in caplog.text
    assert "everything else in it is in force" in caplog.text
    assert "unchanged" not in caplog.text
    assert watched.applied == []


async def test_transport_in_force_may_be_written_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watched = Watched(tmp_path / "warmroute.yaml")
    watched.path.write_text(GOOD + "ext_proc: {transport: lane}\n")
    await watched.watch.reload()
    assert "next start" not in caplog.text
    watched.path.write_text(GOOD + "ext_proc: {transport: grpcio}\n")
    await watched.watch.reload()
    assert "ext_proc.transport has changed and waits for the next start" in caplog.text


async def test_restart_settings_wait_while_others_apply(tmp_path: Path) -> None:
    """Otherwise Envoys would connect to an address where ext_proc does not listen yet."""
    watched = Watched(tmp_path / "warmroute.yaml")
    bound = load_settings(watched.path)
    changed = GOOD.replace(':1"', ':2"')
    watched.path.write_text(changed + 'ext_proc: {address: "127.0.0.1:7", message_timeout_seconds: 1.5}\n')
    await watched.watch.reload()
    (applied,) = watched.applied
    assert applied.ext_proc.address == bound.ext_proc.address
    assert applied.ext_proc.message_timeout_seconds == 1.5
    assert applied.pools[0].endpoints[0].address == "127.0.0.1:2"


async def test_change_without_notification_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without watches (all used up, or a file system that has none) the file is looked at now and then."""

    async def no_watch(*_: object, **__: object) -> AsyncIterator[None]:
        raise OSError("too many watches")
        yield

    monkeypatch.setattr("fleet.service.watch.watchfiles.awatch", no_watch)
    monkeypatch.setattr("fleet.service.watch._LOOK_SECONDS", 0.02)
    watched = Watched(tmp_path / "warmroute.yaml")
    task = asyncio.create_task(watched.watch.run())
    await watched.until(lambda: "cannot be watched" in caplog.text)
    watched.path.write_text(GOOD.replace(':1"', ':2"'))
    await watched.until(lambda: len(watched.applied) == 1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


async def test_state_path_waits_for_the_next_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last good state and overrides are read there at start-up only; they must not part."""
    watched = Watched(tmp_path / "warmroute.yaml")
    watched.path.write_text(GOOD + "xds: {state_path: /elsewhere/state}\n")
    await watched.watch.reload()
    assert "xds.state_path has changed and waits for the next start" in caplog.text
    assert watched.applied == []


WITH_ROLES = (
    GOOD
    + """\
xds: {address: "127.0.0.1:18000"}
tls:
  xds: {certificate_file: /s.crt, key_file: /s.key, client_ca_file: /clients.crt}
  envoy: {certificate_file: /e.crt, key_file: /e.key, ca_file: /ca.crt}
  roles: {envoys: [envoy]}
"""
)


@pytest.mark.parametrize("change", ["roles", "tls", "doubled"])
async def test_a_reload_that_opens_doors_is_refused_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """The names in force stay: a mistake in a file must not give each certificate every role."""
    front = "pool: chat, tls: {certificate_file: /f.crt, key_file: /f.key}}]"
    with_key = WITH_ROLES.replace("pool: chat}]", front)
    watched = Watched(tmp_path / "warmroute.yaml", with_key)
    changed = {
        "roles": with_key.replace("  roles: {envoys: [envoy]}\n", ""),
        "tls": GOOD,
        "doubled": with_key.replace("[envoy]", "[envoy], agents: [envoy]"),
    }
    watched.path.write_text(changed[change])
    await watched.watch.reload()
    assert watched.applied == []
    assert watched.count("refused") == 1
    (message,) = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert "\n" not in message
    assert "are kept: " in message
    assert ("the keys" if change == "doubled" else "tls.roles: deleted") in message
    watched.path.write_text(with_key.replace("[envoy]", "[envoy, other]"))
    await watched.watch.reload()
    assert len(watched.applied) == 1


async def test_a_broken_file_is_refused_in_one_line(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.path.write_text("a: [\n  b: {\n")
    await watched.until(lambda: "is refused" in caplog.text)
    (message,) = (record.getMessage() for record in caplog.records if "is refused" in record.getMessage())
    assert "\n" not in message
