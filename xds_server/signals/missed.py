"""Finished requests that the first endpoint of their pick did not answer well. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.names import METADATA_PROMPT
from fleet.store import Missed

if TYPE_CHECKING:
    from xds_server.signals.served import Finished


def missed_of(finished: Finished) -> Missed | None:
    """Return what ext_proc must hear of a request, None where its pick has answered well or nobody knows.

    Any error is a miss, 4xx as well: the prompt was not computed, or not to its end. When the client left
    before an answer, the engine may have computed it.
    """
    if not finished.picked or not finished.status or finished.aborted:
        return None
    refused = finished.status >= 400
    if not refused and finished.address == finished.picked:
        return None
    try:
        prompt = int(finished.metadata.get(METADATA_PROMPT, ""), 16)
    except ValueError:
        return None
    if not 0 < prompt < 1 << 64:
        return None
    return Missed(prompt, finished.picked, "" if refused else finished.address)
