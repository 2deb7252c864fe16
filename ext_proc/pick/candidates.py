"""Who can serve: a pool's endpoints as numpy columns. Built per membership and per tick, not per request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fleet.endpoint import Pool
    from fleet.load import Load


@dataclass(frozen=True)
class PoolShape:
    """What changes only with the membership: addresses, their hashes and who serves which model."""

    name: str
    addresses: tuple[str, ...]
    hashes: NDArray[np.uint64]
    """xxh3 of each address, for rendezvous hashing."""
    rows_by_model: Mapping[str, NDArray[np.intp]]
    """Model to positions; only models that the settings name, so that clients cannot grow it."""
    rows_of_any: NDArray[np.intp]
    """Endpoints that name no model and take every one."""
    only_model: str | None
    """The model, when every endpoint serves exactly this one."""

    @classmethod
    def of(cls, pool: Pool) -> PoolShape:
        """Index a pool."""
        addresses = tuple(endpoint.address for endpoint in pool.endpoints)
        any_model = [position for position, endpoint in enumerate(pool.endpoints) if not endpoint.models]
        rows: dict[str, list[int]] = {}
        for position, endpoint in enumerate(pool.endpoints):
            for model in endpoint.models:
                rows.setdefault(model, []).append(position)
        served = {frozenset(endpoint.models) for endpoint in pool.endpoints}
        common = next(iter(served)) if len(served) == 1 else frozenset()
        return cls(
            name=pool.name,
            addresses=addresses,
            hashes=np.array([xxh3_64_intdigest(address.encode()) for address in addresses], np.uint64),
            rows_by_model={
                model: np.array(sorted({*positions, *any_model}), np.intp)
                for model, positions in rows.items()
            },
            rows_of_any=np.array(any_model, np.intp),
            only_model=next(iter(common)) if len(common) == 1 else None,
        )

    def model_of(self, named: str | None, *, complete: bool) -> str | None:
        """Return the model that a request means here, None when that is not certain.

        A body that names none means the pool's only model. In a cut body the name may follow later, so
        endpoints that take every model are no answer there.
        """
        if named is not None:
            return named
        if self.only_model is not None:
            return self.only_model
        return "" if complete else None

    def rows(self, model: str) -> NDArray[np.intp]:
        """Positions of the endpoints that serve `model`; empty for one that nobody serves."""
        return self.rows_by_model.get(model, self.rows_of_any)

    def names(self, model: str | None) -> bool:
        """Whether an endpoint names `model` as its own."""
        return model in self.rows_by_model


@dataclass(frozen=True)
class LoadColumns:
    """A pool's signals at one tick, in the pool's order. NaN is unknown."""

    weights: NDArray[np.float64]
    memory_used_ratio: NDArray[np.float64]
    queue_depth: NDArray[np.float64]
    running: NDArray[np.float64]
    prefill_tokens_per_second: NDArray[np.float64]
    unreachable: NDArray[np.bool_]
    in_flight_elsewhere: NDArray[np.float64]
    """Requests in flight by other workers; 0 where none is told of."""

    @classmethod
    def of(
        cls,
        shape: PoolShape,
        loads: Mapping[str, Load],
        weights: Mapping[str, int],
        elsewhere: Mapping[str, int],
    ) -> LoadColumns:
        """Read the loads; stale signals are the caller's to remove."""
        nan = float("nan")
        table = np.full((len(shape.addresses), 6), nan)
        for position, address in enumerate(shape.addresses):
            table[position, 0] = weights.get(address, nan)
            load = loads.get(address)
            if load is None:
                continue
            signals = (
                load.memory_used_ratio,
                load.queue_depth,
                load.running,
                load.prefill_tokens_per_second,
                load.reachable,
            )
            table[position, 1:] = [nan if held is None else held.value for held in signals]
        return cls(
            weights=table[:, 0],
            memory_used_ratio=table[:, 1],
            queue_depth=table[:, 2],
            running=table[:, 3],
            prefill_tokens_per_second=table[:, 4],
            unreachable=table[:, 5] == 0,
            in_flight_elsewhere=np.array([elsewhere.get(address, 0) for address in shape.addresses], float),
        )


@dataclass(frozen=True)
class Candidates:
    """The endpoints that may be chosen for one model, as columns of equal length. NaN is unknown."""

    addresses: tuple[str, ...]
    rows: NDArray[np.intp] | slice
    """Where each stands in the pool's columns; a full slice when all do, which costs no copy."""
    position: Mapping[str, int]
    hashes: NDArray[np.uint64]
    weights: NDArray[np.float64]
    memory_used_ratio: NDArray[np.float64]
    queue_depth: NDArray[np.float64]
    prefill_tokens_per_second: NDArray[np.float64]
    in_flight_elsewhere: NDArray[np.float64]
    load_known: bool
    """Whether memory, queue or running is known for any of them."""

    @classmethod
    def of(cls, shape: PoolShape, columns: LoadColumns, model: str) -> Candidates | None:
        """Those that serve `model` and can be reached; all that serve it when none can. None: nobody does."""
        serving = shape.rows(model)
        if not serving.size:
            return None
        reachable = serving[~columns.unreachable[serving]]
        chosen = reachable if reachable.size else serving
        rows = slice(None) if chosen.size == len(shape.addresses) else chosen
        addresses = tuple(shape.addresses[position] for position in chosen.tolist())
        memory, queue = columns.memory_used_ratio[rows], columns.queue_depth[rows]
        known = (memory, queue, columns.running[rows])
        return cls(
            addresses=addresses,
            rows=rows,
            position={address: position for position, address in enumerate(addresses)},
            hashes=shape.hashes[rows],
            weights=columns.weights[rows],
            memory_used_ratio=memory,
            queue_depth=queue,
            prefill_tokens_per_second=columns.prefill_tokens_per_second[rows],
            in_flight_elsewhere=columns.in_flight_elsewhere[rows],
            load_known=any(not np.isnan(column).all() for column in known),
        )


def neutral(column: NDArray[np.float64], default: float) -> NDArray[np.float64]:
    """Fill what is unknown with the mean of the known peers, or with `default` when all is unknown."""
    unknown = np.isnan(column)
    if not unknown.any():
        return column
    mean = default if unknown.all() else float(column[~unknown].mean())
    return np.where(unknown, mean, column)
