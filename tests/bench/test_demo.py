"""The demo as a whole, with the real Envoy: short, so figures of merit are not judged here."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.terminal import Terminal
from tests.terminal import verb as verb_of
from warmroute.cli.main import main
from warmroute.demo import app as demo
from warmroute.demo import llama_engine
from warmroute.demo.envoy import envoy_binary
from warmroute.demo.processes import BenchError
from warmroute.demo.scenario import scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.demo.stats import Moment


def have_envoy() -> bool:
    try:
        envoy_binary()
    except BenchError:
        return False
    return True


needs_envoy = pytest.mark.skipif(not have_envoy(), reason="the Envoy binary is not installed")


class Recorder:
    """A show that keeps its input."""

    interval_seconds = 0.2

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.ended = 0

    def update(self, moment: Moment) -> None:
        self.moments.append(moment)

    def end(self) -> None:
        self.ended += 1


@needs_envoy
async def test_runs_serve_the_same_requests_and_warmroute_is_warmer() -> None:
    show = Recorder()
    chosen = scenario("simulator", seconds=6, engines=2, seed=5, rate=12)
    result = demo.result_of(await demo.compare(chosen, show))
    robin, least, ours = (result[key] for key in demo.CONTENDERS)
    assert robin["requests"] == least["requests"] == ours["requests"] == len(chosen.turns) > 10
    assert (robin["failures"], least["failures"], ours["failures"]) == (0, 0, 0), result
    assert max(robin["served"].values()) - min(robin["served"].values()) <= 1, "in turn"
    assert ours["prefix_hit_ratio"] > robin["prefix_hit_ratio"], result
    # A stall of a busy host may cost a request its pick (message timeout), by design; never many.
    assert result["picks"] >= 0.9 * ours["requests"], result
    assert result["picks_honoured"] == 1.0, result
    assert result["acks"] > 0
    assert result["nacks"] == 0
    policies = list(dict.fromkeys(moment.policy for moment in show.moments))
    assert policies == [contender.name for contender in demo.CONTENDERS.values()]
    assert any(moment.summary and moment.summary.requests for moment in show.moments)
    assert show.ended == 1


@pytest.fixture
def folder() -> Iterator[Path]:
    """For temporary files. Not `tmp_path`: the path of a Unix socket is short."""
    with tempfile.TemporaryDirectory(prefix="warmroute-test-") as name:
        yield Path(name)


def started_below(directory: Path) -> list[int]:
    """Processes whose environment names `directory` as their temporary one."""
    started = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"TMPDIR={directory}".encode() in environment:
            started.append(int(entry.name))
    return started


@needs_envoy
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_everything_and_leaves_no_file(number: signal.Signals, folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.demo", "--seconds", "60", "--engines", "2", "--json"),
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A shell that runs the tests in the background has it ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(300):
            output = b""
            while b" sent" not in output:
                line = await process.stderr.readline()
                assert line, f"the bench ended early: {output.decode()}"
                output += line
        assert len(started_below(folder)) >= 4, "the demo, two engines and Envoy run"
        process.send_signal(number)
        async with asyncio.timeout(300):
            _, output = await process.communicate()
        assert process.returncode == 130
        assert b"Traceback" not in output
        assert output.endswith(b"stopped; nothing is left running\n")
    finally:
        if process.returncode is None:
            process.kill()
    assert started_below(folder) == []
    assert os.listdir(folder) == []  # noqa: PTH208 (no blocking call through pathlib in a coroutine)


@needs_envoy
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_terminal_shows_progress_and_the_comparison(folder: Path) -> None:
    """Key presses and a resize during the run are handled, and no file is left behind."""
    command = verb_of("demo", "--seconds", "2", "--engines", "2", "--rate", "12")
    with Terminal(command, 80, 40, TMPDIR=str(folder)) as terminal:
        terminal.until("round robin: starting", "Failures")
        terminal.press("q?\r")
        terminal.until("least request: ", " sent")
        terminal.resize(40, 40)
        terminal.until("Warmroute: ", "TTFT p90")
        terminal.resize(200, 50)
        terminal.until("the best")
        assert terminal.ended() == 0, terminal.text
        assert "Traceback" not in terminal.raw
        words = " ".join(terminal.text.replace("│", " ").split())
        for part in ("of the first tokens came within", "No request failed", "docs/quickstart.md"):
            assert part in words
    assert started_below(folder) == []
    assert list(folder.iterdir()) == []


def test_llama_without_its_extra_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(llama_engine, "available", lambda: False)
    assert main(["demo", "--engine", "llama"]) == 2
    assert f"{sys.executable} -m {llama_engine.INSTALL}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["--seconds=0", "--seconds=nan", "--seconds=x", "--rate=-1", "--engines=0", "--engines=65"]
)
def test_options_out_of_range_are_refused_with_what_is_allowed(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["demo", option])
    assert stopped.value.code == 2
    assert f"{option.partition('=')[2]!r}; allowed: a " in capsys.readouterr().err
