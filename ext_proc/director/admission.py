"""Refusals once every endpoint is past its limit. Without a limit in the settings there are none.

Pure. An endpoint is past its limit if its predicted wait or its queue is; an unknown queue is not. When all
endpoints for a request are past their limits, a request with a priority below `shed_below` gets 429. The
priority comes from its header, otherwise from its tenant, otherwise it is 0.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from ext_proc.pick import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from fleet.settings.picks import AdmissionSettings

MESSAGE: Final = "All engines for this model are at their limit. Please try again later."
LEAST_RETRY_SECONDS: Final = 1.0
MOST_RETRY_SECONDS: Final = 60.0
_MOST_DIGITS: Final = 6


def priority(settings: AdmissionSettings, headers: Mapping[str, str], tenant: str) -> int:
    """Return a request's priority; a header without a whole number does not count."""
    text = headers.get(settings.priority_header, "").strip() if settings.priority_header else ""
    digits = text.removeprefix("-").removeprefix("+")
    if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS:
        return int(text)
    return settings.tenant_priorities.get(tenant, 0)


def refusal(
    settings: AdmissionSettings, waits: NDArray[np.float64], queues: NDArray[np.float64]
) -> Refusal | None:
    """Return the refusal if all endpoints are past their limit by predicted waits and queues, otherwise None.

    `Retry-After` is the excess of the shortest wait over the limit, within bounds.
    """
    past = queues > (float("inf") if settings.most_queue is None else settings.most_queue)
    if settings.most_wait_seconds is not None:
        past |= waits > settings.most_wait_seconds
    if not past.size or not past.all():
        return None
    beyond = float(waits.min()) - (settings.most_wait_seconds or 0.0)
    return Refusal(429, MESSAGE, min(max(LEAST_RETRY_SECONDS, float(ceil(beyond))), MOST_RETRY_SECONDS))


def first(refusals: Iterable[Refusal | None]) -> Refusal | None:
    """Return the refusal with the soonest retry; None without refusals, or if one is None."""
    soonest: Refusal | None = None
    for each in refusals:
        if each is None:
            return None
        if soonest is None or (each.retry_after_seconds or 0.0) < (soonest.retry_after_seconds or 0.0):
            soonest = each
    return soonest
