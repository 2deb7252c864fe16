"""How the verbs that ask an admin server speak TLS to it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.view.client import AdminError

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True)
class AdminTls:
    """Whom to trust, what to show, and another name than the URL's that the server's certificate carries."""

    context: ssl.SSLContext
    server_name: str | None = None


def tls_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments for an admin server with `tls.admin`."""
    for name, text in (
        ("ca", "who signs the admin server's certificate, in PEM; default: whom the system trusts"),
        ("certificate", "certificate to show, where the server has a client_ca_file"),
        ("key", "its key"),
    ):
        parser.add_argument(f"--admin-{name}", type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--admin-name", metavar="NAME", help="name in the server's certificate; default: the URL's host"
    )


def tls_of(args: argparse.Namespace) -> AdminTls | None:
    """Read what the arguments name; None: they say nothing of TLS.

    Raises:
        AdminError: the files cannot be used.
    """
    if (args.admin_certificate is None) != (args.admin_key is None):
        raise AdminError("--admin-certificate and --admin-key go together")
    if not any((args.admin_ca, args.admin_certificate, args.admin_name)):
        return None
    try:
        context = ssl.create_default_context(cafile=args.admin_ca)
    except OSError as error:
        raise AdminError(f"{args.admin_ca}: {_told(error)}") from error
    if args.admin_certificate is not None:
        try:
            # Without a function that says so, OpenSSL would ask the terminal for a password.
            context.load_cert_chain(args.admin_certificate, args.admin_key, password=_no_password)
        except (OSError, ValueError) as error:
            raise AdminError(f"{args.admin_certificate}, {args.admin_key}: {_told(error)}") from error
    return AdminTls(context, args.admin_name)


def _told(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or "it cannot be used"


def _no_password() -> bytes:
    raise ValueError("the key has a password")
