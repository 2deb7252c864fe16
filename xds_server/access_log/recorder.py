"""Writes finished requests to files that `warmroute replay` reads: times, sizes and prefixes, no text.

Each file has a salt of its own, which exists only in this process. Prefixes and sessions are equal within a
file; nobody can compare them with a guess of a prompt, or between files. Files are written by a thread, and a
slow or full disk costs lines, never a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import time
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec
from prometheus_client import Counter

from fleet import recorded_prompt
from fleet.cause import cause_of
from fleet.names import METADATA_BLOCKS
from xds_server.access_log.finished import SWITCHED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from io import FileIO

    from prometheus_client import CollectorRegistry

    from fleet.settings import Settings
    from xds_server.access_log.finished import Finished

_log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 1.0
MOST_PENDING_BYTES: Final = 8 * 1024 * 1024
"""Of lines that wait for the disk; further ones are lost."""
_FILES: Final = 4
"""A pool's files have this share of its bytes each."""
_MOST_UNIX_SECONDS: Final = 1e11
_MOST_SECONDS: Final = 366 * 86_400.0
"""Of a request. One line beyond these, of a peer with an absurd clock, would make a file unreadable."""
_NAME_BYTES: Final = 6
"""Of a prefix's or session's name: it is a whole number of 48 bits."""


class _File:
    """One file's names and size."""

    def __init__(self, path: Path, head: bytes) -> None:
        """`head` is its first line."""
        self.path, self.head = path, head
        self.nbytes = 0
        self._salt = secrets.token_bytes(16)

    def name(self, number: int) -> int:
        """Return the name of a prefix or session in this file."""
        data = (number & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")
        return int.from_bytes(blake2b(data, key=self._salt, digest_size=_NAME_BYTES).digest(), "little")


class RequestRecorder:
    """Takes finished requests of our pools and writes them once a second. One event loop."""

    def __init__(
        self, settings: Settings, registry: CollectorRegistry, wall: Callable[[], float] = time.time
    ) -> None:
        self._wall = wall
        self._files: dict[str, _File] = {}
        self._pending: list[tuple[_File, bytes]] = []
        self._pending_bytes = 0
        self._failing = ""
        self._task: asyncio.Task[None] | None = None
        self._writing = Lock()
        """Of one thread: a cancelled write goes on, and `close` writes the rest after it."""
        self._recorded = Counter(
            "warmroute_recorded_requests", "Requests written to files", registry=registry
        )
        self._lost = Counter(
            "warmroute_recorded_lost", "Requests that should be in a file and are not", registry=registry
        )
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings, in new files."""
        self._settings = settings.recording
        self._body_bytes = settings.limits.body_bytes
        block_bytes = settings.ext_proc.pick.block_bytes
        self._run_bytes = block_bytes * recorded_prompt.run_blocks(block_bytes)
        self._pools = frozenset(pool.name for pool in settings.pools) if self._settings.directory else ()
        self._files.clear()

    def note(self, finished: Finished) -> None:
        """Take a request, if it is recorded: one of our pools, with a body, that reached an endpoint."""
        if finished.cluster not in self._pools or not finished.request_bytes or not finished.address:
            return
        if finished.status == SWITCHED:
            return
        if not _plausible(finished):
            self._lost.inc()
            return
        if self._pending_bytes > MOST_PENDING_BYTES:
            self._lost.inc()
            return
        file = self._files.get(finished.cluster)
        if file is None or file.nbytes > self._settings.pool_bytes // _FILES:
            file = self._files[finished.cluster] = self._begin(finished.cluster)
        self._append(file, self._line(finished, file))

    async def close(self) -> None:
        """Write the rest, and stop."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            await self._write()

    def _begin(self, pool: str) -> _File:
        moment = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y%m%dT%H%M%S.%f")
        head = msgspec.json.encode({"warmroute_requests": 1, "block_bytes": self._run_bytes}) + b"\n"
        return _File(Path(self._settings.directory) / f"{pool}-{moment}.jsonl", head)

    def _append(self, file: _File, content: dict[str, object]) -> None:
        data = msgspec.json.encode(content) + b"\n"
        self._pending.append((file, data))
        self._pending_bytes += len(data)
        file.nbytes += len(data)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_soon(), name="record requests")

    def _line(self, finished: Finished, file: _File) -> dict[str, object]:
        prompt_bytes, runs = finished.request_bytes, list[int]()
        # Unreadable is as missing: an Envoy may run another version.
        with contextlib.suppress(ValueError):
            text_bytes, runs = recorded_prompt.decode(finished.metadata.get(METADATA_BLOCKS, ""))
            if finished.request_bytes <= self._body_bytes:
                prompt_bytes = text_bytes  # Of a longer body only the leading part was read.
        return {
            "at": round(finished.started_at, 4),
            "prompt_bytes": prompt_bytes,
            "answer_bytes": finished.response_bytes,
            "first_byte": finished.first_byte_seconds,
            "seconds": finished.duration_seconds,
            "status": finished.status,
            "session": None if finished.session is None else file.name(finished.session),
            "blocks": [file.name(run) for run in runs],
        }

    async def _write_soon(self) -> None:
        while self._pending:
            await asyncio.sleep(FLUSH_SECONDS)
            await self._write()

    async def _write(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        try:
            await asyncio.to_thread(_write_lines, pending, self._settings.pool_bytes, self._writing)
        except OSError as error:
            self._lost.inc(len(pending))
            if self._failing != (cause := cause_of(error)):
                _log.warning("requests are not recorded: %s", cause)
            self._failing = cause
        else:
            self._recorded.inc(len(pending))
            self._failing = ""


def _plausible(finished: Finished) -> bool:
    seconds = max(finished.first_byte_seconds or 0.0, finished.duration_seconds or 0.0)
    return 0.0 <= finished.started_at <= _MOST_UNIX_SECONDS and seconds <= _MOST_SECONDS


def _write_lines(lines: Sequence[tuple[_File, bytes]], pool_bytes: int, writing: Lock) -> None:
    """Append lines to their files, and delete the oldest files of each pool beyond its bytes."""
    by_file: dict[_File, list[bytes]] = {}
    for file, data in lines:
        by_file.setdefault(file, []).append(data)
    with writing:
        for file, parts in by_file.items():
            path = file.path
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "ab", buffering=0) as stream:
                _append_whole(stream, file.head, b"".join(parts))
            _delete_oldest(path, pool_bytes)


def _append_whole(stream: FileIO, head: bytes, data: bytes) -> None:
    """Append all of the data or none: a part of a line would spoil the file for its readers.

    An empty file, and one that was moved away or deleted meanwhile, begins with the head.
    """
    size = os.fstat(stream.fileno()).st_size
    left = memoryview(data if size else head + data)
    try:
        while left:
            left = left[stream.write(left) :]
    except OSError:
        stream.truncate(size)
        raise


def _delete_oldest(newest: Path, pool_bytes: int) -> None:
    pool = re.escape(newest.name.rpartition("-")[0])
    names = re.compile(rf"{pool}-\d{{8}}T\d{{6}}\.\d{{6}}\.jsonl")
    files = sorted(path for path in newest.parent.iterdir() if names.fullmatch(path.name))
    left = sum(path.stat().st_size for path in files)
    for path in files:
        if left <= pool_bytes or path == newest:
            return
        left -= path.stat().st_size
        path.unlink()
