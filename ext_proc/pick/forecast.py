"""The seconds that a prompt would take on each endpoint: the facts behind the cost terms.

For a prompt of `text_bytes` bytes, on an endpoint that holds `matched` leading blocks of it:

    cold  = (token + pair * mean context) * tokens of the rest                    (see `first_token`)
    queue = max(free_at - now, queue_depth * mean_cold_seconds)
    load  = in_flight * in_flight_seconds     (ours, other workers', and the engines' own beyond these)

An endpoint that answers implausibly fast refuses all requests, and so holds none. Ours count there at least
as `Pace` estimates them, `queue_depth` and all others' requests at least as its peers' mean.

The predicted time to first token is `queue + cold` and one or one and a half steps, see `first_token`. `load`
is what a request costs the others. `free_at` is our own estimate (see `Backlog`), `queue_depth` the engine's
gauge; the larger of the two counts, because each misses requests of the other. Unknown signals count as the
known peers' mean. `priced` is `cold` with the price of cold work on each of its blocks (see `demand`).
The price rises with the queues, by the delay that a second of cold work causes:

    price = max(cold_price, 1 + min(delayed * median(queue), MOST_DELAYED))
    delayed = arrivals / (1 - busy_share)

`delayed * queue` are the later requests that wait for it at one endpoint: the derivative, by the work, of the
total delay of an M/G/1 queue. `arrivals` are its requests a second, `busy_share` its share of time in prefill
(see `Backlog`). Source: Hyytia, Penttinen and Aalto, "Size- and state-aware dispatching problem with
queue-specific job sizes", European Journal of Operational Research (2012). The median is the queue that most
endpoints have: with one long queue, prompts leave it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ext_proc.pick.demand import priced_bytes, prices
from ext_proc.pick.first_token import ARRIVES_AT, Expected, deviation
from ext_proc.pick.request import WINDOW_SECONDS
from ext_proc.prompt.blocks import ends_in_bytes
from fleet.columns import fill_unknown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.context import TickContext
    from ext_proc.pick.request import PickRequest


MOST_DELAYED: Final = 19.0
"""Of later requests, in the price of cold work."""
_NONE: Final = np.zeros(())


class Forecast(msgspec.Struct, frozen=True, gc=False):
    """One number a candidate each but for the price; in seconds but for blocks and price."""

    matched: NDArray[np.int64]
    cold: NDArray[np.float64]
    priced: NDArray[np.float64]
    queue: NDArray[np.float64]
    load: NDArray[np.float64]
    price: float
    """Of cold work without excess demand."""


class Forecaster:
    """Bound to the candidates of one tick. What does not depend on the prompt is computed once."""

    def __init__(self, context: TickContext) -> None:
        candidates, backlog, cost = context.candidates, context.backlog, context.settings.cost
        rows = self._rows = candidates.rows
        self._whole = isinstance(rows, slice)
        self._backlog = backlog
        self._demand = context.demand
        # As arrays without an axis, numbers take half the time of Python's in operations over columns.
        self._text_bytes, self._now, self._each = np.zeros(()), np.zeros(()), np.zeros(())
        self._block_bytes = context.settings.block_bytes
        self._ends = ends_in_bytes(self._block_bytes)
        self._cold_price = cost.cold_price
        self._delayed_per_second = backlog.delayed_per_second
        self._in_flight_seconds = np.array(cost.in_flight_seconds)
        rates = backlog.prefill.rates(rows, cost.prefill_tokens_per_second, cost.bytes_per_token)
        first_tokens = backlog.first_tokens
        self._step, token, pair = first_tokens.coefficients(rows, rates, cost.attention_per_token).T
        self._seconds_per_byte: NDArray[np.float64] = token / cost.bytes_per_token
        self._pool_over_own: NDArray[np.float64] | None = None
        """None: all are equally fast."""
        if token.min() < token.max():
            self._pool_over_own = token.mean() / token
        self._half_attention: NDArray[np.float64] = pair / (2.0 * cost.bytes_per_token**2)
        """Seconds by byte squared: a cold byte takes so much longer for each byte before or in the prompt."""
        self._quantiles = first_tokens.quantiles
        depth = fill_unknown(candidates.signal("queue_depth"), 0.0)
        others = candidates.in_flight_elsewhere + backlog.others_in_engine[rows]
        self._least_in_flight: NDArray[np.float64] | None = None
        if context.paces is not None and (least := context.paces.least_in_flight[rows]).any():
            self._least_in_flight = least
            depth, others = _as_peers(depth, least > 0), _as_peers(others, least > 0)
        depth = _evident(depth, backlog.in_flight[rows], others)
        self._depth = depth if depth.any() else None
        self._load_of_others = others * cost.in_flight_seconds if others.any() else None
        self._shares = candidates.shares()
        self._least_share = float(self._shares.min())
        # Each worker counts the demand for itself.
        self._workers = 1.0 / (1.0 - backlog.elsewhere_share)

    def of(self, request: PickRequest) -> Forecast:
        """Forecast one prompt."""
        matched = request.matched if self._whole else request.matched[self._rows]
        text_bytes = self._text_bytes
        text_bytes[()] = request.text_bytes
        warm_bytes: NDArray[np.float64] = self._ends[matched]
        cold_bytes = text_bytes - warm_bytes
        # The mean context of the cold bytes is half of this.
        seconds_per_byte = warm_bytes
        seconds_per_byte += text_bytes
        seconds_per_byte *= self._half_attention
        seconds_per_byte += self._seconds_per_byte
        cold: NDArray[np.float64] = cold_bytes * seconds_per_byte
        queue = self.queue(request.now, cold)
        price = self._price(queue)
        bytes_at_price = self._priced(request, matched, price)
        # Own time at the endpoint's own speed, others' delay at the pool's: they may go elsewhere.
        other = self._pool_over_own
        if bytes_at_price is None:
            factor = np.array(price) if other is None else 1.0 + (price - 1.0) * other
            return Forecast(matched, cold, cold * factor, queue, self.load(), price)
        if other is not None:
            extra = np.maximum(bytes_at_price - cold_bytes, _NONE)
            bytes_at_price -= extra
            bytes_at_price += extra * other
        bytes_at_price *= seconds_per_byte
        return Forecast(matched, cold, bytes_at_price, queue, self.load(), price)

    def mean_prefill_seconds(self, text_bytes: int, cold_bytes: float) -> float:
        """Return what a prompt's cold part takes in the candidates' mean."""
        context = 2.0 * text_bytes - cold_bytes
        return float((cold_bytes * (self._seconds_per_byte + self._half_attention * context)).mean())

    def expected(self, forecast: Forecast, place: int) -> Expected:
        """Return the predicted time to first token on one candidate."""
        busy = self._backlog.in_flight[self._rows].item(place) > 0
        step, queue = self._step.item(place), forecast.queue.item(place)
        steps = 1.0 + ARRIVES_AT if busy else 1.0
        mean = queue + forecast.cold.item(place) + steps * step
        spread = deviation(step, queue, mean)
        median, p90 = self._quantiles
        return Expected(
            max(mean + median * spread, 0.0), max(mean + p90 * spread, 0.0), mean, spread, queue, step, steps
        )

    def queue(self, now: float, cold: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
        """Seconds of prefill ahead; before the first pick, waiting requests count like `cold`."""
        backlog = self._backlog
        self._now[()] = now
        free_at = backlog.free_at if self._whole else backlog.free_at[self._rows]
        ahead: NDArray[np.float64] = free_at - self._now
        if self._depth is None:
            return np.maximum(ahead, _NONE, out=ahead)
        if (mean := backlog.mean_cold_seconds) is not None:
            self._each[()] = mean
            cold = self._each
        return np.maximum(ahead, self._depth * cold, out=ahead)

    def load(self) -> NDArray[np.float64]:
        """Seconds that the requests in flight add."""
        in_flight = self._backlog.in_flight
        ours = in_flight if self._whole else in_flight[self._rows]
        if self._least_in_flight is not None:
            ours = np.maximum(ours, self._least_in_flight)
        load: NDArray[np.float64] = ours * self._in_flight_seconds
        return load if self._load_of_others is None else load + self._load_of_others

    def _price(self, queue: NDArray[np.float64]) -> float:
        """Return the price of cold work; the median is looked for only where it can matter."""
        most = 1.0 + self._delayed_per_second * queue.item(queue.argmax())
        if most <= self._cold_price:
            return self._cold_price
        middle, ordered = (queue.size - 1) // 2, queue.copy()
        ordered.partition(middle)
        delayed = self._delayed_per_second * ordered.item(middle)
        return max(self._cold_price, 1.0 + min(delayed, MOST_DELAYED))

    def _priced(
        self, request: PickRequest, matched: NDArray[np.int64], price: float
    ) -> NDArray[np.float64] | None:
        """Return the priced bytes of a prompt with a hot part; None: all of it has the full price."""
        blocks, count, popularity = request.blocks, self._shares.size, request.popularity
        if popularity is None or not blocks or count == 1:
            return None
        now = request.now
        total = self._demand.at(now)
        # The highest demand for a block that some endpoint lacks: if it is no more than the lightest
        # endpoint's fair share, no demand is in excess.
        edges = request.edges if self._whole else None
        by_all, most = edges or (int(matched.min()), int(matched.max()))
        if by_all >= len(blocks) or total * self._workers < count:
            return None
        rate, among = popularity.rate_and_total(blocks, by_all, now, total)
        if among * self._workers < count or WINDOW_SECONDS * rate <= among * self._least_share:
            return None
        counts, totals = popularity.rates_and_totals(blocks, now, {by_all, most}, total)
        counts *= np.array(self._workers * WINDOW_SECONDS)
        if self._workers > 1.0:
            totals *= np.array(self._workers)
        each = prices(price, counts, totals, matched, self._shares)
        left = priced_bytes(each, price, self._ends, request.text_bytes)
        priced: NDArray[np.float64] = left[matched]
        return priced


def _as_peers(column: NDArray[np.float64], quick: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Raise endpoints that answer implausibly fast to their peers' mean; if all do, change nothing."""
    if quick.all():
        return column
    return np.where(quick, np.maximum(column, column[~quick].mean()), column)


def _evident(
    depth: NDArray[np.float64], ours: NDArray[np.float64], others: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how many requests wait in an engine beyond what chance and the gauge's age explain.

    `free_at` knows when each of ours begins, so their number tells little: only what is above twice the
    standard deviation of a Poisson count does. Others' requests count in full.
    """
    of_ours = depth * ours / np.maximum(ours + others, 1e-9)
    evident: NDArray[np.float64] = np.maximum(depth - 2.0 * np.sqrt(of_ours), 0.0)
    return evident
