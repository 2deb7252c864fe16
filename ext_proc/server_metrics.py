"""What the gRPC service counts and logs."""

from __future__ import annotations

import logging
import traceback
from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from ext_proc.pick.result import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from ext_proc.pick.result import PickResult

log = logging.getLogger(__name__)

FAULT_LOG_INTERVAL_SECONDS: Final = 60.0
_PICK_BUCKETS: Final = (
    25e-6, 50e-6, 100e-6, 200e-6, 400e-6, 800e-6,
    1.6e-3, 3.2e-3, 6.4e-3, 12.8e-3, 25.6e-3, 51.2e-3, 0.1, 0.25,
)  # fmt: skip


class Served(StrEnum):
    """Which endpoint served, as a gateway reports it, compared with the result."""

    FIRST = "first"
    FALLBACK = "fallback"
    """Another one of the pick's list."""
    ELSEWHERE = "elsewhere"
    UNPICKED = "unpicked"
    """There was no pick."""

    @classmethod
    def of(cls, address: str, result: PickResult | None) -> Served:
        """Compare an address with a result."""
        if result is None or not result.endpoints:
            return cls.UNPICKED
        if address == result.endpoints[0]:
            return cls.FIRST
        return cls.FALLBACK if address in result.endpoints else cls.ELSEWHERE


class PickCounts(Collector):
    """Decisions by reason, and how long they took: plain numbers; a scrape makes samples of them."""

    def __init__(self) -> None:
        self.reasons = dict.fromkeys(Reason, 0)
        self._buckets = [0] * (len(_PICK_BUCKETS) + 1)
        self._seconds = 0.0

    def note(self, reason: Reason, seconds: float) -> None:
        """Count a decision; `seconds` is 0 where nothing was read."""
        self.reasons[reason] += 1
        if seconds:
            self._buckets[bisect_left(_PICK_BUCKETS, seconds)] += 1
            self._seconds += seconds

    def describe(self) -> Iterator[Metric]:
        """Yield the families, so that a registry finds them by name."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        picks = CounterMetricFamily("warmroute_picks", "Decisions by reason", labels=["reason"])
        for reason, count in self.reasons.items():
            picks.add_metric([reason.value], count)
        yield picks
        bounds = [*map(str, _PICK_BUCKETS), "+Inf"]
        yield HistogramMetricFamily(
            "warmroute_pick_duration_seconds",
            "Reading a body, looking its prefix up and choosing",
            buckets=list(zip(bounds, accumulate(self._buckets), strict=True)),
            sum_value=self._seconds,
        )


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the service counts. Children stand ready, because label look-ups cost on the hot path."""

    picks: PickCounts
    served: Mapping[Served, Any]
    faults: Counter
    unreadable: Counter
    unread: Counter
    streams: Any
    buffered_bytes: Any

    @classmethod
    def on(cls, registry: CollectorRegistry) -> Metrics:
        """Register with a registry."""
        picks = PickCounts()
        registry.register(picks)
        served = Counter(
            "warmroute_served_told",
            "Responses of which a gateway told who served them",
            ["outcome"],
            registry=registry,
        )
        return cls(
            picks=picks,
            served={outcome: served.labels(outcome=outcome.value) for outcome in Served},
            faults=Counter(
                "warmroute_ext_proc_faults", "Faults of our own, by exception", ["kind"], registry=registry
            ),
            unreadable=Counter(
                "warmroute_ext_proc_unreadable_messages",
                "Messages of Envoy that cannot be decoded: mostly header bytes of clients that are no UTF-8",
                registry=registry,
            ),
            unread=Counter(
                "warmroute_ext_proc_unread_streams",
                "Streams that were ended because their client did not read replies with bodies, or did not"
                " finish its messages",
                registry=registry,
            ),
            streams=Gauge("warmroute_ext_proc_streams", "Open ext_proc streams", registry=registry),
            buffered_bytes=Gauge(
                "warmroute_ext_proc_held_bytes",
                "Bodies held in full duplex",
                registry=registry,
            ),
        )


class Faults:
    """Counts each fault and logs one a minute and kind, by place and type: its text may hold a prompt."""

    def __init__(self, counter: Counter, clock: Callable[[], float]) -> None:
        self._counter = counter
        self._clock = clock
        self._logged: dict[str, float] = {}

    def __enter__(self) -> None:
        """Begin work whose faults go no further."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if isinstance(error, Exception):
            self.note(error)
            return True
        return False

    def note(self, error: Exception) -> None:
        """Count and perhaps log."""
        kind = type(error).__name__
        self._counter.labels(kind=kind).inc()
        now = self._clock()
        if now - self._logged.get(kind, float("-inf")) < FAULT_LOG_INTERVAL_SECONDS:
            return
        self._logged[kind] = now
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
        log.error("fault, answered unrouted: %s at %s", kind, place)
