"""Who is refused once every endpoint is past its limit. Without a limit in the settings nobody is, ever.

Pure. An endpoint is past its limit when its predicted wait or the engine's queue is; an unknown queue is no
evidence. When all that may be chosen are, requests whose priority is below `shed_below` get 429. A request's
priority is what its header says, else its tenant's, else 0.
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
    """Return a request's priority; what is no whole number counts as not given."""
    text = headers.get(settings.priority_header, "").strip() if settings.priority_header else ""
    digits = text.removeprefix("-").removeprefix("+")
    if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS:
        return int(text)
    return settings.tenant_priorities.get(tenant, 0)


def refusal(
    settings: AdmissionSettings, waits: NDArray[np.float64], queues: NDArray[np.float64]
) -> Refusal | None:
    """Return the refusal when all endpoints are past their limit, by predicted waits and queues, else None.

    `Retry-After` is what the shortest wait lacks to be short enough, within bounds.
    """
    past = queues > (float("inf") if settings.most_queue is None else settings.most_queue)
    if settings.most_wait_seconds is not None:
        past |= waits > settings.most_wait_seconds
    if not past.size or not past.all():
        return None
    beyond = float(waits.min()) - (settings.most_wait_seconds or 0.0)
    return Refusal(429, MESSAGE, min(max(LEAST_RETRY_SECONDS, float(ceil(beyond))), MOST_RETRY_SECONDS))


def first(refusals: Iterable[Refusal | None]) -> Refusal | None:
    """Return the one of several that asks to come again first; None where there is none, or one is None."""
    soonest: Refusal | None = None
    for each in refusals:
        if each is None:
            return None
        if soonest is None or (each.retry_after_seconds or 0.0) < (soonest.retry_after_seconds or 0.0):
            soonest = each
    return soonest
