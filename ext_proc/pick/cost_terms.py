"""Cost terms by their names in the settings. CONTRIBUTING.md lists the steps to a new one.

Each term is seconds against an endpoint, below 0 for it. Seconds add up, and each term can be measured by
itself; ranks would have to be traded against each other in every situation again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from ext_proc.pick.backlog import power_of_two
from ext_proc.prompt.blocks import ends_in_bytes
from fleet.columns import fill_unknown, unknown_as_zero

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ext_proc.pick.context import TickContext
    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.request import PickRequest
    from fleet.endpoint import Locality
    from fleet.settings.picks import PickSettings, ScorerSettings

WORTH: Final = 0.5
"""The probability that an earlier holder still has the beginning of a prompt."""
LEADING_BYTES: Final = 4096
"""The beginning of a prompt that is remembered, see `ext_proc.prefix.leading`."""

PromptSeconds: TypeAlias = "Callable[[PickRequest, Forecast], NDArray[np.float64] | tuple[int, float] | None]"
"""The seconds for one prompt, by candidate, or one candidate with its seconds; None: no difference."""


class CostTerm(NamedTuple):
    """Seconds against each candidate of a tick."""

    fixed: NDArray[np.float64] | None = None
    """Equal for every prompt: computed once a tick."""
    by_prompt: PromptSeconds | None = None
    """For each prompt: a few operations over columns."""
    first_token: float = 0.0
    """Times the forecast's prefill ahead and cold prefill at its price."""
    load: float = 0.0
    """Times the forecast's load."""


def first_token(_context: TickContext) -> CostTerm:
    """The predicted time to first token: prefill ahead + cold prefill at its price."""
    return CostTerm(first_token=1.0)


def spare(context: TickContext) -> CostTerm:
    """The time that later, shorter requests lose when the endpoint with the shortest queue gets this one.

    With its cold work there, they wait up to `gain` longer, and at most as long as at the endpoint with the
    second shortest queue. That lasts until the queue has passed, or until they would have filled the gap:

        gain    = min(second, shortest + cold) - shortest
        seconds = requests * gain * min(shortest + gain / 2, gain / (2 * work))

    `requests` and `work` are those of a second, to all endpoints, with a lower power of two of cold bytes,
    and their cold seconds. So a long prompt joins a queue, and the last free endpoint stays free for short
    ones.
    """
    size, ends = len(context.candidates.addresses), ends_in_bytes(context.settings.block_bytes)
    if size < 2:
        return CostTerm()
    shorter = context.backlog.shorter()

    def seconds(request: PickRequest, forecast: Forecast) -> tuple[int, float] | None:
        queue = forecast.queue
        first = int(queue.argmin())
        others = queue.copy()
        others[first] = np.inf
        shortest, second = queue.item(first), others.item(others.argmin())
        cold_bytes = request.text_bytes - ends.item(forecast.matched.item(first))
        requests, work = shorter[power_of_two(cold_bytes)]
        if second <= shortest or not work:
            return None
        gain = min(second - shortest, forecast.cold.item(first))
        return first, size * requests * gain * min(shortest + gain / 2, gain / (2 * size * work))

    return CostTerm(by_prompt=seconds)


def decode_load(_context: TickContext) -> CostTerm:
    """The delay by requests in flight: every step of an engine decodes all of them."""
    return CostTerm(load=1.0)


def memory(context: TickContext) -> CostTerm:
    """Little KV cache left once this prompt is there; unknown use counts as the peers' mean.

        memory_pressure_seconds * clip((used + cold tokens / capacity - from) / (full - from), 0, 1)

    An engine admits a prompt when it has room for all of it, so a long one may wait for answers to end. An
    unknown capacity counts as endless.
    """
    cost, ends = context.settings.cost, ends_in_bytes(context.settings.block_bytes)
    used = fill_unknown(context.candidates.signal("memory_used_ratio"), 0.0)
    capacity = context.candidates.signal("kv_capacity_tokens") * cost.bytes_per_token
    share_per_byte = np.nan_to_num(1.0 / np.where(capacity > 0, capacity, np.inf))
    start, width = cost.memory_pressure_from, cost.memory_pressure_full - cost.memory_pressure_from
    # Without a width, the cost is a step at `from`.
    slope = 1.0 / max(width, 1e-9)
    most_used, most_per_byte = used.max().item(), share_per_byte.max().item()
    none, whole, at_whole = np.zeros(()), np.ones(()), np.array(cost.memory_pressure_seconds)
    if not most_per_byte:
        return CostTerm(np.clip((used - start) * slope, none, whole) * at_whole)
    in_use, per_byte = (used - start) * slope, share_per_byte * slope

    def seconds(request: PickRequest, forecast: Forecast) -> NDArray[np.float64] | None:
        if most_used + request.text_bytes * most_per_byte <= start:
            return None
        beyond = np.array(float(request.text_bytes)) - ends[forecast.matched]
        beyond *= per_byte
        beyond += in_use
        # np.clip takes twice as long for few numbers.
        np.minimum(np.maximum(beyond, none, out=beyond), whole, out=beyond)
        beyond *= at_whole
        return beyond

    return CostTerm(by_prompt=seconds)


def trust(context: TickContext) -> CostTerm:
    """Bad answers: distrust_seconds * max(1 - trust_ratio, error_ratio). Unknown is no evidence."""
    ratio, errors = context.candidates.signal("trust_ratio"), context.candidates.signal("error_ratio")
    distrust = np.clip(unknown_as_zero(np.fmax(1.0 - ratio, errors)), 0.0, 1.0)
    return CostTerm(context.settings.cost.distrust_seconds * distrust)


def pace(context: TickContext) -> CostTerm:
    """The time that a request takes there beyond the usual, see `ext_proc.pick.pace`."""
    if context.paces is None:
        return CostTerm()
    return CostTerm(context.paces.slow_seconds[context.candidates.rows])


def topology(context: TickContext) -> CostTerm:
    """The distance of an endpoint from the Envoys of this worker. An unknown locality is no evidence."""
    if not context.settings.locality.region and not context.settings.locality.zone:
        return CostTerm()
    localities = context.candidates.shape.localities
    seconds = np.array([_distance_seconds(place, context.settings) for place in localities])
    return CostTerm(seconds[context.candidates.rows])


def _distance_seconds(place: Locality, settings: PickSettings) -> float:
    here, cost = settings.locality, settings.cost
    if here.region and place.region and here.region != place.region:
        return cost.other_region_seconds
    if here.zone and place.zone and here.zone != place.zone:
        return cost.other_zone_seconds
    return 0.0


def adapter(context: TickContext) -> CostTerm:
    """Loading a LoRA adapter, without a recent request for it: adapter_seconds / (1 + uses)."""
    cost, candidates = context.settings.cost, context.candidates
    if not cost.adapter_seconds:
        return CostTerm()
    shares = candidates.shares()

    def seconds(request: PickRequest, _forecast: Forecast) -> NDArray[np.float64] | None:
        if not request.adapter:
            return None
        missing = context.adapters.missing(request.adapter, request.now - cost.adapter_memory_seconds)
        if missing is None:
            return None
        lacks = missing[candidates.rows]
        uses = context.adapters.uses(
            request.adapter,
            context.demand.at(request.now),
            float(shares[~lacks].sum()),
            shares.size,
            request.now,
        )
        return np.where(lacks, cost.adapter_seconds / (1.0 + uses), 0.0)

    return CostTerm(by_prompt=seconds)


def session(context: TickContext) -> CostTerm:
    """The session's last endpoint costs bonus_seconds less: it keeps the session while that is cheap."""
    candidates, bonus = context.candidates, context.settings.sessions.bonus_seconds

    def seconds(request: PickRequest, _forecast: Forecast) -> tuple[int, float] | None:
        if not request.session or (place := candidates.place(request.session)) is None:
            return None
        return place, -bonus

    return CostTerm(by_prompt=seconds)


def leading(context: TickContext) -> CostTerm:
    """Earlier holders of the prompt's beginning, if no endpoint is known to hold it any more.

    Engines may keep a prefix longer than the index does, in host memory or on a disk. So it is assumed there
    with the probability `WORTH`, and that part of its cold prefill is subtracted, at its price.
    """
    candidates = context.candidates

    def seconds(request: PickRequest, forecast: Forecast) -> NDArray[np.float64] | None:
        if not request.earlier_holders or not request.text_bytes:
            return None
        result = np.zeros(len(candidates.addresses))
        share = -WORTH * min(1.0, LEADING_BYTES / request.text_bytes)
        for address in request.earlier_holders:
            if (place := candidates.place(address)) is not None:
                result[place] = share * forecast.priced[place]
        return result

    return CostTerm(by_prompt=seconds)


COST_TERMS: Final[dict[str, Callable[[TickContext], CostTerm]]] = {
    "first_token": first_token,
    "decode_load": decode_load,
    "spare": spare,
    "memory": memory,
    "trust": trust,
    "pace": pace,
    "topology": topology,
    "adapter": adapter,
    "session": session,
    "leading": leading,
}
"""Each is bound once a tick."""


class Costs:
    """The weighted sum over some terms, bound to the candidates of one tick."""

    def __init__(self, context: TickContext, terms: Iterable[ScorerSettings]) -> None:
        self.fixed: NDArray[np.float64] = np.zeros(len(context.candidates.addresses))
        """The part that is equal for every prompt."""
        self._by_prompt: list[tuple[NDArray[np.float64] | None, PromptSeconds]] = []
        """Each with its weight, unless that is 1."""
        self._terms: dict[str, tuple[float, CostTerm]] = {}
        first_token = load = 0.0
        for entry in terms:
            if not entry.weight:
                continue
            self._terms[entry.name] = entry.weight, (term := COST_TERMS[entry.name](context))
            first_token += entry.weight * term.first_token
            load += entry.weight * term.load
            if term.fixed is not None:
                self.fixed = self.fixed + entry.weight * term.fixed
            if term.by_prompt is not None:
                weight = None if entry.weight == 1.0 else np.array(entry.weight)
                self._by_prompt.append((weight, term.by_prompt))
        self._load = None if load == 1.0 else np.array(load)
        self._first_token = None if first_token == 1.0 else np.array(first_token)

    def of(self, request: PickRequest, forecast: Forecast) -> NDArray[np.float64]:
        """Return the cost of a prompt on each candidate, in seconds."""
        cost: NDArray[np.float64] = forecast.queue + forecast.priced
        if self._first_token is not None:
            cost *= self._first_token
        cost += self.fixed
        cost += forecast.load if self._load is None else forecast.load * self._load
        for weight, by_prompt in self._by_prompt:
            seconds = by_prompt(request, forecast)
            if seconds is None:
                continue
            if isinstance(seconds, tuple):
                place, at_place = seconds
                cost[place] += at_place if weight is None else at_place * weight
            else:
                cost += seconds if weight is None else seconds * weight
        return cost

    def by_term(self, request: PickRequest, forecast: Forecast) -> dict[str, NDArray[np.float64]]:
        """Return the weighted seconds of each term by its name; a term that makes no difference is absent.

        It computes the terms of the prompt once more: for explanations only.
        """
        seconds: dict[str, NDArray[np.float64]] = {}
        for name, (weight, (fixed, by_prompt, first_token, load)) in self._terms.items():
            of_prompt = None if by_prompt is None else by_prompt(request, forecast)
            if isinstance(of_prompt, tuple):
                place, at_place = of_prompt
                of_prompt = np.zeros(self.fixed.size)
                of_prompt[place] = at_place
            parts = [part for part in (fixed, of_prompt) if part is not None]
            if first_token or load:
                parts.append(first_token * (forecast.queue + forecast.priced) + load * forecast.load)
            if parts:
                seconds[name] = weight * np.sum(parts, axis=0)
        return seconds
