"""A table of signals while its source fills it."""

from __future__ import annotations

from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from fleet.signals import ROW, SIGNALS, SignalTable, Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


class SignalBoard:
    """One source's newest signals by endpoint; an address that is not followed is ignored."""

    def __init__(self) -> None:
        self._table: SignalTable | None = SignalTable.unknown(())
        """The newest copy; None when something has been written since."""
        self._hold(self._table)

    def follow(self, addresses: tuple[str, ...]) -> None:
        """Take these endpoints in this order; those that stay keep their signals."""
        table = self.table()
        self._table = table.arranged(addresses)
        if self._table is not table:
            self._hold(self._table)

    def put(self, address: str, numbers: Mapping[str, float], observed_at: float, source: Source) -> None:
        """Take all of one endpoint's signals; those that are missing are unknown."""
        column = self._column_of.get(address)
        if column is None:
            return
        # Lists: for one endpoint's few numbers they are cheaper than arithmetic on arrays.
        values, code = [numbers.get(name, nan) for name in SIGNALS], int(source)
        self._values[:, column] = values
        self._observed_at[:, column] = [observed_at if value == value else nan for value in values]
        self._sources[:, column] = [code if value == value else 0 for value in values]
        self._table = None

    def set(self, address: str, name: str, value: float, observed_at: float, source: Source) -> None:
        """Take one signal of an endpoint; NaN is unknown."""
        column, row = self._column_of.get(address), ROW[name]
        if column is None:
            return
        if value != value:  # NaN
            observed_at, source = nan, Source.NONE
        before = self._values[row, column], self._observed_at[row, column]
        if before == (value, observed_at) or (source is Source.NONE and isnan(before[0])):
            return
        self._values[row, column], self._observed_at[row, column] = value, observed_at
        self._sources[row, column] = source
        self._table = None

    def clear(self, address: str) -> None:
        """Forget an endpoint's signals."""
        self.put(address, {}, nan, Source.NONE)

    def numbers(self, address: str) -> NDArray[np.float64]:
        """Return a copy of an endpoint's signals, in the order of `SIGNALS`."""
        column = self._column_of.get(address)
        return np.full(len(SIGNALS), nan) if column is None else self._values[:, column].copy()

    def table(self) -> SignalTable:
        """Return the signals as they are now: the same object until something is written."""
        if self._table is None:
            arrays = self._values.copy(), self._observed_at.copy(), self._sources.copy()
            self._table = SignalTable(self._addresses, *arrays)
        return self._table

    def _hold(self, table: SignalTable) -> None:
        self._addresses = table.addresses
        self._column_of = {address: column for column, address in enumerate(table.addresses)}
        self._values, self._observed_at = table.values.copy(), table.observed_at.copy()
        self._sources = table.sources.copy()
