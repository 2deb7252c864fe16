"""The tie between a worker and its parent: a pipe that the kernel closes when the parent ends, however."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAVE: Final = 1


def end_with_parent(pipe: int, grace_seconds: float, leave: Callable[[int], None] = os._exit) -> None:
    """Drain this process when `pipe`, which its parent holds open, is closed; leave it after a while.

    On a thread of its own, because an event loop that hangs would notice nothing.
    """
    ended = threading.Event()

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        ended.wait(grace_seconds)
        leave(_LEAVE)

    threading.Thread(target=watch, name="tie to parent", daemon=True).start()
