"""vLLM's metrics page. Names as of vLLM 0.32, with those of 0.11 and older where they differ.

An endpoint that runs several engines (data parallel) exports one series an engine. The rules for them:
counts, capacities and counters are summed, histograms are added bucket by bucket, and memory in use is the
highest of the engines', because a request meets the limit of one engine and not of their mean.
"""

from __future__ import annotations

import logging
from math import isfinite, nan
from typing import TYPE_CHECKING, Final

from fleet.load import Load, signal
from xds_server.signals.histogram import HistogramWindow, RatioWindow
from xds_server.signals.page import Sample, read_samples

if TYPE_CHECKING:
    from collections.abc import Hashable

    from fleet.settings import SignalSettings

_log = logging.getLogger(__name__)

_SOURCE: Final = "scrape"
_QUANTILE: Final = 0.99

_USAGE: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_WAITING: Final = ("vllm:num_requests_waiting",)
_RUNNING: Final = ("vllm:num_requests_running",)
_FIRST_TOKEN: Final = ("vllm:time_to_first_token_seconds_bucket",)
_HITS: Final = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
_QUERIES: Final = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
_PREFILL_TOKENS: Final = ("vllm:request_prefill_kv_computed_tokens_sum",)
_PREFILL_SECONDS: Final = ("vllm:request_prefill_time_seconds_sum",)
_CONFIG: Final = ("vllm:cache_config_info",)
_STARTED: Final = "process_start_time_seconds"

_WANTED: Final = frozenset(
    (
        *_USAGE,
        *_WAITING,
        *_RUNNING,
        *_FIRST_TOKEN,
        *_HITS,
        *_QUERIES,
        *_PREFILL_TOKENS,
        *_PREFILL_SECONDS,
        *_CONFIG,
        _STARTED,
    )
)

_Samples = dict[str, list[Sample]]


class VllmReader:
    """Reads one endpoint's pages, one after the other."""

    def __init__(self, address: str, settings: SignalSettings) -> None:
        self.malformed_lines = 0
        self._address = address
        window = settings.latency_window_seconds
        self._first_token = HistogramWindow(window)
        self._hits = RatioWindow(window)
        self._prefill = RatioWindow(window)
        self._warned: set[str] = set()

    def read(self, page: bytes, now: float) -> Load:
        """Turn a page into a load; a metric that is missing or makes no sense is unknown."""
        samples, self.malformed_lines = read_samples(page, _WANTED)
        by_name: _Samples = {}
        for sample in samples:
            by_name.setdefault(sample.name, []).append(sample)
        # A new process has new counters, even where they have outgrown the old ones' values already.
        process = by_name[_STARTED][0].value if _STARTED in by_name else None
        hit_ratio = self._ratio(by_name, self._hits, _HITS, _QUERIES, now, process)
        prefill_rate = self._ratio(by_name, self._prefill, _PREFILL_TOKENS, _PREFILL_SECONDS, now, process)
        values = {
            "memory_used_ratio": _highest(self._series(by_name, _USAGE)),
            "queue_depth": _total(self._series(by_name, _WAITING)),
            "running": _total(self._series(by_name, _RUNNING)),
            "latency_p99_seconds": self._latency(by_name, now, process),
            "prefix_hit_ratio": None if hit_ratio is None else min(hit_ratio, 1.0),
            "kv_capacity_tokens": _capacity(self._series(by_name, _CONFIG)),
            "prefill_tokens_per_second": prefill_rate,
        }
        return Load(**{name: signal(value, now, _SOURCE) for name, value in values.items()})

    def _series(self, by_name: _Samples, names: tuple[str, ...]) -> list[Sample]:
        """Return the series of the first name that the page has; warn once when it has none."""
        for name in names:
            if name in by_name:
                return by_name[name]
        if names[0] not in self._warned:
            self._warned.add(names[0])
            _log.warning("%s: no metric %s; what it tells is unknown", self._address, " or ".join(names))
        return []

    def _latency(self, by_name: _Samples, now: float, process: float | None) -> float | None:
        series = self._series(by_name, _FIRST_TOKEN)
        if not series:
            return None
        buckets: dict[float, float] = {}
        for sample in series:
            bound = _number(sample.labels.get("le"))
            if bound == bound:  # not NaN
                buckets[bound] = buckets.get(bound, 0.0) + sample.value
        self._first_token.observe(buckets, now, (process, _engines(series)))
        return self._first_token.quantile(_QUANTILE, now)

    def _ratio(
        self,
        by_name: _Samples,
        window: RatioWindow,
        part: tuple[str, ...],
        whole: tuple[str, ...],
        now: float,
        process: float | None,
    ) -> float | None:
        parts, wholes = self._series(by_name, part), self._series(by_name, whole)
        if not parts or not wholes:
            return None
        shape = (process, _engines(parts), _engines(wholes))
        window.observe(_total(parts) or 0.0, _total(wholes) or 0.0, now, shape)
        return window.ratio(now)


def _engines(series: list[Sample]) -> Hashable:
    """What was added up: when an engine's series comes or goes, a sum's jump is no growth."""
    return frozenset(
        tuple(sorted((key, value) for key, value in sample.labels.items() if key != "le"))
        for sample in series
    )


def _total(series: list[Sample]) -> float | None:
    return sum(sample.value for sample in series) if series else None


def _highest(series: list[Sample]) -> float | None:
    values = [sample.value for sample in series]
    return max(values) if values and all(map(isfinite, values)) else None


def _capacity(series: list[Sample]) -> float | None:
    """Sum the engines' KV capacities in tokens; an engine that does not tell makes the sum unknown."""
    capacities = [_engine_capacity(sample.labels) for sample in series]
    total = sum(capacities)
    return total if total > 0 else None


def _engine_capacity(labels: dict[str, str]) -> float:
    stated = _number(labels.get("kv_cache_size_tokens"))
    if stated > 0:
        return stated
    return _number(labels.get("block_size")) * _number(labels.get("num_gpu_blocks"))


def _number(text: str | None) -> float:
    """Read a label's number; NaN for a label that is missing or says `None`."""
    try:
        return float(text) if text is not None else nan
    except ValueError:
        return nan
