"""Plots of replays: distributions, and timelines of the queue, the time to first token and the load.

The colours are those of Okabe and Ito (2008), which people with any colour vision can tell apart; a second
round of them is dashed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fleet.errors import WarmrouteError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from warmroute.replay.fault import Fault
    from warmroute.replay.run import Outcome

SUFFIXES: Final = (".png", ".svg")
INSTALL: Final = "pip install 'warmroute[plot]'"
_OURS: Final = "warmroute"
_OUR_COLOUR: Final = "#D55E00"
_COLOURS: Final = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_POINTS: Final = 120
"""Of a timeline."""
_POINTS_OF_CURVE: Final = 501
"""Of a distribution."""
_DIRECT: Final = 5
"""Curves with labels of their own; more have a legend."""
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",
    "svg.hashsalt": "warmroute",
}


def check_plot(path: Path) -> None:
    """Check that a plot can be drawn.

    Raises:
        WarmrouteError: matplotlib is not installed, or the file's name has another suffix.
    """
    if path.suffix not in SUFFIXES:
        raise WarmrouteError(f"--plot is {path}; allowed: a file that ends in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise WarmrouteError(f"--plot is {path}; allowed: a file in a folder that exists")
    try:
        import matplotlib  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise WarmrouteError(f"--plot needs matplotlib ({error}): {INSTALL}") from error


def draw(outcomes: Mapping[str, Outcome], title: str, path: Path, faults: Sequence[Fault] = ()) -> None:
    """Draw one replay of each policy into a file; timelines have the faults as grey bands.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context(_STYLE):
        figure = Figure(figsize=(10, 6.4), layout="constrained")
        panels: dict[str, Any] = figure.subplot_mosaic("AC;AC;AD;BD;BE;BE", width_ratios=(1, 1))
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        styles = _styles(tuple(outcomes))
        ttft = {policy: outcome.ttft for policy, outcome in outcomes.items()}
        slowdown = {policy: outcome.ttft / outcome.alone for policy, outcome in outcomes.items()}
        _distribution(panels["A"], ttft, styles, "Time to first token, s")
        _distribution(panels["B"], slowdown, styles, "Slowdown: times the time alone on an idle replica")
        timelines = panels["C"], panels["D"], panels["E"]
        _timelines(*timelines, outcomes, styles)
        for panel in timelines:
            for fault in faults:
                panel.axvspan(fault.at, fault.until, color="black", alpha=0.07, linewidth=0)
        if len(outcomes) > _DIRECT:
            handles, labels = panels["A"].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
        figure.savefig(path, dpi=150, facecolor="white", metadata=metadata)


def _styles(policies: Sequence[str]) -> dict[str, dict[str, Any]]:
    styles: dict[str, dict[str, Any]] = {}
    for policy in policies:
        if policy == _OURS:
            styles[policy] = {"color": _OUR_COLOUR, "linewidth": 2.4, "zorder": 3}
            continue
        turn, colour = divmod(len(styles.keys() - {_OURS}), len(_COLOURS))
        dashes = ("-", "--", ":", "-.")[turn % 4]
        styles[policy] = {"color": _COLOURS[colour], "linewidth": 1.3, "linestyle": dashes}
    return styles


def _distribution(
    panel: Any, columns: Mapping[str, NDArray[np.float64]], styles: Mapping[str, dict[str, Any]], title: str
) -> None:
    """Draw cumulative distributions; direct labels are at heights of their own."""
    answered = {policy: values[~np.isnan(values)] for policy, values in columns.items()}
    answered = {policy: values for policy, values in answered.items() if values.size}
    shares = np.linspace(0.0, 1.0, _POINTS_OF_CURVE)
    fastest_first = sorted(answered, key=lambda policy: np.median(answered[policy]))
    for policy, height in zip(fastest_first, np.linspace(0.9, 0.35, len(answered)), strict=True):
        values = answered[policy]
        # Where requests failed, the curve ends below 100 %.
        whole = values.size / columns[policy].size
        panel.plot(np.quantile(values, shares), shares * whole, label=policy, **styles[policy])
        if len(columns) <= _DIRECT:
            panel.annotate(
                policy,
                (np.quantile(values, height), height * whole),
                xytext=(6, -3),
                textcoords="offset points",
                color=styles[policy]["color"],
                fontweight="bold" if policy == _OURS else "normal",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.75},
            )
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_ylim(0, 1.02)
    panel.yaxis.set_major_formatter(lambda value, _position: f"{value:.0%}")
    panel.set_title(title, loc="left")


def _timelines(
    queue: Any, ttft: Any, load: Any, outcomes: Mapping[str, Outcome], styles: Mapping[str, dict[str, Any]]
) -> None:
    end = max(outcome.seconds for outcome in outcomes.values())
    times = np.linspace(0.0, end, _POINTS)
    for policy, outcome in outcomes.items():
        begin = outcome.at - outcome.at[0]
        queue.plot(times, _open_at(times, begin, outcome.ttft), **styles[policy])
        ttft.plot(times, _window_p90(times, begin, outcome.ttft), **styles[policy])
        by_engine = [
            _open_at(times, begin[outcome.engine == engine], outcome.e2e[outcome.engine == engine])
            for engine in range(len(outcome.busy_seconds))
        ]
        load.plot(times, np.max(by_engine, axis=0), **styles[policy])
    for panel, title in (
        (queue, "Requests waiting for their first token"),
        (ttft, "p90 of the time to first token, s"),
        (load, "Requests in flight at the busiest replica"),
    ):
        panel.set_title(title, loc="left")
        panel.set_xlim(0, end)
        panel.set_ylim(bottom=0)
    for panel in (queue, ttft):
        panel.tick_params(labelbottom=False)
    load.set_xlabel("Seconds")


def _open_at(
    times: NDArray[np.float64], begin: NDArray[np.float64], lasting: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return how many intervals are open at each time."""
    begins, ends = np.sort(begin), np.sort(begin + np.nan_to_num(lasting))
    return np.searchsorted(begins, times, "right") - np.searchsorted(ends, times, "right")


def _window_p90(
    times: NDArray[np.float64], begin: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the p90 of the values that begin within two steps of each time; NaN without any."""
    half = 2 * (times[1] - times[0])
    result = np.full(times.size, np.nan)
    for index, time in enumerate(times):
        within = values[(np.abs(begin - time) <= half) & ~np.isnan(values)]
        if within.size:
            result[index] = np.quantile(within, 0.9)
    return result
