"""Client of the admin API, for verbs. A missing answer is an error with its reason, never an empty view."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
import msgspec

from fleet.cause import cause_of
from fleet.errors import SettingsError, WarmrouteError
from fleet.service.logs import escaped
from fleet.service.tls_files import Files, check

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

DEFAULT_ADMIN: Final = "127.0.0.1:19000"
DEFAULT_NAME: Final = "warmroute"
"""The default of `server_name` in the settings."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=3.0)
_TOKEN_FILE: Final = "a file that this user may read, with the token of admin.token_file"  # noqa: S105 - a text
_OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes of a certificate that is for another name, or another address."""
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes of a certificate of an untrusted authority."""


class AdminError(WarmrouteError):
    """The admin server gave no usable answer; the text says why."""


class NotThereError(AdminError):
    """The server has no such path."""


@dataclass(frozen=True, slots=True)
class AdminTls:
    """Trusted authorities, the client certificate, and the server's name if it is not the URL's host."""

    context: ssl.SSLContext
    server_name: str | None = None
    shows_certificate: bool = False


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name an admin server, its token and its TLS (`tls.admin`)."""
    parser.add_argument("--admin", default=DEFAULT_ADMIN, metavar="URL", help="default: %(default)s")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="holds the admin server's token")
    for name, text in (
        ("ca", "authority of the admin server's certificate, in PEM; default: the system's authorities"),
        ("certificate", "certificate to show, where the server has a client_ca_file"),
        ("key", "its key"),
    ):
        parser.add_argument(f"--admin-{name}", metavar="FILE", help=text)
    parser.add_argument(
        "--admin-name",
        metavar="NAME",
        help=f"name in the server's certificate; default: {DEFAULT_NAME} with --admin-ca, or the URL's host",
    )


def _tls_of(args: argparse.Namespace) -> AdminTls | None:
    """Read the named files; None without any TLS argument.

    Raises:
        AdminError: the files cannot be used.
    """
    if (args.admin_certificate is None) != (args.admin_key is None):
        raise AdminError("one of --admin-certificate and --admin-key alone; allowed: both, or neither")
    if not any((args.admin_ca, args.admin_certificate, args.admin_name)):
        return None
    files = Files(args.admin_certificate, args.admin_key, args.admin_ca, flags="--admin")
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


class AdminClient:
    """Keep-alive requests to one admin server; a context manager."""

    def __init__(self, url: str, token: str = "", tls: AdminTls | None = None) -> None:
        """With `tls`, a `host:port` without a scheme is requested by HTTPS."""
        scheme = "http" if tls is None else "https"
        self.url = (url if "://" in url else f"{scheme}://{url}").rstrip("/")
        self._tls = tls
        self._ssl = True if tls is None else tls.context
        self._server_name = None if tls is None else tls.server_name
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def of(cls, args: argparse.Namespace, url: str = "") -> Self:
        """Return the client by a verb's arguments, also for another admin server than `--admin`.

        Raises:
            AdminError: the named files cannot be used.
        """
        return cls(url or args.admin, _token(args.token_file), _tls_of(args))

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=_TIMEOUT, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Get a JSON document.

        Raises:
            NotThereError: the server answers 404.
            AdminError: there is no answer in time, or an unexpected one.
        """
        return await self._ask("GET", path, params=query)

    async def post(self, path: str, document: Any) -> Any:
        """Post a JSON document and return the answer.

        Raises:
            NotThereError: the server answers 404.
            AdminError: it refuses, or there is no answer in time, or an unexpected one.
        """
        return await self._ask("POST", path, json=document)

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        assert self._session is not None
        try:
            async with self._session.request(
                method,
                f"{self.url}{path}",
                ssl=self._ssl,
                server_hostname=self._server_name,
                allow_redirects=False,
                **more,
            ) as response:
                body = await response.read()
        except TimeoutError:
            raise AdminError(f"{self.url} gives no answer in {_TIMEOUT.total:g} s; see its log") from None
        except aiohttp.InvalidURL:
            raise AdminError(f"{self.url!r} is no URL; allowed: host:port, or with http(s)://") from None
        except aiohttp.ClientError as error:
            reason = _why_not_reached(error, self.url, self._tls)
            raise AdminError(f"{self.url} cannot be reached: {reason}") from error
        if response.status == 404:
            step = "name the admin server of xds_server, or of `warmroute serve`"
            raise NotThereError(f"{self.url} has no {path}; {step}")
        if response.status == 401:
            step = "mend the file of --token-file" if self._headers else "name its file by --token-file"
            raise AdminError(f"{self.url} refuses: {_refusal(body)}; {step}")
        if response.status == 403 or (response.status != 200 and method == "POST"):
            raise AdminError(f"{self.url} refuses: {_refusal(body)}")
        if response.status != 200:
            raise AdminError(f"{self.url}{path} answers with status {response.status}")
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise AdminError(f"{self.url}{path} answers with no JSON: is this Warmroute?") from error

    async def documents(self, needed: str, optional: tuple[str, ...]) -> dict[str, Any]:
        """Get the needed path, and the optional ones that the server has.

        Raises:
            AdminError: one of them gave no answer.
        """
        paths = (needed, *optional)
        answers = await asyncio.gather(*(self.get(path) for path in paths), return_exceptions=True)
        documents: dict[str, Any] = {}
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, NotThereError) and path != needed:
                continue
            if isinstance(answer, BaseException):
                raise answer
            documents[path] = answer
        return documents


def _token(path: Path | None) -> str:
    """Return the token in the file; "" without one."""
    if path is None:
        return ""
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise AdminError(f"--token-file: {cause_of(error)}; allowed: {_TOKEN_FILE}") from error
    except UnicodeDecodeError as error:
        raise AdminError(f"--token-file: {path}: {cause_of(error)}; allowed: {_TOKEN_FILE}") from error
    if not token or not token.isascii() or not token.isprintable():
        raise AdminError(f"--token-file: {path} holds no token; allowed: {_TOKEN_FILE}")
    return token


def _refusal(body: bytes) -> str:
    """Return the reason in a refusal's body."""
    try:
        document = msgspec.json.decode(body, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = {}
    # Escaped, because it goes to a terminal.
    return (
        escaped(": ".join(document[key] for key in ("path", "error") if key in document))
        or "it does not say why"
    )


def _why_not_reached(error: aiohttp.ClientError, url: str, tls: AdminTls | None) -> str:
    """Return the cause, with the next step where TLS is in the way."""
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return _distrusted(inner, cause_of(error), tls)
    if isinstance(inner, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(inner):
        return "it speaks no TLS: leave out the options of TLS, and https:// in the address"
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(inner, ssl.SSLError):
        return f"{cause_of(error)}; start Warmroute there, or name another address"
    if not url.startswith("https:"):
        step = "write https:// in the address" if tls is not None else "add --admin-ca"
        return (
            f"it ends the connection without an answer ({cause_of(error)}). It may speak TLS: {step}, and"
            " --admin-certificate with --admin-key where it has a client_ca_file"
        )
    if tls is not None and tls.shows_certificate:
        step = "allowed: a certificate for clients that tls.admin.client_ca_file has signed"
        return f"it does not take the certificate of --admin-certificate ({cause_of(error)}); {step}"
    return (
        f"it ends the connection ({cause_of(error)}). It may ask for a certificate: name one by"
        " --admin-certificate and --admin-key"
    )


def _distrusted(error: ssl.SSLCertVerificationError, cause: str, tls: AdminTls | None) -> str:
    if error.verify_code in _OTHER_NAME:
        name = "the host of the address" if tls is None or tls.server_name is None else repr(tls.server_name)
        return f"its certificate does not carry {name}: name one of its DNS names by --admin-name"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return f"no authority trusted here has signed its certificate ({cause}): name its own by --admin-ca"
    return cause
