"""Reads the pages of one endpoint: by its kind's table, or by the table whose marks a page carries."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleet.signals import valid_values
from xds_server.signals.scrape.history import PageHistory
from xds_server.signals.scrape.ranks import ONE, ranks_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.settings import SignalSettings
    from xds_server.signals.scrape.rules import Table

_log = logging.getLogger(__name__)


class TableReader:
    """Reads one endpoint's pages, one after the other."""

    def __init__(self, table: Table, address: str, settings: SignalSettings) -> None:
        self.malformed_lines = 0
        self.ranks = ONE
        self.second_page = table.second_page
        self._table = table
        self._address = address
        self._pages = PageHistory(
            table.names, settings.latency_window_seconds, table.repeated_by, table.parted_by
        )
        self._warned: set[str] = set()
        self._checked: tuple[int, bool] | None = None
        """The layout, and whether the engine had worked, for which `_warn` has looked."""

    def read(self, page: bytes, now: float, second: bytes | None = None) -> Mapping[str, float]:
        """Return the numbers of a page; a metric that is missing or makes no sense is left out.

        Raises:
            PageError: too many lines of it would be read.
        """
        spelt = self._table.respelt(page)
        self.malformed_lines = self._pages.turn_to(spelt, now)
        values = {name: rule.read(self._pages) for name, rule in self._table.fields.items()}
        if self.second_page:
            values.update(self._read_second(second))
        self._warn(values)
        # A server around engines may have several of them, and chooses among them itself.
        self.ranks = ranks_on(self._pages, self._table) if spelt is page else ONE
        return valid_values(values)

    def _read_second(self, page: bytes | None) -> Mapping[str, float | None]:
        try:
            if page is not None:
                return self._table.read_second(page)
            if self._checked is None:
                return {}  # This first page may have shown the kind, so no second one was fetched.
            fault = "does not answer"
        except ValueError:
            fault = "cannot be read"
        if self.second_page not in self._warned:
            self._warned.add(self.second_page)
            _log.warning(
                "%s: its page %s %s; its signals are unknown", self._address, self.second_page, fault
            )
        return {}

    def _warn(self, values: Mapping[str, float | None]) -> None:
        """Log once what the page lacks.

        Some metrics come with the first request, so they are missed only in an engine that has worked.
        """
        worked = bool(values.get("progress_total"))
        if (self._pages.layouts, worked) == self._checked:
            return
        self._checked = (self._pages.layouts, worked)
        lacking = []
        for name, rule in self._table.fields.items():
            if values[name] is not None or name in self._warned or name in self._table.optional:
                continue
            if rule.late and not worked:
                continue
            if missing := rule.missing(self._pages):
                self._warned.add(name)
                lacking.append(f"{name} ({', '.join(map(str, missing))})")
        if lacking:
            _log.warning("%s: its page lacks %s", self._address, "; ".join(lacking))


class AutoReader:
    """Reads by the table whose marks a page carries; another engine at the same address starts again."""

    def __init__(self, tables: Mapping[str, Table], address: str, settings: SignalSettings) -> None:
        self.malformed_lines = 0
        self.ranks = ONE
        self.second_page = ""
        self.kind = ""
        """Of the newest page; empty before the first that has any."""
        self._tables = tables
        self._address = address
        self._settings = settings
        self._reader: TableReader | None = None
        self._warned = False

    def read(self, page: bytes, now: float, second: bytes | None = None) -> Mapping[str, float]:
        """Return the numbers of a page; one without the marks of any kind has none.

        Raises:
            PageError: too many lines of it would be read.
        """
        kind = kind_of(self._tables, page, self.kind)
        if not kind:
            self.malformed_lines, self.ranks = 0, ONE
            if not self._warned:
                self._warned = True
                _log.warning("%s: its metrics page is no known engine's", self._address)
            return {}
        self._warned = False
        if kind != self.kind or self._reader is None:
            _log.info("%s: its metrics page is that of %s", self._address, kind)
            self.kind = kind
            self._reader = TableReader(self._tables[kind], self._address, self._settings)
            self.second_page = self._reader.second_page
            second = None  # It was fetched for the kind before.
        numbers = self._reader.read(page, now, second)
        self.malformed_lines, self.ranks = self._reader.malformed_lines, self._reader.ranks
        return numbers


def kind_of(tables: Mapping[str, Table], page: bytes, before: str = "") -> str:
    """Return the kind that a page is of, `before` first; empty: none."""
    kinds = (before, *tables) if before else tables
    return next((kind for kind in kinds if tables[kind].is_of(page)), "")
