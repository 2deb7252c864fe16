"""Keys of engines' APIs, out of files. A key is in no log, no error and no metric."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fleet.cause import cause_of

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""A file is read again after this time, so that a key can be exchanged."""
_MAX_BYTES: Final = 4096
_KEY: Final = re.compile(rb"[\x21-\x7e]+")


class KeyFiles:
    """The newest key of each file. All calls come from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._keys: dict[str, str] = {}
        self._looked_at: dict[str, float] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._troubles: dict[str, str] = {}

    async def key(self, file: str) -> str:
        """Return the key in a file; empty without a file, or without a key that can be sent."""
        if not file:
            return ""
        now = self._clock()
        looks = now - self._looked_at.get(file, -inf) >= LOOK_SECONDS
        if looks:
            self._looked_at[file] = now
            self._looks[file] = asyncio.create_task(self._look(file), name=f"key in {file}")
        # The others go on with the key from before meanwhile; without any, engines would refuse them.
        if looks or file not in self._keys:
            await asyncio.shield(self._looks[file])
        return self._keys[file]

    async def _look(self, file: str) -> None:
        key, trouble = await asyncio.to_thread(_read, Path(file))
        if trouble and self._troubles.get(file) != trouble:
            text = "%s: requests to engines carry no key: %s; allowed: one line of at most %d characters"
            _log.warning(text, file, trouble, _MAX_BYTES)
        self._troubles[file] = trouble
        self._keys[file] = key


def _read(path: Path) -> tuple[str, str]:
    """Return the key of a file, or why there is none."""
    try:
        with path.open("rb") as file:
            key = file.read(_MAX_BYTES + 1).strip()
    except OSError as error:
        return "", cause_of(error)
    if len(key) > _MAX_BYTES or not _KEY.fullmatch(key):
        return "", "it is empty, too long, or has spaces or characters beyond ASCII"
    return key.decode("ascii"), ""
