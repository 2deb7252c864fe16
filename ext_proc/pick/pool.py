"""One pool as picks see it: its shape, its history, and profiles bound to this tick's signals."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ext_proc.pick.adapters import Adapters
from ext_proc.pick.backlog import Backlog
from ext_proc.pick.caching import Caching
from ext_proc.pick.candidates import PoolShape
from ext_proc.pick.context import FilterContext, TickContext
from ext_proc.pick.demand import Demand
from ext_proc.pick.filters import filtered
from ext_proc.pick.first_token import STEP_TOKENS, SentRequest
from ext_proc.pick.profile import SchedulerProfile
from ext_proc.pick.quota import Quota
from ext_proc.pick.request import WINDOW_SECONDS
from ext_proc.pick.rows import sources_of
from ext_proc.prompt.blocks import units
from ext_proc.prompt.length import LEAST_BYTES, least_tokens
from fleet.columns import unknown_as_zero
from fleet.ranks import address_of_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ext_proc.pick.candidates import LoadColumns
    from ext_proc.pick.first_token import Answers
    from ext_proc.pick.pace import Judgement
    from ext_proc.pick.result import Decision
    from ext_proc.pick.subset import Subset
    from ext_proc.prompt.decode import Prompt
    from fleet.endpoint import Pool
    from fleet.settings.picks import PickSettings

FEW_OTHERS: Final = 0.1
"""Of our own requests: fewer requests of others may be ours, counted late."""
PUT_OFF: Final = 2
"""Further intervals until the trial of an endpoint that has refused: an engine's 4xx is not retried."""
_MOST_PROFILES: Final = 64
"""Profiles of models and subsets in one tick: a gateway may send any number of subsets."""


class PoolState:
    """Rebuilt in parts: shape per membership, columns per tick, a profile at its first use in a tick."""

    def __init__(self, pool: Pool, ranks: int = 1) -> None:
        """`ranks` is the number of data-parallel ranks of each endpoint that picks choose among."""
        self.pool = pool
        self.shape = PoolShape.of(pool, ranks)
        size = len(self.shape.addresses)
        self.backlog = Backlog(self.shape.addresses)
        self.adapters = Adapters(size, WINDOW_SECONDS)
        self.caching = Caching(size)
        self._quota = Quota(size)
        self._demands: dict[str, Demand] = {}
        self._columns: LoadColumns | None = None
        self._settings: PickSettings | None = None
        self._shared = False
        self._paces: Judgement | None = None
        self._profiles: dict[tuple[str, Subset | None, float], SchedulerProfile | None] = {}
        self.context_lengths: tuple[float, ...] = ()
        """Known context lengths in tokens, in order; empty: all endpoints have the same, or none is known."""

    def moved_to(self, pool: Pool, in_flight: Callable[[str], int], ranks: int = 1) -> PoolState:
        """Return the state for another membership; endpoints that stay keep their history."""
        moved = PoolState(pool, ranks)
        addresses = moved.shape.addresses
        sources = sources_of(addresses, self.shape.position)
        moved.backlog = self.backlog.moved_to(addresses, sources, in_flight)
        moved.adapters = self.adapters.moved_to(sources)
        moved.caching = self.caching.moved_to(sources)
        moved._quota = self._quota.moved_to(sources)
        moved._demands = {name: self._demands[name] for name in self._demands if moved.shape.names(name)}
        return moved

    def refresh(
        self, columns: LoadColumns, settings: PickSettings, now: float, *, shared: bool = False
    ) -> Answers | None:
        """Take over a tick's signals; return the first tokens in them, None if none is ours.

        `shared`: other workers publish their picks.
        """
        self._columns, self._settings, self._shared = columns, settings, shared
        backlog, cost = self.backlog, settings.cost
        self.context_lengths = _unequal(columns.signal("context_tokens"))
        self._quota.follow(columns.overridden, columns.weights)
        self.caching.learn(columns.signal("prefix_caching"), columns.signal("prefix_hit_ratio"), now)
        backlog.fade(now)
        rates, prefilling = columns.signal("prefill_tokens_per_second"), columns.signal("prefilling_mean")
        backlog.prefill.learn(rates, prefilling, now)
        in_engine = columns.signal("running") + unknown_as_zero(columns.signal("queue_depth"))
        backlog.learn_others(in_engine, columns.in_flight_elsewhere, now)
        backlog.take_elsewhere(columns.in_flight_elsewhere, columns.prefill_elsewhere, now)
        totals = np.array([columns.signal("first_tokens_total"), columns.signal("first_token_seconds_total")])
        others = columns.in_flight_elsewhere + backlog.others_in_engine
        alone = others <= FEW_OTHERS * (backlog.in_flight + 1.0)
        read_at = columns.signals.at("first_tokens_total")
        answers = backlog.first_tokens.learn(totals, read_at, alone, now)
        if answers is not None:
            prefill = backlog.prefill.rates(slice(None), cost.prefill_tokens_per_second, cost.bytes_per_token)
            backlog.first_tokens.learn_slowness(prefill, cost.attention_per_token)
        self._paces = backlog.pace.judge(backlog.in_flight, now, cost.slow_from_ratio, cost.slow_most_seconds)
        self._profiles.clear()
        return answers

    @property
    def columns(self) -> LoadColumns | None:
        """The newest tick's signals; None before the first."""
        return self._columns

    def too_short(self, prompt: Prompt) -> float:
        """Return the longest of the unequal context lengths that cannot hold a prompt; 0: none is known."""
        lengths = self.context_lengths
        if len(prompt.text) < LEAST_BYTES * lengths[0]:
            return 0.0
        fewer = bisect_left(lengths, least_tokens(prompt))
        return lengths[fewer - 1] if fewer else 0.0

    def profile(
        self, model: str, subset: Subset | None = None, too_short: float = 0.0
    ) -> SchedulerProfile | None:
        """Return the profile for the allowed endpoints that serve `model`; None if there is none.

        Endpoints with a context of `too_short` tokens or less are left out, unless all would be.
        """
        # Models that no endpoint names share one entry, so that clients cannot grow the tables.
        key = model if model in self.shape.rows_by_model else "", subset, too_short
        try:
            return self._profiles[key]
        except KeyError:
            pass
        if self._columns is None or self._settings is None:
            return None
        if len(self._profiles) >= _MOST_PROFILES:
            self._profiles.clear()
        settings = self._settings
        candidates = filtered(
            FilterContext(self.shape, self._columns, settings, key[0], subset, too_short), settings.filters
        )
        self._profiles[key] = profile = (
            None
            if candidates is None
            else SchedulerProfile(
                TickContext(
                    candidates,
                    self.backlog,
                    self.adapters,
                    self.demand(model),
                    self._paces,
                    settings,
                    0.0 if self._shared else self.backlog.apart_share,
                    _load_weight(settings) * settings.cost.in_flight_seconds,
                    self._quota if self._quota.active else None,
                )
            )
        )
        return profile

    def profiles_apart(self, subset: Subset | None = None) -> Iterator[SchedulerProfile]:
        """Return a profile for each model that a request may mean, one for models with equal endpoints.

        Empty if there is none, or too many to compare.
        """
        profiles = (self.profile(model, subset) for model in self.shape.models_apart)
        return (profile for profile in profiles if profile is not None)

    def by_endpoint(self, decision: Decision) -> Decision:
        """Return a decision among ranks as one among endpoints, each once, with the rank of the first."""
        assert self._columns is not None
        assert self._settings is not None
        result, most = decision.result, self._settings.fallbacks + 1
        first = result.endpoints[0]
        endpoints = tuple(dict.fromkeys(map(address_of_rank, result.endpoints)))[:most]
        rank = first.removeprefix(f"{endpoints[0]}#") if self._columns.names_ranks else ""
        result = msgspec.structs.replace(result, endpoints=endpoints, rank=rank, rank_name=first)
        return msgspec.structs.replace(decision, result=result)

    def demand(self, model: str) -> Demand:
        """Return the demand for a model."""
        key = model if model in self.shape.rows_by_model else ""
        demand = self._demands.get(key)
        if demand is None:
            demand = self._demands[key] = Demand(WINDOW_SECONDS)
        return demand

    def book(self, decision: Decision) -> tuple[float, float, SentRequest | None]:
        """Apply a decision that is final.

        Return the requests for its model, this one included, its seconds of prefill, and what is to be
        reported by `ended`; None: nothing.
        """
        request, result = decision.request, decision.result
        assert request is not None
        first = result.rank_name or result.endpoints[0]
        row, now = self.shape.position[first], request.now
        if (profile := self.profile(request.model, request.subset, request.too_short)) is not None:
            profile.book(decision)
        total = self.demand(request.model).add(now)
        cold_share = 1.0 - decision.result.matched_share if request.blocks else 0.0
        cold_bytes = work = length = float(request.text_bytes)
        seconds, expected, sent = decision.cold_seconds, decision.expected, None
        if (settings := self._settings) is not None:
            warm_bytes = units(request.matched.item(row)) * settings.block_bytes
            self.caching.sent(row, warm_bytes, request.text_bytes, now)
            cold_bytes -= warm_bytes
            cost = settings.cost
            cold = cold_bytes / cost.bytes_per_token
            pairs = cold * (length - cold_bytes / 2) / cost.bytes_per_token
            work = cold_bytes + cost.attention_per_token * cost.bytes_per_token * pairs
            if expected is not None:
                sent = SentRequest(now, expected, cold, pairs)
                self.backlog.first_tokens.sent(row, sent)
                # Behind others it shares their steps.
                seconds += expected.step * (min(1.0, cold / STEP_TOKENS) if expected.queue else 1.0)
        self.backlog.add(first, seconds, now, cold_bytes, cold_share, work)
        if request.adapter:
            self.adapters.note(request.adapter, row, now, total)
        return total, seconds, sent

    def ended(self, address: str, sent: SentRequest, now: float) -> None:
        """Note the end of a request that was booked for an endpoint."""
        row, backlog = self.shape.position.get(address), self.backlog
        # The columns may have become those of ranks meanwhile.
        if row is not None and backlog.first_tokens.ended(row, sent, now):
            mean = sent.expected.mean
            # Those behind it wait no longer for the part of its prompt that is not computed.
            backlog.free_at[row] -= min(mean - sent.expected.queue, sent.at + mean - now)

    def put_off_trial(self, address: str, now: float) -> None:
        """Let an endpoint that has just refused a request wait longer for its next trial."""
        if self._settings is not None:
            after = PUT_OFF * self._settings.trial_interval_seconds
            for name in self.shape.columns_of(address):
                self.backlog.tried_at[self.shape.position[name]] = now + after

    def forget(self, address: str) -> None:
        """Forget an engine's adapters, times and caching: it restarted."""
        for position in map(self.shape.position.__getitem__, self.shape.columns_of(address)):
            self.caching.forget(position)
            self.adapters.forget(position)
            self.backlog.prefill.forget(position)
            self.backlog.first_tokens.forget(position)


def _unequal(lengths: NDArray[np.float64]) -> tuple[float, ...]:
    unlike = np.unique(lengths)  # NaN, once, for all that are unknown
    return tuple(unlike[~np.isnan(unlike)].tolist()) if unlike.size > 1 else ()


def _load_weight(settings: PickSettings) -> float:
    """Return by how much a second of load counts; where load makes no difference at all, 1."""
    return sum(entry.weight for entry in settings.scorers if entry.name == "decode_load") or 1.0
