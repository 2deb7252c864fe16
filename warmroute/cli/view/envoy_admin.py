"""Asks an Envoy's admin interface, and reads files of the same content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
import yaml

from fleet.cause import cause_of
from warmroute.doctor.rule import DoctorError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DEFAULT_ADMIN: Final = "http://127.0.0.1:9901"
CONFIG_PATH: Final = "/config_dump?include_eds"
CLUSTERS_PATH: Final = "/clusters?format=json"
STATS_PATH: Final = "/stats?format=json"
_TIMEOUT: Final = aiohttp.ClientTimeout(total=30.0)
"""A large fleet's config_dump takes Envoy seconds."""
_MOST_JSON_BYTES: Final = 256 * 1024 * 1024
_MOST_YAML_BYTES: Final = 8 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024


async def ask(admin: str, paths: Sequence[str]) -> list[Any]:
    """Get JSON documents from `http://host:port`, `host:port` or `unix:/path`.

    Raises:
        DoctorError: one of them is not to be had.
    """
    unix = admin.startswith("unix:")
    base = "http://envoy" if unix else (admin if "://" in admin else f"http://{admin}").rstrip("/")
    connector = aiohttp.UnixConnector(path=admin.removeprefix("unix:")) if unix else None
    async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
        return [await _get(session, admin, f"{base}{path}") for path in paths]


async def _get(session: aiohttp.ClientSession, admin: str, url: str) -> Any:
    try:
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise DoctorError(f"{url} answers with status {response.status}: is this Envoy's admin?")
            body = bytearray()
            async for piece in response.content.iter_chunked(_PIECE_BYTES):
                body += piece
                if len(body) > _MOST_JSON_BYTES:
                    raise DoctorError(f"{url} sends more than {_MOST_JSON_BYTES:,} bytes")
    except TimeoutError:
        raise DoctorError(f"{admin} does not answer within {_TIMEOUT.total:g} s") from None
    except aiohttp.InvalidURL:
        raise DoctorError(f"{admin!r} is no address; allowed: host:port, a URL, or unix:/path") from None
    except aiohttp.ClientError as error:
        why = f"{cause_of(error)}; start Envoy, or name its admin by --admin"
        raise DoctorError(f"{admin} cannot be reached: {why}") from error
    return _json(bytes(body), url)


def _json(text: bytes, source: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DoctorError(f"{source} holds no JSON: {error}") from error


def document(path: Path) -> Any:
    """Read a file of JSON, or of YAML.

    Raises:
        DoctorError: it is neither, or too large for a configuration.
    """
    try:
        size = path.stat().st_size
        if size > _MOST_JSON_BYTES:
            raise DoctorError(f"{path} has {size:,} bytes; at most {_MOST_JSON_BYTES:,} are read")
        text = path.read_bytes()
    except OSError as error:
        raise DoctorError(f"{cause_of(error)}; allowed: a file that this user may read") from error
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if path.suffix == ".json" or len(text) > _MOST_YAML_BYTES:
            raise DoctorError(f"{path} holds no JSON: {error}") from error
    try:
        # The C parser where there is one: a bootstrap of a megabyte takes the other ten seconds.
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DoctorError(f"{path} holds neither JSON nor YAML: {error}") from error
