"""Waiting until a directory is watched: a watcher registers with the kernel on a thread."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

_FDINFO: Final = Path("/proc/self/fdinfo")


async def noticed(directory: Path) -> None:
    """Return once the kernel reports changes in a directory (Linux; elsewhere after a moment)."""
    if not _FDINFO.is_dir():
        await asyncio.sleep(0.3)
        return
    async with asyncio.timeout(60):
        while not _is_watched(directory):
            await asyncio.sleep(0.005)


def _is_watched(directory: Path) -> bool:
    """`man 5 proc_pid_fdinfo`: a line for each of an inotify's watches names the inode."""
    inode = f" ino:{directory.stat().st_ino:x} "
    for descriptor in _FDINFO.iterdir():
        try:
            lines = descriptor.read_text().splitlines()
        except OSError:  # closed meanwhile
            continue
        if any(line.startswith("inotify ") and inode in line for line in lines):
            return True
    return False
