"""The detectors by kind of skew: a new one is a file and a line below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xds_server.skew import batch_collapse, context_burst, long_tail

if TYPE_CHECKING:
    from xds_server.skew.finding import Detector

DETECTORS: Final[dict[str, Detector]] = {
    "long_tail": long_tail.DETECTOR,
    "batch_collapse": batch_collapse.DETECTOR,
    "context_burst": context_burst.DETECTOR,
}
"""The values of `kind` in events and metrics."""
