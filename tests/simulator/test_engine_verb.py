"""`warmroute engine` as a process."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

import aiohttp
import pytest

from warmroute.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

RUN = (
    "import argparse, sys; from warmroute.cli import engine; p = argparse.ArgumentParser(); "
    "engine.arguments(p); sys.exit(engine.run(p.parse_args()))"
)


async def test_it_says_where_it_listens_and_ends_on_sigterm(request: pytest.FixtureRequest) -> None:
    """The line can be read at once; a stream under way does not keep it from ending with 0."""
    root: Path = request.config.rootpath
    command = (sys.executable, "-c", RUN, "--address", "127.0.0.1:0", "--model", "m")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=root)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
            assert line.startswith("listening on 127.0.0.1:")
            url = f"http://{line.split()[-1]}/v1/completions"
            body = {"model": "m", "prompt": "x", "stream": True, "max_tokens": 50_000}
            async with aiohttp.ClientSession() as client, client.post(url, json=body) as reply:
                assert reply.status == 200
                await reply.content.readany()
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fit", "abacus"], "h100_sxm/tp4"),
        (["--speed-up", "0"], "--speed-up"),
        (["--blocks", "-1"], "--blocks"),
        (["--address", "nowhere"], "--address"),
        (["--address", "127.0.0.1:99999"], "--address"),
        (["--jitter", "nan"], "--jitter"),
    ],
)
def test_senseless_options_end_with_2_and_say_which(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything listens."""
    assert main(["engine", *words]) == 2
    assert message in capsys.readouterr().err
