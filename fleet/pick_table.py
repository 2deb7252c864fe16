"""The signals that picks look at, as columns over a whole fleet: what travels to workers, once a tick.

A table is laid out once for a view, sent as it is to every worker, and read by the ones who pick without a
`Load` in between: at a thousand endpoints that is the difference between microseconds and milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.load import PICK_FIELDS, Load, Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

ROW_OF: Final[Mapping[str, int]] = {name: row for row, name in enumerate(PICK_FIELDS)}
"""Name of a signal to its row in a table."""

_held_by: Final[Callable[[Load], tuple[Signal | None, ...]]] = attrgetter(*PICK_FIELDS)
_UNKNOWN: Final[tuple[None, ...]] = (None,) * len(PICK_FIELDS)
_NAN: Final = float("nan")
_TOLD: Final = "control"
"""The source of signals that came from xds_server: which source it had them from stays there."""


@dataclass(frozen=True, slots=True, eq=False)
class PickTable:
    """One row a signal of `PICK_FIELDS`, one column an endpoint, in the order of the membership."""

    values: NDArray[np.float64]
    """Finite and not negative; NaN is unknown."""
    observed_at: NDArray[np.float64]
    """Seconds on this process's monotonic clock; NaN where the value is unknown."""

    @classmethod
    def of(cls, addresses: Sequence[str], loads: Mapping[str, Load]) -> PickTable:
        """Lay loads out; who has none is unknown."""
        held = [_UNKNOWN if (load := loads.get(address)) is None else _held_by(load) for address in addresses]
        flat = list(chain.from_iterable(held))
        shape = len(addresses), len(PICK_FIELDS)
        values = np.array([_NAN if signal is None else signal[0] for signal in flat], np.float64)
        observed = np.array([_NAN if signal is None else signal[1] for signal in flat], np.float64)
        return cls(
            np.ascontiguousarray(values.reshape(shape).T), np.ascontiguousarray(observed.reshape(shape).T)
        )

    def fresh(self, now: float, stale_after_seconds: float) -> NDArray[np.float64]:
        """Return the values, NaN where they are older than that."""
        # NaN compares false, so what is unknown stays what it is.
        return np.where(now - self.observed_at > stale_after_seconds, np.nan, self.values)

    def same_as(self, other: PickTable) -> bool:
        """Whether both hold the same observations, ages included."""
        return np.array_equal(self.values, other.values, equal_nan=True) and np.array_equal(
            self.observed_at, other.observed_at, equal_nan=True
        )


class TableLoads(Mapping[str, Load]):
    """A table as address to load; each load is made when it is asked for."""

    __slots__ = ("_column_of", "_table")

    def __init__(self, addresses: Sequence[str], table: PickTable) -> None:
        self._column_of = {address: column for column, address in enumerate(addresses)}
        self._table = table

    def __getitem__(self, address: str) -> Load:
        """Make the load of one endpoint.

        Raises:
            KeyError: the endpoint is not in the membership.
        """
        column = self._column_of[address]
        values = self._table.values[:, column].tolist()
        observed = self._table.observed_at[:, column].tolist()
        return Load(
            **{
                name: Signal(value, at, _TOLD)
                for name, value, at in zip(PICK_FIELDS, values, observed, strict=True)
                if value == value  # NaN, unknown, is not equal to itself
            }
        )

    def __iter__(self) -> Iterator[str]:
        """Addresses, in the order of the membership."""
        return iter(self._column_of)

    def __len__(self) -> int:
        """How many endpoints."""
        return len(self._column_of)
