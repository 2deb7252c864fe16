"""vLLM's metrics page, with the names, labels and buckets of vLLM 0.32.

Written by hand: a page costs one pass over plain lists, and an observation one bisection. The `_created`
series that vLLM's client library adds are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from warmroute.simulator.model import EngineModel, Handle, Steps

_LATENCY: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_FIRST_TOKEN: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_PER_TOKEN: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
_ITERATION: Final = tuple(float(2**power) for power in (0, *range(3, 15)))
_PREEMPTIONS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
_CHOICES: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
_REASONS: Final = ("stop", "length", "abort", "error", "repetition")


def decades(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `most`: vLLM's buckets for tokens."""
    return tuple(
        float(lead * 10**power) for power in range(12) for lead in (1, 2, 5) if lead * 10**power <= most
    )


class Gauges(NamedTuple):
    """What the page says of this moment."""

    running: float
    waiting: float
    kv_used_ratio: float

    @classmethod
    def of(cls, model: EngineModel) -> Gauges:
        """The truth."""
        return cls(model.running, model.waiting, model.kv_used_ratio)


class Histogram:
    """Counts per bucket, not yet summed up, and a sum."""

    __slots__ = ("_lines", "_lines_of", "buckets", "counts", "help", "total")

    def __init__(self, text: str, buckets: Sequence[float]) -> None:
        self.help = text
        self.buckets = tuple(buckets)
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0
        self._lines = ""
        self._lines_of: tuple[object, ...] = ()

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value`, as often as `times`."""
        self.counts[bisect_left(self.buckets, value)] += times
        self.total += value * times

    def observe_steps(self, steps: Steps) -> None:
        """Count the seconds of each step, as often as it has decodes."""
        first, more, left = steps.first_seconds, steps.more_seconds, steps.number
        bucket = bisect_left(self.buckets, first)
        last = bisect_left(self.buckets, first + more * (left - 1))
        for index in range(bucket, last):
            # The steps at most as long as the bucket's edge.
            within = min(int((self.buckets[index] - first) / more) + 1, steps.number) - steps.number + left
            self.counts[index] += within * steps.decodes
            left -= within
        self.counts[last] += left * steps.decodes
        self.total += steps.seconds * steps.decodes

    def lines(self, metric: str, labels: str) -> str:
        """Return its lines of the page: those of the page before while nothing was observed."""
        lines_of = metric, labels, self.total, *self.counts
        if lines_of != self._lines_of:
            self._lines_of = lines_of
            self._lines = "\n".join(_histogram_lines(metric, self, labels))
        return self._lines


class EngineMetrics:
    """What vLLM counts about finished work; the gauges are read from the model when a page is written."""

    def __init__(self, max_model_tokens: int) -> None:
        tokens = decades(max_model_tokens)
        self.success = dict.fromkeys(_REASONS, 0)
        self.prompt_tokens = Histogram("Number of prefill tokens processed.", tokens)
        self.generation_tokens = Histogram("Number of generation tokens processed.", tokens)
        self.iteration_tokens = Histogram("Histogram of number of tokens per engine_step.", _ITERATION)
        self.max_generation = Histogram("Histogram of maximum number of requested generation tokens.", tokens)
        self.params_n = Histogram("Histogram of the n request parameter.", _CHOICES)
        self.params_max_tokens = Histogram("Histogram of the max_tokens request parameter.", tokens)
        self.first_token = Histogram("Histogram of time to first token in seconds.", _FIRST_TOKEN)
        self.inter_token = Histogram("Histogram of inter-token latency in seconds.", _PER_TOKEN)
        self.per_token = Histogram("Histogram of time_per_output_token_seconds per request.", _PER_TOKEN)
        self.e2e = Histogram("Histogram of e2e request latency in seconds.", _LATENCY)
        self.queue = Histogram("Histogram of time spent in WAITING phase for request.", _LATENCY)
        self.inference = Histogram("Histogram of time spent in RUNNING phase for request.", _LATENCY)
        self.prefill = Histogram("Histogram of time spent in PREFILL phase for request.", _LATENCY)
        self.decode = Histogram("Histogram of time spent in DECODE phase for request.", _LATENCY)
        self.preemptions = Histogram(
            "Histogram of the number of times a request was preempted.", _PREEMPTIONS
        )
        self.prefill_computed = Histogram(
            "Histogram of new KV tokens computed during prefill (excluding cached tokens).", tokens
        )

    def on_steps(self, steps: Steps) -> None:
        """Steps ended. The batch steps without a break, so a decode's step is its inter-token latency."""
        self.iteration_tokens.observe(steps.prefill_tokens + steps.decodes, steps.number)
        if steps.decodes:
            self.inter_token.observe_steps(steps)

    def on_first_token(self, handle: Handle) -> None:
        """A request got its first token."""
        assert handle.first_token_at is not None
        self.first_token.observe(handle.first_token_at - handle.arrived_at)

    def on_finished(self, handle: Handle) -> None:
        """A request ended by itself."""
        arrived, scheduled = handle.arrived_at, handle.scheduled_at
        first, finished = handle.first_token_at, handle.finished_at
        assert scheduled is not None
        assert first is not None
        assert finished is not None
        request = handle.request
        self.success["length"] += 1
        self.prompt_tokens.observe(request.prompt_tokens)
        self.generation_tokens.observe(handle.emitted)
        self.max_generation.observe(request.output_tokens)
        self.params_max_tokens.observe(request.output_tokens)
        self.params_n.observe(1)
        self.e2e.observe(finished - arrived)
        self.queue.observe(scheduled - arrived)
        self.inference.observe(finished - scheduled)
        self.prefill.observe(first - scheduled)
        self.decode.observe(finished - first)
        if handle.emitted > 1:
            self.per_token.observe((finished - first) / (handle.emitted - 1))
        self.preemptions.observe(handle.preemptions)
        self.prefill_computed.observe(request.prompt_tokens - handle.cached_tokens)

    def on_aborted(self) -> None:
        """A client left before the end."""
        self.success["abort"] += 1

    def page(
        self,
        model: EngineModel,
        model_name: str,
        started_at: float,
        gauges: Gauges | None = None,
        histograms: Container[str] | None = None,
        rank: int = 0,
    ) -> bytes:
        """The page in Prometheus' text format. `started_at` is in seconds of Unix time.

        `gauges` replace the true values: an engine may tell nonsense. With `histograms`, the names
        without the prefix, the page leaves out all others.
        """
        name = model_name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        labels = f'engine="{rank}",model_name="{name}"'
        lines = [
            "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.",
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {started_at!r}",
        ]
        lines += _gauges(model, gauges or Gauges.of(model), labels, rank)
        lines += _counters(model, labels)
        lines += _family(
            "request_success_total",
            "counter",
            "Count of successfully processed requests.",
            {f'{labels},finished_reason="{reason}"': count for reason, count in self.success.items()},
        )
        for metric, histogram in self._histograms():
            if histograms is None or metric in histograms:
                lines.append(histogram.lines(metric, labels))
        lines.append("")
        return "\n".join(lines).encode()

    def _histograms(self) -> Iterator[tuple[str, Histogram]]:
        yield "request_prompt_tokens", self.prompt_tokens
        yield "request_generation_tokens", self.generation_tokens
        yield "iteration_tokens_total", self.iteration_tokens
        yield "request_max_num_generation_tokens", self.max_generation
        yield "request_params_n", self.params_n
        yield "request_params_max_tokens", self.params_max_tokens
        yield "time_to_first_token_seconds", self.first_token
        yield "inter_token_latency_seconds", self.inter_token
        yield "request_time_per_output_token_seconds", self.per_token
        yield "e2e_request_latency_seconds", self.e2e
        yield "request_queue_time_seconds", self.queue
        yield "request_inference_time_seconds", self.inference
        yield "request_prefill_time_seconds", self.prefill
        yield "request_decode_time_seconds", self.decode
        yield "request_num_preemptions", self.preemptions
        yield "request_prefill_kv_computed_tokens", self.prefill_computed


def page_of_ranks(pages: Sequence[bytes]) -> bytes:
    """Return one page of those of an engine's ranks, the samples of each metric together."""
    families: dict[str, dict[str, str]] = {}
    """By the two lines before the samples: each sample by what stands before its value."""
    for page in pages:
        for text in page.decode().split("# HELP ")[1:]:
            head, kind, *lines = text.splitlines()
            samples = families.setdefault(f"# HELP {head}\n{kind}", {})
            for line in lines:
                samples.setdefault(line.rpartition(" ")[0], line)
    return "".join("\n".join((head, *samples.values(), "")) for head, samples in families.items()).encode()


def _gauges(model: EngineModel, shown: Gauges, labels: str, rank: int) -> Iterator[str]:
    config = model.config
    size = config.num_blocks * config.block_tokens
    cache_labels = (
        f'block_size="{config.block_tokens}",cache_dtype="auto",enable_prefix_caching="True",engine="{rank}",'
        f'gpu_memory_utilization="0.92",kv_cache_max_concurrency="{size / config.limit_tokens!r}",'
        f'kv_cache_size_tokens="{size}",num_cpu_blocks="None",num_gpu_blocks="{config.num_blocks}",'
        f'num_gpu_blocks_override="{config.num_blocks}",prefix_caching_hash_algo="xxhash"'
    )
    running = "Number of requests in model execution batches."
    yield from _family("num_requests_running", "gauge", running, {labels: shown.running})
    waiting = "Number of requests waiting to be processed."
    yield from _family("num_requests_waiting", "gauge", waiting, {labels: shown.waiting})
    reasons = {f'{labels},reason="capacity"': shown.waiting, f'{labels},reason="deferred"': 0}
    yield from _family("num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.", reasons)
    usage = "KV-cache usage. 1 means 100 percent usage."
    yield from _family("kv_cache_usage_perc", "gauge", usage, {labels: shown.kv_used_ratio})
    yield from _family(
        "cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", {cache_labels: 1}
    )


def _counters(model: EngineModel, labels: str) -> Iterator[str]:
    sums = model.counters
    computed, cached = f'{labels},source="local_compute"', f'{labels},source="local_cache_hit"'
    by_source = {computed: sums.prompt - sums.prompt_cached, cached: sums.prompt_cached}
    for metric, text, samples in (
        ("prefix_cache_queries", "Prefix cache queries, in number of queried tokens.", sums.prefix_queries),
        ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", sums.prefix_hits),
        ("num_preemptions", "Cumulative number of preemption from the engine.", sums.preempted_requests),
        ("prompt_tokens", "Number of prefill tokens processed.", sums.prompt),
        ("prompt_tokens_by_source", "Number of prompt tokens by source.", by_source),
        ("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", sums.prompt_cached),
        ("generation_tokens", "Number of generation tokens processed.", sums.generated),
    ):
        values = samples if isinstance(samples, dict) else {labels: samples}
        yield from _family(f"{metric}_total", "counter", text, values)


def _family(metric: str, kind: str, text: str, samples: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP vllm:{metric} {text}"
    yield f"# TYPE vllm:{metric} {kind}"
    for labels, value in samples.items():
        yield f"vllm:{metric}{{{labels}}} {float(value)!r}"


def _histogram_lines(metric: str, histogram: Histogram, labels: str) -> Iterator[str]:
    yield f"# HELP vllm:{metric} {histogram.help}"
    yield f"# TYPE vllm:{metric} histogram"
    sums = list(accumulate(histogram.counts))
    for edge, count in zip((*map(repr, histogram.buckets), "+Inf"), sums, strict=True):
        yield f'vllm:{metric}_bucket{{{labels},le="{edge}"}} {float(count)!r}'
    yield f"vllm:{metric}_count{{{labels}}} {float(sums[-1])!r}"
    yield f"vllm:{metric}_sum{{{labels}}} {histogram.total!r}"
