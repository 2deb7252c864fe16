"""`warmroute weight` and `warmroute drain` against a running xds_server."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import TYPE_CHECKING, Self

import pytest
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access, TokenFile
from fleet.settings import parse_settings
from fleet.store import FleetStore, FleetView
from warmroute.cli.main import main
from warmroute.cli.overriding import duration
from warmroute.demo.processes import free_port
from xds_server.app import XdsServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PORT = free_port()
A, B, ALONE = (f"127.0.0.{host}:{PORT}" for host in (1, 2, 3))
SETTINGS = f"""
pools:
  - {{{{name: p, endpoints: [{{{{address: "{A}"}}}}, {{{{address: "{B}"}}}}], joining: {{{{probe: none}}}}}}}}
  - {{{{name: q, endpoints: [{{{{address: "{ALONE}"}}}}], joining: {{{{probe: none}}}}}}}}
listeners:
  - {{{{name: l, address: "127.0.0.1:9", pool: p}}}}
  - {{{{name: m, address: "127.0.0.1:8", pool: q}}}}
xds: {{{{address: "unix:{{path}}/xds.sock", tick_seconds: 0.02, state_path: "{{path}}/state"}}}}
"""


class Running:
    """An xds_server with its admin server, in a thread of its own, because verbs have their own loops."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = FleetStore()
        self.address = f"127.0.0.1:{free_port()}"
        self.token = path / "token"
        self.token.write_text("let-me-in-let-me-in\n")
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    @property
    def view(self) -> FleetView:
        view = self.store.view
        assert view is not None
        return view

    def run(self, *arguments: str, token: bool = True) -> int:
        token_options = ("--token-file", str(self.token)) if token else ()
        return main([*arguments, "--admin", f"http://{self.address}", *token_options])

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        settings = parse_settings(SETTINGS.format(path=self.path))
        server = XdsServer(settings, self.store, CollectorRegistry(), TracerProvider(), control=False)
        access = Access(self.address, TokenFile(self.token))
        admin = AdminServer(
            access,
            CollectorRegistry(),
            lambda: server.ready,
            server.views(),
            actions=server.actions(),
        )
        # The engines: a drain needs another one that serves.
        engines = web.AppRunner(web.Application())
        await engines.setup()
        for address in (A, B, ALONE):
            await web.TCPSite(engines, address.partition(":")[0], PORT).start()
        await server.start()
        await admin.start()
        while not server.ready:
            await asyncio.sleep(0.01)
        self._ready.set()
        await self._end.wait()
        await admin.stop()
        await server.stop()
        await engines.cleanup()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """For the tests at the end of this file, which change nothing. It has the engines' ports from then on."""
    with Running(tmp_path_factory.mktemp("unchanged")) as server:
        yield server


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    def read() -> str:
        out, err = capsys.readouterr()
        return out + err

    return read


def test_a_weight_is_set_for_a_time_and_cleared(running: Running, said: Callable[[], str]) -> None:
    assert running.run("weight", A, "250", "--for", "10m") == 0
    assert re.fullmatch(rf"{A} has weight 250, 20\.0% of pool p, until \S+T\S+\n", said())
    assert (running.view.weights[A], running.view.overridden) == (250, {A})
    assert running.run("weight", A, "--clear") == 0
    assert re.fullmatch(rf"{A} has weight 1,000, 50\.0% of pool p, which is computed again\n", said())
    assert (running.view.weights[A], running.view.overridden) == (1000, frozenset())


def test_a_drained_endpoint_is_nobodys_until_it_is_cleared(running: Running, said: Callable[[], str]) -> None:
    assert running.run("drain", A) == 0
    assert re.fullmatch(rf"{A} gets no new requests, until \S+; running ones continue\n", said())
    assert running.view.membership.by_address.keys() == {B, ALONE}
    assert running.run("weight", A, "5", "--for", "1h") == 0, "a drained one is known, too"
    assert running.view.overridden == {A}
    assert running.run("drain", A, "--for", "2h") == 0
    assert running.run("drain", A, "--clear") == 0
    assert "gets requests again" in said()
    assert running.view.membership.by_address.keys() == {A, B, ALONE}


def test_the_last_one_of_a_pool_is_not_drained(running: Running, said: Callable[[], str]) -> None:
    assert running.run("drain", ALONE, "--for", "10m") == 1
    assert f"{ALONE} still gets requests: its pool has no other endpoint" in said()
    assert ALONE in running.view.membership.by_address
    assert [running.run("drain", address, "--for", "10m") for address in (A, B)] == [0, 1]
    assert {A, B} <= running.view.membership.by_address.keys(), "as without a drain"


def test_a_drain_that_ends_at_once_is_reported(running: Running, said: Callable[[], str]) -> None:
    assert running.run("drain", A, "--for", "0.000001s") == 1
    assert f"{A} gets requests again: its time was over at once; take a longer --for" in said()


def test_a_drain_outlives_a_restart(tmp_path: Path) -> None:
    with Running(tmp_path) as before:
        assert before.run("drain", A, "--for", "1h") == 0
    with Running(tmp_path) as again:
        assert again.view.membership.by_address.keys() == {B, ALONE}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("weight", "10.9.9.9:1", "5", "--for", "1m"), "no endpoint has this address"),
        (("weight", A, "5"), "name a weight and how long it holds"),
        (("weight", A, "--for", "1m"), "name a weight and how long it holds"),
        *(
            (("weight", A, weight, "--for", "1m"), f"N {weight!r}; allowed: a whole number from 1 to 10000; ")
            for weight in ("0", "-5", "10001", "99999", "1.5", "1e3", "all", "null", "")
        ),
        (
            ("weight", A, "0", "--for", "1m"),
            "warmroute drain sends it nothing new, --clear lets its weight be",
        ),
        (("weight", A, "5", "--clear"), "--clear goes without"),
        (("drain", A, "--clear", "--for", "1m"), "--clear goes without"),
        (("drain", "10.9.9.9:1"), "no endpoint has this address"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    unchanged: Running, said: Callable[[], str], arguments: tuple[str, ...], words: str
) -> None:
    before = unchanged.view.weights
    assert unchanged.run(*arguments) == 2
    assert words in said()
    assert unchanged.view.weights == before


def test_a_token_is_needed_where_there_is_one(unchanged: Running, said: Callable[[], str]) -> None:
    assert unchanged.run("drain", A, token=False) == 2
    assert "--token-file" in said()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("24h", 86_400), ("1d", 86_400)]
)
def test_times_have_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "0s", "-1m", "25h", "2d", "1w", "m", "1e3s", "٣m"])
def test_an_invalid_time_is_reported(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["drain", A, "--for", text])
    errors = capsys.readouterr().err
    assert (
        f"--for: {text!r}; allowed: a number with s, m, h or d, such as 10m, above 0 and at most 24h"
        in errors
    )


def test_the_help_of_weight_says_that_a_time_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["weight", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert "how long it holds, required with N: such as 10m, at most 24h" in help_text
