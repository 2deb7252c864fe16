"""`warmroute gpu-agent`: tells of a host's GPUs, beside the engines that use them."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from warmroute.cli.options import interval

if TYPE_CHECKING:
    from fleet.settings import PeerTlsSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument(
        "--node", default=socket.gethostname(), help="this host's name, as in pools.endpoints.node"
    )
    parser.add_argument(
        "--control", default="", metavar="ADDRESS", help="xds_server's control.address; none: only the page"
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:19100", metavar="HOST:PORT", help="the Prometheus page"
    )
    for name, text in (
        ("certificate", "certificate to show to --control, in PEM"),
        ("key", "its key"),
        ("ca", "who signs the certificate of --control; with it TLS is spoken"),
    ):
        parser.add_argument(f"--control-{name}", default="", metavar="FILE", help=text)
    parser.add_argument(
        "--control-name", default="warmroute", metavar="NAME", help="name in the certificate of --control"
    )
    parser.add_argument("--interval", type=interval, default=1.0, help="seconds between two samples")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM. Returns 75 when only a new process can go on, as after a change of driver."""
    # Imported late, so that the other verbs start without them.
    from pydantic import ValidationError  # noqa: PLC0415

    from fleet.service.logs import configure_logging  # noqa: PLC0415
    from fleet.service.serving import run as run_service  # noqa: PLC0415
    from fleet.settings.address import split_host_port  # noqa: PLC0415
    from fleet.settings.words import in_words  # noqa: PLC0415
    from warmroute.gpu_agent.app import AgentConfig, serve  # noqa: PLC0415

    given = (args.control_certificate, args.control_key, args.control_ca)
    if any(given) and not all(given):
        print(
            "warmroute gpu-agent: --control-certificate, --control-key and --control-ca go together",
            file=sys.stderr,
        )
        return 2

    for flag, address in (("--listen", args.listen), ("--control", args.control)):
        if address and not (flag == "--control" and address.startswith("unix:")):
            try:
                split_host_port(address)
            except ValueError as error:
                print(f"warmroute gpu-agent: {flag}: {address!r}; {error}", file=sys.stderr)
                return 2
    try:
        tls = _tls(args)
    except ValidationError as error:
        told = "; ".join(in_words(problem) for problem in error.errors())
        print(f"warmroute gpu-agent: --control-name: {args.control_name!r}; allowed: {told}", file=sys.stderr)
        return 2
    configure_logging()
    return run_service(serve(AgentConfig(args.node, args.listen, args.control, args.interval, tls)))


def _tls(args: argparse.Namespace) -> PeerTlsSettings | None:
    from fleet.settings import PeerTlsSettings  # noqa: PLC0415

    if not args.control_ca:
        return None
    return PeerTlsSettings(
        certificate_file=str(Path(args.control_certificate).absolute()),
        key_file=str(Path(args.control_key).absolute()),
        ca_file=str(Path(args.control_ca).absolute()),
        server_name=args.control_name,
    )
