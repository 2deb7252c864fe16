"""`warmroute demo`: the whole thing on loopback, next to Envoy's own policies."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from typing import TYPE_CHECKING, Final

from fleet.errors import WarmrouteError
from warmroute.demo import app as demo
from warmroute.demo import llama_engine
from warmroute.demo.envoy import envoy_binary
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    import argparse

_INSTALL: Final = "pip install 'warmroute[demo]'"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    demo.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 when it came to its end, whatever the figures.

    Raises:
        WarmrouteError: an extra is not installed.
    """
    if importlib.util.find_spec("rich") is None or not _have_envoy():
        raise WarmrouteError(f"the demo needs an extra: {_in_here(_INSTALL)}")
    if args.engine == "llama" and not llama_engine.available():
        raise WarmrouteError(f"--engine llama needs an extra: {_in_here(llama_engine.INSTALL)}")
    demo.run(args)
    return 0


def _in_here(command: str) -> str:
    """Return the command for the Python environment that runs this."""
    return f"{shlex.quote(sys.executable)} -m {command}"


def _have_envoy() -> bool:
    try:
        envoy_binary()
    except BenchError:
        return False
    return True
