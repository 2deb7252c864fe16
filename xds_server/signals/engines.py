"""The kinds of engine whose metrics pages can be read: a new one is a file beside this and a line below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from xds_server.signals.vllm import VllmReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.load import Load
    from fleet.settings import SignalSettings


class EngineReader(Protocol):
    """Reads one endpoint's pages, one after the other; it remembers what windows need."""

    malformed_lines: int
    """Lines of the newest page that carry a wanted name and could not be read."""

    def read(self, page: bytes, now: float) -> Load:
        """Turn a page into a load. Whatever the page holds, this does not raise: unknown is None."""
        ...


ENGINES: Final[dict[str, Callable[[str, SignalSettings], EngineReader]]] = {
    "auto": VllmReader,
    "vllm": VllmReader,
}
"""Engine kind to a maker of readers, given the endpoint's address and the signal settings."""
