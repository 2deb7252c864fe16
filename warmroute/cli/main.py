"""The command `warmroute`: one file a verb, imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from fleet.errors import SettingsError, WarmrouteError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Verb(Protocol):
    """What a verb's module holds."""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit status."""


VERBS: Final = {
    "serve": ("warmroute.cli.serve", "run xds_server and ext_proc in one process (the sidecar form)"),
    "xds": ("warmroute.cli.xds", "run xds_server alone: signals, weights, discovery"),
    "ext-proc": ("warmroute.cli.ext_proc", "run ext_proc workers that follow an xds_server"),
    "check": ("warmroute.cli.check", "check a settings file"),
    "bootstrap": (
        "warmroute.cli.bootstrap",
        "print a bootstrap for Envoy: its node and the address of ADS",
    ),
    "gpu-agent": (
        "warmroute.cli.gpu_agent",
        "report this host's GPUs: a Prometheus page, and reports to xds_server",
    ),
    "engine": ("warmroute.cli.engine", "run a simulated engine that stands in for vLLM"),
    "top": ("warmroute.cli.top", "show endpoints, weights and health, live or once"),
    "explain": (
        "warmroute.cli.explain",
        "give the reason for an endpoint's weight, or for a request's pick",
    ),
    "weight": ("warmroute.cli.weight", "give an endpoint a share of all traffic by hand, for a time"),
    "drain": (
        "warmroute.cli.drain",
        "send an endpoint no new requests, for a time; running ones continue",
    ),
    "diagnose": (
        "warmroute.cli.diagnose",
        "name the cause of trouble for each pool and endpoint, with evidence",
    ),
    "doctor": (
        "warmroute.cli.doctor",
        "name the parts of a configuration that hurt LLM traffic: of Envoy, or a proxy before it",
    ),
    "replay": (
        "warmroute.cli.replay",
        "replay a trace through our picks and other policies, on simulated engines",
    ),
    "sla": ("warmroute.cli.sla", "print the numbers of Envoy that follow from an SLA, with reasons"),
    "demo": ("warmroute.cli.demo", "run the whole thing on loopback, next to Envoy's own policies"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the verb that the arguments name; Ctrl-C ends it, while its modules load too."""
    # numpy's threads wait for each other on a busy host, and the event loop with them. Products are small.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return 130


def _main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="warmroute", description="LLM load balancing for Envoy: warm picks, honest weights."
    )
    parser.add_argument("--version", action="version", version=f"warmroute {version('warmroute')}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verb_parser = parser
    for name, (module, text) in VERBS.items():
        subparser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == _verb_in(words):
            cast("Verb", importlib.import_module(module)).arguments(subparser)
            verb_parser = subparser
    args, unknown = parser.parse_known_args(words)
    if unknown:
        verb_parser.error(
            f"{args.verb} has no {' '.join(unknown)}; allowed: what `{verb_parser.prog} --help` lists"
        )
    module = VERBS[args.verb][0]
    try:
        status = cast("Verb", importlib.import_module(module)).run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # As of `warmroute explain ... | head`. Nothing else may write to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (WarmrouteError, OSError) as error:
        print(f"warmroute {args.verb}: {_message(error, args)}", file=sys.stderr)
        return 2
    return status


def _message(error: WarmrouteError | OSError, args: argparse.Namespace) -> str:
    """Return the error's text, with the place in the settings file of a problem found on use."""
    # Imported late, as the verbs are.
    if isinstance(error, OSError):
        from fleet.cause import cause_of  # noqa: PLC0415

        return cause_of(error)
    path = getattr(args, "settings", None)
    if not isinstance(error, SettingsError) or not isinstance(path, Path):
        return str(error)
    from fleet.settings import located  # noqa: PLC0415

    return str(located(path, error))


def _verb_in(arguments: Sequence[str]) -> str | None:
    return next((argument for argument in arguments if not argument.startswith("-")), None)


if __name__ == "__main__":
    sys.exit(main())
