"""From what engines were measured to take to Envoy's active health checks. Pure.

What Envoy 1.40 does with them (tests/envoy/test_sla_probes.py shows it on the binary):

- without `retriable_statuses` a single answer other than 200 takes an engine out, whatever
  `unhealthy_threshold` says;
- a host that leaves EDS stays while its probes succeed, unless `ignore_health_on_host_removal`;
- a good probe ends an ejection early, unless `successful_active_health_check_uneject_host` is false;
- a pick (override_host) does not look at any of it: health checks decide about what goes by weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fleet.settings.pools import PoolSettings
    from fleet.settings.sla import HealthCheckSettings

LEAST_SECONDS: Final = 5.0
FIRST_TOKENS: Final = 10
P99S: Final = 3
_INTERVAL_SHARE: Final = 0.5


class ImpossibleError(ValueError):
    """Something promised that no numbers can keep. `field` is what to change first."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True)
class Probe:
    """Envoy's active health check of one pool."""

    path: str
    timeout_seconds: float
    interval_seconds: float
    """From one probe's end to the next one's begin."""
    failures: int
    successes: int
    panic_percent: float
    """Below this percentage of healthy engines Envoy uses everybody."""

    @property
    def silence_seconds(self) -> float:
        """An engine that accepts and does not answer is out after this, and no sooner."""
        return self.failures * self.timeout_seconds + (self.failures - 1) * self.interval_seconds

    @property
    def refusal_seconds(self) -> float:
        """One that refuses connections is out this long after the first probe that it refuses."""
        return (self.failures - 1) * self.interval_seconds


def probe(pool: PoolSettings) -> Probe | None:
    """Derive a pool's active health check; None without one.

    Time limit. An engine that computes answers its probes late: its web server shares a process, often a
    thread, with tokenisation and scheduling. A limit of a second takes engines out exactly when they are
    full, their load falls on the next ones, and those follow. So: three times what was measured under load;
    without a measurement ten first tokens of the SLA; never below 5 s.

    Interval. Half the limit after each probe's end: an engine that refuses connections is out after
    (failures - 1) intervals, one that hangs only after `failures` whole limits.

    Raises:
        ImpossibleError: the limit is not longer than what a working engine takes.
    """
    held = pool.health_check
    if held is None:
        return None
    usual, name = usual_seconds(pool, held)
    timeout = held.timeout_seconds
    if timeout is None:
        timeout = max(LEAST_SECONDS, usual * (FIRST_TOKENS if held.measured_p99_seconds is None else P99S))
    elif timeout <= usual:
        raise ImpossibleError(
            "timeout_seconds",
            f"{timeout:g}; allowed: more than the {usual:g} s of {name}, or engines that work are taken out",
        )
    return Probe(
        held.path,
        timeout,
        held.interval_seconds or timeout * _INTERVAL_SHARE,
        held.failures,
        held.successes,
        round(100 * (1 - held.most_out_ratio), 3),
    )


def usual_seconds(pool: PoolSettings, held: HealthCheckSettings) -> tuple[float, str]:
    """Return what a working engine takes, and the setting that says so; 0 and nothing where none does."""
    if held.measured_p99_seconds is not None:
        return held.measured_p99_seconds, "measured_p99_seconds"
    if pool.sla is not None:
        return pool.sla.first_token_p95_seconds, "sla.first_token_p95_seconds"
    return 0.0, ""
