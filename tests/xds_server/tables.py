"""Weights of signals that are stated by endpoint."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from testing.signals import Load, table_of
from xds_server.weights.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.endpoint import Membership
    from xds_server.weights.weigh import Weigher, WeightUpdate


def weigh(
    weigher: Weigher, membership: Membership, loads: Mapping[str, Load], now: float, *more: Any, **named: Any
) -> WeightUpdate:
    return weigher.weigh(membership, table_of(membership.addresses, loads), now, *more, **named)


def columns_of(loads: Sequence[Load], memory: Any = "kv", oldest: float = -inf) -> Columns:
    """One column each, in their order."""
    addresses = [str(number) for number in range(len(loads))]
    table = table_of(addresses, dict(zip(addresses, loads, strict=True)))
    return Columns.of(table.fresh(oldest), memory)
