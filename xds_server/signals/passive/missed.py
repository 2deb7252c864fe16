"""Finished requests that the first endpoint of their pick did not answer well. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.names import METADATA_PROMPT, METADATA_REQUEST, METADATA_SERIAL
from fleet.store import Missed
from xds_server.access_log.finished import HOST_FLAGS

if TYPE_CHECKING:
    from xds_server.access_log.finished import Finished


def missed_of(finished: Finished) -> Missed | None:
    """Return the miss that a request is for ext_proc; None where its pick answered well, or that is unknown.

    Any error of the engine is a miss, 4xx as well: the prompt was not computed, or not to its end. An answer
    of Envoy's own (401, 413, 429, or 503 at a circuit breaker) says nothing of the engine, unless an attempt
    at it failed. When the client left before an answer, the engine may have computed the prompt.
    """
    if not finished.picked or not finished.status or finished.aborted:
        return None
    refused = finished.status >= 400
    tried = finished.first_byte_seconds is not None or finished.retried_away
    if refused and not tried and HOST_FLAGS.isdisjoint(finished.flags):
        return None
    if not refused and finished.address == finished.picked:
        return None
    prompt = _digits(finished, METADATA_PROMPT)
    if not prompt:
        return None
    served = "" if refused else finished.address
    serial, request = _digits(finished, METADATA_SERIAL), _digits(finished, METADATA_REQUEST)
    return Missed(prompt, finished.picked, served, serial, request)


def _digits(finished: Finished, key: str) -> int:
    """Return the number that the pick noted under a key; 0: none."""
    try:
        number = int(finished.metadata.get(key, ""), 16)
    except ValueError:
        return 0
    return number if 0 < number < 1 << 64 else 0
