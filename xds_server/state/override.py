"""Weights that an operator has set, each with an expiry. A small file keeps them over a restart.

    {"overrides": {"10.0.0.1:8000": {"weight": 100, "expires_at": 1790000000.0}}}

A weight of 0 is a drain: the endpoint gets no new requests, by weight or by pick. The file is next to the
last good state. If it is absent or damaged, there are no overrides.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from fleet.cause import cause_of
from xds_server.state.whole_file import read_whole, write_whole
from xds_server.weights.border import MAX_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

logger = logging.getLogger(__name__)

DRAINED: Final = 0
"""The weight that means a drain. Envoys never get it: a drained endpoint has a health status instead."""
MAX_SECONDS: Final = 86_400.0
"""A longer override belongs into the settings."""
MAX_OVERRIDES: Final = 10_000
_MAX_BYTES: Final = 16 * 1024 * 1024
_SUFFIX: Final = ".overrides"
_NONE: Final[Mapping[str, int]] = MappingProxyType({})


class Override(msgspec.Struct, frozen=True):
    """An operator's weight for one endpoint."""

    weight: Annotated[int, msgspec.Meta(ge=DRAINED, le=MAX_WEIGHT)]
    expires_at: float
    """Unix seconds."""


class _File(msgspec.Struct):
    overrides: dict[str, Override]


class OverrideBook:
    """Overrides by address. `now` is in Unix seconds, so that a restart does not prolong any."""

    def __init__(self) -> None:
        self._overrides: dict[str, Override] = {}
        self._active: Mapping[str, int] = _NONE
        self._drained: frozenset[str] = frozenset()
        self._next_expiry = float("inf")

    def __len__(self) -> int:
        return len(self._overrides)

    def set(self, weights: Mapping[str, int], expires_at: float) -> None:
        """Set weights in [0, 10000] that expire at a Unix time; 0 drains."""
        for address, weight in weights.items():
            self._overrides[address] = Override(weight, expires_at)
        if weights:
            texts = ", ".join(f"{address} {weight}" for address, weight in sorted(weights.items()))
            until = datetime.fromtimestamp(expires_at, UTC).isoformat(timespec="seconds")
            logger.info("weights are overridden by an operator until %s: %s", until, texts)
        self._lay_out()

    def clear(self, addresses: Iterable[str]) -> None:
        """Return these to their computed weights; unknown addresses are ignored."""
        cleared = [address for address in addresses if self._overrides.pop(address, None) is not None]
        if cleared:
            logger.info("overridden weights are cleared by an operator: %s", ", ".join(sorted(cleared)))
        self._lay_out()

    def active(self, now: float) -> Mapping[str, int]:
        """Address to weight of all that are not drained; the same object as long as nothing changes."""
        self._expire(now)
        return self._active

    def drained(self, now: float) -> frozenset[str]:
        """Addresses that get no new requests; the same object as long as nothing changes."""
        self._expire(now)
        return self._drained

    def _expire(self, now: float) -> None:
        if now >= self._next_expiry:
            expired = [address for address, override in self._overrides.items() if override.expires_at <= now]
            logger.info("overridden weights have expired: %s", ", ".join(sorted(expired)))
            for address in expired:
                del self._overrides[address]
            self._lay_out()

    def until(self, address: str) -> float | None:
        """When an endpoint's override ends, in Unix seconds; None without one."""
        override = self._overrides.get(address)
        return None if override is None else override.expires_at

    def encode(self) -> bytes:
        """The file's content."""
        return msgspec.json.encode(_File(self._overrides))

    def decode(self, content: bytes, now: float) -> None:
        """Replace the overrides with those of the file, without expired ones.

        Raises:
            msgspec.DecodeError: it is damaged; nothing changes.
        """
        overrides = msgspec.json.decode(content, type=_File).overrides
        self._overrides = {
            address: Override(entry.weight, min(entry.expires_at, now + MAX_SECONDS))
            for address, entry in overrides.items()
            if entry.expires_at > now
        }
        self._lay_out()

    def _lay_out(self) -> None:
        overrides = self._overrides
        self._active = MappingProxyType(
            {address: entry.weight for address, entry in overrides.items() if entry.weight != DRAINED}
        )
        self._drained = frozenset(address for address, entry in overrides.items() if entry.weight == DRAINED)
        self._next_expiry = min((entry.expires_at for entry in overrides.values()), default=float("inf"))


def override_path(state_path: Path | None) -> Path | None:
    """The file of overrides, next to that of the last good state; None: no file."""
    return None if state_path is None else state_path.with_name(state_path.name + _SUFFIX)


class OverrideFile:
    """A book's file. A failure to read or write it is logged and stops nothing."""

    def __init__(self, book: OverrideBook, path: Path | None) -> None:
        self._book = book
        self._path = path
        self._one_at_a_time = asyncio.Lock()

    async def load(self, now: float) -> None:
        """Replace the book's overrides with those of the file."""
        if self._path is None:
            return
        try:
            content = await asyncio.to_thread(_read, self._path)
            if content is not None:
                self._book.decode(content, now)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            logger.warning("%s: overridden weights from before are lost: %s", self._path, cause_of(error))
        if len(self._book):
            logger.warning(
                "weights are overridden by an operator: %s",
                ", ".join(sorted(self._book.active(now).keys() | self._book.drained(now))),
            )

    async def save(self) -> bool:
        """Write the overrides; returns whether a restart will keep them."""
        if self._path is None:
            return False
        async with self._one_at_a_time:
            try:
                await asyncio.to_thread(write_whole, self._path, self._book.encode())
            except OSError as error:
                logger.warning("%s: overridden weights cannot be saved: %s", self._path, cause_of(error))
                return False
        return True


def _read(path: Path) -> bytes | None:
    content = read_whole(path, _MAX_BYTES)
    if content is not None and len(content) > _MAX_BYTES:
        raise OSError(f"larger than {_MAX_BYTES} bytes")
    return content
