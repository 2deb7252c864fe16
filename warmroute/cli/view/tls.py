"""TLS of the verbs towards an admin server."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fleet.cause import cause_of
from fleet.errors import SettingsError
from fleet.service.tls_files import Files, check
from warmroute.cli.view.errors import AdminError

if TYPE_CHECKING:
    import argparse


DEFAULT_NAME: Final = "warmroute"
"""The default of `server_name` in the settings."""


@dataclass(frozen=True, slots=True)
class AdminTls:
    """Trusted authorities, the client certificate, and the server's name if it is not the URL's host."""

    context: ssl.SSLContext
    server_name: str | None = None
    shows_certificate: bool = False


def tls_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments for an admin server with `tls.admin`."""
    for name, text in (
        ("ca", "authority of the admin server's certificate, in PEM; default: the system's authorities"),
        ("certificate", "certificate to show, where the server has a client_ca_file"),
        ("key", "its key"),
    ):
        parser.add_argument(f"--admin-{name}", type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--admin-name",
        metavar="NAME",
        help=f"name in the server's certificate; default: {DEFAULT_NAME} with --admin-ca, or the URL's host",
    )


def tls_of(args: argparse.Namespace) -> AdminTls | None:
    """Read the named files; None without any TLS argument.

    Raises:
        AdminError: the files cannot be used.
    """
    if (args.admin_certificate is None) != (args.admin_key is None):
        raise AdminError("--admin-certificate and --admin-key go together")
    if not any((args.admin_ca, args.admin_certificate, args.admin_name)):
        return None
    files = Files(
        None if args.admin_certificate is None else str(args.admin_certificate),
        None if args.admin_key is None else str(args.admin_key),
        None if args.admin_ca is None else str(args.admin_ca),
        flags="--admin",
    )
    try:
        check("", files)
        context = ssl.create_default_context(cafile=files.ca_file)
        if files.certificate_file is not None:
            context.load_cert_chain(files.certificate_file, files.key_file)
    except SettingsError as error:
        raise AdminError("; ".join(error.problems)) from error
    except OSError as error:
        raise AdminError(f"--admin-ca, --admin-certificate, --admin-key: {cause_of(error)}") from error
    name = args.admin_name or (DEFAULT_NAME if args.admin_ca is not None else None)
    return AdminTls(context, name, files.certificate_file is not None)
