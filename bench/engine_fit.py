"""Constants of an engine's steps from measured rows, by running the engine model on each row's load.

A row gives the mean time to first token and between tokens of `concurrency` clients. Each sends ten requests,
the next as soon as the last one ended. All begin at once, so the first requests queue, and their wait is part
of the mean.
"""

from __future__ import annotations

import csv
from collections import deque
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from warmroute.simulator.fits import Timing
from warmroute.simulator.model import EngineConfig, EngineModel, EventKind, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ROWS: Final = Path(__file__).parent / "data" / "engine_model" / "measured.csv"
REQUESTS_PER_CLIENT: Final = 10
"""Of InferenceX's runs, where the rows come from; lengths there are 80 to 100 % of the stated ones."""
SHORTEST: Final = 0.8
CLIENT_SECONDS: Final = 0.002
"""From the end of an answer to the arrival of the client's next request."""
_BLOCK_TOKENS: Final = 256
_ROUNDS: Final = 5
_FIRST_TOKEN_ERROR: Final = 0.1
_TOKEN_ERROR: Final = 0.05
"""Relative errors that weigh the same: times between tokens vary less from run to run."""
_PRIOR_ERROR: Final = 0.3
_DIFFERENCE: Final = 0.02
_MOST_MOVE: Final = 0.7
_MEMORY_SHARE: Final = 0.8
_COMPUTE_SHARE: Final = 0.6
"""Of the peak, what attention reaches: AIConfigurator's factor, and FlashAttention's figures on H100."""


class Gpu(NamedTuple):
    """One accelerator: bytes, bytes a second, dense BF16 operations a second."""

    memory: float
    bandwidth: float
    operations: float


class Model(NamedTuple):
    """What a model's memory and attention need, all layers together."""

    weight_bytes: float
    kv_bytes: float
    """Of one token."""
    attention_width: float
    """Query heads times their size, summed over layers with full attention."""
    parameters: float
    """That one token uses."""


GPUS: Final = {
    "h100_sxm": Gpu(85.9e9, 3.35e12, 989e12),
    "h200_sxm": Gpu(151.4e9, 4.8e12, 989e12),
    "b200_sxm": Gpu(192e9, 8e12, 2250e12),
}
MODELS: Final = {
    "llama3.1-70b-fp8": Model(70.6e9, 327_680, 80 * 8192, 70.6e9),
    "gpt-oss-120b-mxfp4": Model(63e9, 36_864, 18 * 4096, 5.1e9),
}
UNNAMED: Final = "llama3.1-70b-fp8"
"""The model of names without one, such as h100_sxm/tp4."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured load. Seconds are means over all requests."""

    system: str
    model: str
    tp: int
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    first_token_seconds: float
    token_seconds: float

    @property
    def fit(self) -> str:
        """Name of its fit."""
        model = "" if self.model == UNNAMED else f"{self.model}/"
        return f"{self.system}/{model}tp{self.tp}"


class Load(NamedTuple):
    """Clients of one engine; each sends the next request once its last one has ended."""

    config: EngineConfig
    clients: int
    requests: tuple[Request, ...]


class Times(NamedTuple):
    """Mean seconds to the first token, and by token after it."""

    first_token: float
    token: float


def read_rows() -> dict[str, list[Row]]:
    """Return the measured rows by the name of their fit, those that wait for KV memory left out."""
    rows: dict[str, list[Row]] = {}
    with ROWS.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            lengths = (int(line[name]) for name in ("prompt_tokens", "output_tokens", "concurrency"))
            times = (float(line[name]) / 1e3 for name in ("ttft_ms", "tpot_ms"))
            row = Row(line["system"], line["model"], int(line["tp"]), *lengths, *times)
            if row.concurrency * (row.prompt_tokens + row.output_tokens) < kv_tokens(row):
                rows.setdefault(row.fit, []).append(row)
    return rows


def parts(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Split one pair's rows into those of the fit and those of the check: every second one."""
    ordered = sorted(rows, key=lambda row: (row.prompt_tokens, row.output_tokens, row.concurrency))
    return ordered[::2], ordered[1::2]


def kv_tokens(row: Row) -> int:
    """Tokens of the KV cache: vLLM's 90 % of the memory, less the weights and 4 GB a GPU for the rest."""
    gpu, model = GPUS[row.system], MODELS[row.model]
    return int(((0.9 * gpu.memory - 4e9) * row.tp - model.weight_bytes) / model.kv_bytes)


def load_of(row: Row) -> Load:
    """Return what a row's clients send to its engine."""
    draw = Random(1)

    def length(tokens: int) -> int:
        return draw.randint(int(SHORTEST * tokens), tokens)

    config = EngineConfig(
        num_blocks=kv_tokens(row) // _BLOCK_TOKENS, block_tokens=_BLOCK_TOKENS, report_tokens=False
    )
    requests = [
        Request(length(row.prompt_tokens), length(row.output_tokens))
        for _ in range(REQUESTS_PER_CLIENT * row.concurrency)
    ]
    return Load(config, row.concurrency, tuple(requests))


def predict(timing: Timing, load: Load) -> Times:
    """Run a load through the engine model."""
    model = EngineModel(replace(load.config, timing=timing))
    arrivals, left = [0.0] * load.clients, deque(load.requests)
    handles = []
    while left or model.next_event_at() is not None:
        at = model.next_milestone_at()
        if arrivals and (at is None or arrivals[0] <= at):
            handles.append(model.submit(left.popleft(), heappop(arrivals)))
        else:
            assert at is not None
            ended = sum(event.kind is EventKind.FINISHED for event in model.advance(at))
            for _ in range(min(ended, len(left) - len(arrivals))):
                heappush(arrivals, at + CLIENT_SECONDS)
    times = [(h.arrived_at, h.first_token_at, h.finished_at, h.emitted) for h in handles]
    arrived, first, ended_at, emitted = np.array(times, np.float64).T
    return Times(
        float((first - arrived).mean()) + CLIENT_SECONDS,
        float(((ended_at - first) / (emitted - 1)).mean()),
    )


def first_guess(row: Row) -> Timing:
    """Return the constants that memory bandwidth and arithmetic alone would give."""
    gpu, model = GPUS[row.system], MODELS[row.model]
    bandwidth, operations = gpu.bandwidth * row.tp * _MEMORY_SHARE, gpu.operations * row.tp * _COMPUTE_SHARE
    return Timing(
        step_seconds=0.002
        + min(1.0, 2 * model.parameters / model.weight_bytes) * model.weight_bytes / bandwidth,
        sequence_seconds=5e-5,
        kv_token_seconds=model.kv_bytes / bandwidth,
        prefill_token_seconds=2 * model.parameters / operations,
        attention_pair_seconds=4 * model.attention_width / operations,
    )


def fit(guess: Timing, loads: Sequence[Load], times: Sequence[Times]) -> Timing:
    """Return the constants with the least squares of the relative errors, large ones counted less.

    Gauss-Newton in logarithms, with differences for derivatives. The guess is good for the time to read a
    token's KV and for that of a pair in attention, which follow from the hardware: they move from it only as
    far as the errors are worth it.
    """
    begin = np.log(_constants(guess))
    at = begin.copy()
    prior = np.array([0.0, 0.0, 1.0, 0.0, 1.0]) / _PRIOR_ERROR + 0.1
    for _ in range(_ROUNDS):
        errors = _errors(at, loads, times)
        moved = np.array([_errors(at + step, loads, times) for step in _DIFFERENCE * np.eye(at.size)])
        slopes = (moved - errors).T / _DIFFERENCE
        weight = np.minimum(1.0, 2.0 / np.maximum(np.abs(errors), 1e-9)) ** 0.5
        left = np.vstack([slopes * weight[:, None], np.diag(prior)])
        right = np.concatenate([-errors * weight, prior * (begin - at)])
        at += np.clip(np.linalg.lstsq(left, right, rcond=None)[0], -_MOST_MOVE, _MOST_MOVE)
    return Timing(*(float(f"{value:.4g}") for value in np.exp(at)))


def fit_rows(rows: Sequence[Row]) -> Timing:
    """Return the constants of one pair's rows."""
    times = [Times(row.first_token_seconds, row.token_seconds) for row in rows]
    return fit(first_guess(rows[0]), [load_of(row) for row in rows], times)


def _constants(timing: Timing) -> list[float]:
    return [
        timing.step_seconds,
        timing.sequence_seconds,
        timing.kv_token_seconds,
        timing.prefill_token_seconds,
        timing.attention_pair_seconds,
    ]


def _errors(
    logarithms: NDArray[np.float64], loads: Sequence[Load], times: Sequence[Times]
) -> NDArray[np.float64]:
    timing = Timing(*np.exp(logarithms).tolist())
    predicted = np.array([predict(timing, load) for load in loads])
    errors: NDArray[np.float64] = np.log(predicted / np.array(times)) / (_FIRST_TOKEN_ERROR, _TOKEN_ERROR)
    return errors.ravel()
