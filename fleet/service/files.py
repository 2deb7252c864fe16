"""Directories that this process can use under any umask, and changes of files."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_MODE: Final = 0o750
"""Of the directory itself, less what the umask takes from group and others."""


def make_directories(path: Path) -> None:
    """Make a directory and its missing parents.

    Raises:
        OSError: one cannot be made.
    """
    for directory in reversed([each for each in (path, *path.parents) if not each.exists()]):
        directory.mkdir(mode=_MODE if directory == path else 0o777, exist_ok=True)
        mode = stat.S_IMODE(directory.stat().st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            directory.chmod(mode | stat.S_IRWXU)


def signature(path: Path) -> tuple[int, ...] | None:
    """Return a value that differs once the file, or a link's target, is another one; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
