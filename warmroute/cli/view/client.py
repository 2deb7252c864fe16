"""Client of the admin API. A missing answer is an error with its reason, never an empty view."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
import msgspec

from fleet.cause import cause_of
from fleet.service.logs import escaped
from warmroute.cli.view.errors import AdminError, NotThereError
from warmroute.cli.view.unreached import why_not_reached

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from warmroute.cli.view.tls import AdminTls

DEFAULT_ADMIN: Final = "127.0.0.1:19000"
DEFAULT_EXT_PROC_ADMIN: Final = "127.0.0.1:19001"
_TIMEOUT: Final = aiohttp.ClientTimeout(total=3.0)
_UNAUTHORISED: Final = 401
_FORBIDDEN: Final = 403


class AdminClient:
    """Keep-alive requests to one admin server; a context manager."""

    def __init__(self, url: str, token: str = "", tls: AdminTls | None = None) -> None:
        """With `tls`, a `host:port` without a scheme is requested by HTTPS."""
        self.url = _base(url, "http" if tls is None else "https")
        self._tls = tls
        self._ssl = True if tls is None else tls.context
        self._server_name = None if tls is None else tls.server_name
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

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
            raise AdminError(f"{self.url} does not answer within {_TIMEOUT.total:g} s") from None
        except aiohttp.InvalidURL:
            raise AdminError(f"{self.url} is no URL of an admin server") from None
        except aiohttp.ClientError as error:
            reason = why_not_reached(error, self.url, self._tls)
            raise AdminError(f"{self.url} cannot be reached: {reason}") from error
        if response.status == 404:
            raise NotThereError(f"{self.url} has no {path}")
        if response.status == _UNAUTHORISED:
            step = (
                "the file of --token-file holds another one"
                if self._headers
                else "name its file by --token-file"
            )
            raise AdminError(f"{self.url} refuses: {_refusal(body)}; {step}")
        if response.status == _FORBIDDEN:
            raise AdminError(f"{self.url} refuses: {_refusal(body)}")
        if response.status != 200 and method == "POST":
            raise AdminError(f"{self.url} refuses: {_refusal(body)}")
        if response.status != 200:
            raise AdminError(f"{self.url}{path} answers with status {response.status}")
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise AdminError(f"{self.url}{path} answers with no JSON: is this Warmroute?") from error

    async def documents(self, needed: str, wished_for: tuple[str, ...]) -> dict[str, Any]:
        """Get the needed path, and the optional ones that the server has.

        Raises:
            AdminError: one of them gave no answer.
        """
        paths = (needed, *wished_for)
        answers = await asyncio.gather(*(self.get(path) for path in paths), return_exceptions=True)
        documents: dict[str, Any] = {}
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, NotThereError) and path != needed:
                continue
            if isinstance(answer, BaseException):
                raise answer
            documents[path] = answer
        return documents


def read_token(path: Path | None) -> str:
    """Return the token in the file; "" without one.

    Raises:
        AdminError: the file cannot be read or holds no token.
    """
    if path is None:
        return ""
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise AdminError(f"--token-file {cause_of(error)}") from error
    except UnicodeDecodeError as error:
        raise AdminError(f"--token-file {path}: {cause_of(error)}") from error
    if not token or not token.isascii() or not token.isprintable():
        raise AdminError(f"{path} holds no token")
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


def _base(url: str, scheme: str) -> str:
    """Take `host:port` as well as a URL."""
    return (url if "://" in url else f"{scheme}://{url}").rstrip("/")
