"""`warmroute gpu-agent`: report a host's GPUs, next to the engines that use them."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from pydantic import ValidationError

from fleet.errors import WarmrouteError
from fleet.service.logs import configure_logging
from fleet.service.serving import run as run_service
from fleet.settings import PeerTlsSettings
from fleet.settings.address import split_host_port
from fleet.settings.words import in_words
from warmroute.cli.options import interval
from warmroute.gpu_agent.app import AgentConfig, serve


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
        ("ca", "authority of the certificate of --control; turns TLS on"),
    ):
        parser.add_argument(f"--control-{name}", default="", metavar="FILE", help=text)
    parser.add_argument(
        "--control-name", default="warmroute", metavar="NAME", help="name in the certificate of --control"
    )
    parser.add_argument("--interval", type=interval, default=1.0, help="seconds between two samples")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM. Returns 75 when only a new process can go on, as after a change of driver.

    Raises:
        WarmrouteError: an option's value cannot be used.
    """
    files = (args.control_certificate, args.control_key, args.control_ca)
    if any(files) and not all(files):
        raise WarmrouteError(
            "--control-certificate, --control-key and --control-ca go together; name all three"
        )
    for flag, address in (("--listen", args.listen), ("--control", args.control)):
        if address and not (flag == "--control" and address.startswith("unix:")):
            try:
                split_host_port(address)
            except ValueError as error:
                raise WarmrouteError(f"{flag}: {address!r}; {error}") from error
    try:
        tls = _tls(args)
    except ValidationError as error:
        allowed = "; ".join(in_words(problem) for problem in error.errors())
        raise WarmrouteError(f"--control-name: {args.control_name!r}; allowed: {allowed}") from error
    configure_logging()
    return run_service(serve(AgentConfig(args.node, args.listen, args.control, args.interval, tls)))


def _tls(args: argparse.Namespace) -> PeerTlsSettings | None:
    if not args.control_ca:
        return None
    return PeerTlsSettings(
        certificate_file=str(Path(args.control_certificate).absolute()),
        key_file=str(Path(args.control_key).absolute()),
        ca_file=str(Path(args.control_ca).absolute()),
        server_name=args.control_name,
    )
