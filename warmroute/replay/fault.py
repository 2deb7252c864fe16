"""Faults of engines on the timeline of a replay."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from fleet.errors import WarmrouteError

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOW_FACTOR: Final = 4.0
"""On the steps of a slow engine."""
MAX_SECONDS: Final = 1e6


class FaultKind(StrEnum):
    """How an engine fails."""

    GONE = "gone"
    """Its port refuses connections, and its open requests break; it returns with an empty cache."""
    FROZEN = "frozen"
    """It accepts requests, and makes no progress; then it goes on."""
    SLOW = "slow"
    """Its steps take `SLOW_FACTOR` times as long."""


class Fault(NamedTuple):
    """A fault of one replica."""

    at: float
    """Seconds after the replay's begin."""
    replica: int
    """From 0."""
    seconds: float
    kind: FaultKind = FaultKind.GONE

    @property
    def until(self) -> float:
        """When it ends."""
        return self.at + self.seconds


class Cancels(NamedTuple):
    """Clients that leave before the end of their answers."""

    share: float = 0.0
    """Of the requests."""
    seconds: float = 0.0
    """At most, from the request's arrival: each leaves at a time drawn evenly."""


NO_CANCELS: Final = Cancels()


def fault_of(text: str) -> Fault:
    """Read `AT:REPLICA:SECONDS[:KIND]`.

    Raises:
        WarmrouteError: the text has another form, or a number out of range.
    """
    try:
        at, replica, seconds, *kind = text.split(":")
        fault = Fault(float(at), int(replica), float(seconds), FaultKind(*kind or ("gone",)))
    except (TypeError, ValueError) as error:
        kinds = ", ".join(FaultKind)
        allowed = f"AT:REPLICA:SECONDS[:KIND], for example 120:3:60:frozen, with a kind of {kinds}"
        raise WarmrouteError(f"--fail is {text!r}; allowed: {allowed}") from error
    if not (0 <= fault.at <= MAX_SECONDS and 0 < fault.seconds <= MAX_SECONDS):
        raise WarmrouteError(f"--fail is {text!r}; allowed: times of at most {MAX_SECONDS:g} s")
    return fault


def cancels_of(text: str) -> Cancels:
    """Read `SHARE:SECONDS`.

    Raises:
        WarmrouteError: the text has another form, or a number out of range.
    """
    try:
        share, seconds = map(float, text.split(":"))
    except ValueError:
        share = seconds = -1.0
    if not (0 <= share <= 1 and 0 < seconds <= MAX_SECONDS):
        allowed = f"SHARE from 0 to 1 and SECONDS above 0, at most {MAX_SECONDS:,.0f}, such as 0.05:2"
        raise WarmrouteError(f"--cancel is {text!r}; allowed: {allowed}")
    return Cancels(share, seconds)


def check_faults(faults: Sequence[Fault], replicas: int) -> None:
    """Check faults against the fleet and each other.

    Raises:
        WarmrouteError: a fault is of a replica that is not there, or begins before an earlier one's end.
    """
    until: dict[int, float] = {}
    for fault in sorted(faults):
        if not 0 <= fault.replica < replicas:
            raise WarmrouteError(f"--fail names replica {fault.replica}; allowed: 0 to {replicas - 1}")
        if fault.at < until.get(fault.replica, 0.0):
            raise WarmrouteError(
                f"--fail has two faults of replica {fault.replica} at {fault.at:g} s; allowed: one at a time"
            )
        until[fault.replica] = fault.until
