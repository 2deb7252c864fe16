"""Staples on disk, so that a start has them at once, whether responders answer or not.

    {"version": 1, "staples": {SHA-256 of the certificate: response in base64}}

A saved response is checked like a new one: the file is trusted no more than a responder is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from fleet.cause import cause_of
from xds_server.state.last_good import state_path
from xds_server.state.whole_file import read_whole, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fleet.settings import Settings

logger = logging.getLogger(__name__)

SUFFIX: Final = ".ocsp"
"""Added to the path of the last good state."""
_VERSION: Final = 1
_MAX_BYTES: Final = 16 * 1024 * 1024


class _File(msgspec.Struct):
    version: int
    staples: dict[str, bytes]


_decoder: Final = msgspec.json.Decoder(_File)


def staple_path(settings: Settings) -> Path | None:
    """Return the file of staples, next to the last good state; None without one."""
    path = state_path(settings)
    return None if path is None else path.with_name(path.name + SUFFIX)


def read(path: Path) -> dict[str, bytes]:
    """Return responses by certificate; none if the file is absent, or unusable, which is logged."""
    try:
        content = read_whole(path, _MAX_BYTES)
        if content is None:
            return {}
        file = _decoder.decode(content)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        logger.warning("%s: the saved staples cannot be used: %s", path, cause_of(error))
        return {}
    return file.staples if file.version == _VERSION else {}


def write(path: Path, staples: Mapping[str, bytes]) -> None:
    """Replace the file.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(path, msgspec.json.encode(_File(_VERSION, dict(staples))))
