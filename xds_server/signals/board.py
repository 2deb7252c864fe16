"""A table of signals while its source fills it."""

from __future__ import annotations

from math import isnan, nan
from typing import TYPE_CHECKING

from fleet.signals import ROW, SignalTable, Source

if TYPE_CHECKING:
    from collections.abc import Mapping


class SignalBoard:
    """One source's newest signals by endpoint; an address that is not followed is ignored."""

    def __init__(self) -> None:
        self._table: SignalTable | None = SignalTable.unknown(())
        """The newest copy; None when something has been written since."""
        self._take_over(self._table)

    def follow(self, addresses: tuple[str, ...]) -> None:
        """Take these endpoints in this order; those that stay keep their signals."""
        table = self.table()
        self._table = table.arranged(addresses)
        if self._table is not table:
            self._take_over(self._table)

    def put(self, address: str, numbers: Mapping[str, float], observed_at: float, source: Source) -> bool:
        """Take all of one endpoint's signals, without unknown ones; returns whether a number differs."""
        column = self._column_of.get(address)
        if column is None:
            return False
        before = self._values[:, column].tobytes()  # NaN equals NaN.
        self._values[:, column] = self._observed_at[:, column] = nan
        self._sources[:, column] = Source.NONE
        for name, value in numbers.items():
            row = ROW[name]
            self._values[row, column], self._observed_at[row, column] = value, observed_at
            self._sources[row, column] = source
        self._table = None
        return self._values[:, column].tobytes() != before

    def set(self, address: str, name: str, value: float, observed_at: float, source: Source) -> bool:
        """Take one signal of an endpoint, NaN is unknown; returns whether the number differs."""
        column, row = self._column_of.get(address), ROW[name]
        if column is None:
            return False
        if value != value:  # NaN
            observed_at, source = nan, Source.NONE
        before = self._values[row, column], self._observed_at[row, column]
        if before == (value, observed_at) or (source is Source.NONE and isnan(before[0])):
            return False
        self._values[row, column], self._observed_at[row, column] = value, observed_at
        self._sources[row, column] = source
        self._table = None
        return bool(before[0] != value)

    def clear(self, address: str) -> None:
        """Forget an endpoint's signals."""
        self.put(address, {}, nan, Source.NONE)

    def value(self, address: str, name: str) -> float:
        """Return one signal of an endpoint; NaN is unknown."""
        column = self._column_of.get(address)
        return nan if column is None else float(self._values[ROW[name], column])

    def table(self) -> SignalTable:
        """Return the signals as they are now: the same object until something is written."""
        if self._table is None:
            arrays = self._values.copy(), self._observed_at.copy(), self._sources.copy()
            self._table = SignalTable(self._addresses, *arrays)
        return self._table

    def _take_over(self, table: SignalTable) -> None:
        self._addresses = table.addresses
        self._column_of = {address: column for column, address in enumerate(table.addresses)}
        self._values, self._observed_at = table.values.copy(), table.observed_at.copy()
        self._sources = table.sources.copy()
