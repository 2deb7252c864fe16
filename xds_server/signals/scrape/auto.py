"""Finds out from an endpoint's pages which kind of engine wrote them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from xds_server.signals.scrape.reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.settings import SignalSettings
    from xds_server.signals.scrape.table import Table

_log = logging.getLogger(__name__)


class AutoReader:
    """Reads by the table whose marks a page carries; another engine at the same address starts again."""

    def __init__(self, tables: Mapping[str, Table], address: str, settings: SignalSettings) -> None:
        self.malformed_lines = 0
        self.kind = ""
        """The kind that was found; empty before."""
        self._tables = tables
        self._address = address
        self._settings = settings
        self._reader: TableReader | None = None
        self._warned = False

    @property
    def second_page(self) -> str:
        """Name of the second page to fetch, once the kind is known."""
        return "" if self._reader is None else self._reader.second_page

    def read(self, page: bytes, now: float, second: bytes | None = None) -> Mapping[str, float]:
        """Return the numbers of a page; one without the marks of any kind has none.

        Raises:
            PageError: too many lines of it would be read.
        """
        kind = kind_of(self._tables, page, self.kind)
        if not kind:
            self.malformed_lines = 0
            if not self._warned:
                self._warned = True
                _log.warning("%s: its metrics page is no known engine's", self._address)
            return {}
        self._warned = False
        if kind != self.kind or self._reader is None:
            _log.info("%s: its metrics page is that of %s", self._address, kind)
            self.kind = kind
            self._reader = TableReader(self._tables[kind], self._address, self._settings)
            # The second page was fetched for the kind before.
            second = None
        numbers = self._reader.read(page, now, second)
        self.malformed_lines = self._reader.malformed_lines
        return numbers


def kind_of(tables: Mapping[str, Table], page: bytes, before: str = "") -> str:
    """Return the kind whose marks a page carries, `before` first; empty: none."""
    for kind in (before, *tables) if before else tables:
        for mark in tables[kind].marks:
            text = mark.encode()
            if page.startswith(text) or b"\n" + text in page:
                return kind
    return ""
