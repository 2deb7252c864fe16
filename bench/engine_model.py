"""The engine model against measured engines: errors on rows that its constants do not come from.

The rows (`bench/data/engine_model`) are mean times of vLLM under a closed loop of clients. Every second row
of a GPU, model and parallelism gives the constants, the others check them. For two GPUs, constants from short
prompts alone predict long ones as well. The reference has no engine model: linear formulas of concurrency and
lengths, fitted to the same rows. `--fit` writes the constants into `warmroute/simulator/data/fits.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bench import engine_live
from bench.engine_fit import fit_rows, load_of, parts, predict, read_rows
from warmroute.demo import report
from warmroute.simulator import fits
from warmroute.simulator.fits import timing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from bench.engine_fit import Row
    from warmroute.demo.report import Target
    from warmroute.simulator.fits import Timing

FITS: Final = Path(fits.__file__).parent / "data" / "fits.json"
FIRST_TOKEN_MEDIAN: Final = 0.10
TOKEN_MEDIAN: Final = 0.05
"""Policies of one replay differ by more. A time between tokens varies less from run to run than a wait."""
P90_FACTOR: Final = 3.0
LONGER_PAIRS: Final = ("h100_sxm/tp4", "h200_sxm/tp4")
"""Whose constants are fitted to prompts of 1,024 tokens alone, to predict those of 8,192."""


class Errors(NamedTuple):
    """Relative errors of a way to predict, one a row."""

    first_token: NDArray[np.float64]
    token: NDArray[np.float64]


def main() -> int:
    """Fit, or compare."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine_model", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--live", action="store_true", help="also a llama.cpp on this machine; minutes")
    parser.add_argument("--fit", action="store_true", help="write the constants, then compare")
    args = parser.parse_args()
    rows = read_rows()
    if args.fit:
        constants = {}
        for name, measured in rows.items():
            constants[name] = asdict(fit_rows(parts(measured)[0]))
            report.progress(f"{name}: {constants[name]}")
        FITS.write_text(json.dumps(constants, indent=1) + "\n", encoding="utf-8")
        fits._constants.cache_clear()
        timing.cache_clear()
    result: dict[str, Any] = {"pairs": {}}
    ours, reference = [], []
    report.progress(f"{'':38}rows   TTFT median   p90   TPOT median   p90   (linear formulas)")
    for name, measured in rows.items():
        by_model, by_formula = compared(timing(name), *parts(measured))
        ours.append(by_model)
        reference.append(by_formula)
        result["pairs"][name] = figures(by_model) | {
            "linear": figures(by_formula),
            "rows": len(by_model.token),
        }
        report.progress(f"{name:38}{len(by_model.token):3} {shown(by_model)}  ({shown(by_formula)})")
    all_ours, all_reference = joined(ours), joined(reference)
    report.progress(f"{'all':38}{len(all_ours.token):3} {shown(all_ours)}  ({shown(all_reference)})")
    result["all"] = figures(all_ours) | {"linear": figures(all_reference), "rows": len(all_ours.token)}
    beyond, beyond_reference = (
        joined(column) for column in zip(*(longer(rows[name]) for name in LONGER_PAIRS), strict=True)
    )
    report.progress(
        f"{'8 times the prompt':38}{len(beyond.token):3} {shown(beyond)}  ({shown(beyond_reference)})"
    )
    result["longer_prompts"] = figures(beyond) | {
        "linear": figures(beyond_reference),
        "rows": len(beyond.token),
    }
    if args.live:
        result["llama_cpp"] = engine_live.check()
    return report.finish(result, list(targets(all_ours, beyond)), as_json=args.json)


def compared(constants: Timing, fitted: Sequence[Row], check: Sequence[Row]) -> tuple[Errors, Errors]:
    """Return the errors on rows of the engine model, and of linear formulas fitted to the fitted rows."""
    times = np.array([(row.first_token_seconds, row.token_seconds) for row in check])
    model = np.array([predict(constants, load_of(row)) for row in check])
    by_model = np.abs(model / times - 1).T
    first = linear(fitted, check, "first_token_seconds")
    token = linear(fitted, check, "token_seconds")
    return Errors(*by_model), Errors(np.abs(first / times[:, 0] - 1), np.abs(token / times[:, 1] - 1))


def longer(measured: Sequence[Row]) -> tuple[Errors, Errors]:
    """Return the errors on the longest prompts, with constants from the others alone."""
    most = max(row.prompt_tokens for row in measured)
    fitted = [row for row in measured if row.prompt_tokens < most]
    check = [row for row in measured if row.prompt_tokens == most]
    return compared(fit_rows(fitted), fitted, check)


def linear(fitted: Sequence[Row], check: Sequence[Row], of: str) -> NDArray[np.float64]:
    """Predict rows from others by 1, concurrency, prompt, and concurrency times each length."""

    def inputs(rows: Sequence[Row]) -> NDArray[np.float64]:
        return np.array(
            [
                (
                    1.0,
                    row.concurrency,
                    row.prompt_tokens,
                    row.concurrency * row.prompt_tokens,
                    row.concurrency * row.output_tokens,
                )
                for row in rows
            ]
        )

    target = np.array([getattr(row, of) for row in fitted])
    weights = np.linalg.lstsq(inputs(fitted) / target[:, None], np.ones(len(fitted)), rcond=None)[0]
    predicted: NDArray[np.float64] = inputs(check) @ weights
    return predicted


def joined(parts_of: Sequence[Errors]) -> Errors:
    """Return all pairs' errors in one."""
    return Errors(*(np.concatenate(column) for column in zip(*parts_of, strict=True)))


def figures(of: Errors) -> dict[str, float]:
    """Return medians and 90th percentiles."""
    return {
        f"{name}_{label}": round(float(np.percentile(values, rank)), 4)
        for name, values in zip(("ttft", "tpot"), of, strict=True)
        for label, rank in (("median", 50), ("p90", 90))
    }


def shown(of: Errors) -> str:
    """Return the figures as text."""
    return " ".join(f"{100 * value:8.1f} %" for value in figures(of).values())


def targets(between: Errors, beyond: Errors) -> Iterator[Target]:
    """What the errors must not pass: between the fit's rows, and beyond them."""
    limits = {"ttft": FIRST_TOKEN_MEDIAN, "tpot": TOKEN_MEDIAN}
    for name, value in figures(between).items():
        limit = limits[name[:4]] * (P90_FACTOR if name.endswith("p90") else 1)
        yield report.at_most(f"error of {name}", value, limit)
    for name, value in figures(beyond).items():
        if name.endswith("median"):
            yield report.at_most(f"error of {name}, prompts 8 times as long", value, 2 * limits[name[:4]])


if __name__ == "__main__":
    sys.exit(report.command(main))
