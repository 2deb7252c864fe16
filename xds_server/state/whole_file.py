"""Small files of state: read with a limit, replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Final

from fleet.service.files import make_directories

if TYPE_CHECKING:
    from pathlib import Path

_one_at_a_time: Final = threading.Lock()
"""A write whose waiter was cancelled may still be under way on its thread."""


def read_whole(path: Path, most_bytes: int) -> bytes | None:
    """Return the content, at most one byte more than `most_bytes` of it; None without a file.

    Raises:
        OSError: it cannot be read.
    """
    try:
        # Without waiting for a writer where the name is a pipe's.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return file.read(most_bytes + 1) or b""
    except FileNotFoundError:
        return None


def write_whole(path: Path, content: bytes) -> None:
    """Replace the file: after a crash there is the old one or the new one. Only its owner may read it.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(path.name + ".new")
    with _one_at_a_time:
        make_directories(path.parent)
        # A new file, so that no link at this place is followed.
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # The umask may have taken even the owner's bits.
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        # The name is durable once the directory is. Not every file system can do that.
        with contextlib.suppress(OSError):
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
