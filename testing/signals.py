"""Signals stated by endpoint, and tables made of them: for tests and benches."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fleet.signals import ROW, SIGNALS, SignalTable, Source
from fleet.store import FleetView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.endpoint import Membership

_SOURCES: Final = {source.label: source for source in Source}


class Signal(NamedTuple):
    """One cell of a table."""

    value: float
    observed_at: float
    source: str
    """A label of `Source`; any other is taken for `scrape`."""


if TYPE_CHECKING:
    Load = Any
else:
    Load = make_dataclass(
        "Load", [(name, "Signal | None", field(default=None)) for name in SIGNALS], frozen=True
    )
    Load.__doc__ = "One endpoint's signals; None is unknown."


def table_of(addresses: Sequence[str], loads: Mapping[str, Load]) -> SignalTable:
    """Make a table of the endpoints' signals; endpoints without a load have unknown ones."""
    table = SignalTable.unknown(tuple(addresses))
    values, observed_at, sources = table.values.copy(), table.values.copy(), table.sources.copy()
    for column, address in enumerate(addresses):
        load = loads.get(address)
        for name, row in ROW.items() if load is not None else ():
            signal = getattr(load, name)
            if signal is not None:
                values[row, column], observed_at[row, column] = signal[:2]
                sources[row, column] = _SOURCES.get(signal[2], Source.SCRAPE)
    return SignalTable(table.addresses, values, observed_at, sources)


def load_of(table: SignalTable, address: str) -> Load:
    """Return one endpoint's signals."""
    column = table.addresses.index(address)
    return Load(
        **{
            name: Signal(value, float(table.observed_at[ROW[name], column]), _source(table, name, column))
            for name, value in table.endpoint_values(column).items()
        }
    )


def loads_of(table: SignalTable) -> dict[str, Load]:
    """Return every endpoint's signals by address."""
    return {address: load_of(table, address) for address in table.addresses}


def _source(table: SignalTable, name: str, column: int) -> str:
    return Source(int(table.sources[ROW[name], column])).label


def view_with(
    membership: Membership, weights: Mapping[str, int], loads: Mapping[str, Load], *more: Any, **named: Any
) -> FleetView:
    """Return a view of endpoints with these signals."""
    return FleetView(membership, weights, table_of(membership.addresses, loads), *more, **named)
