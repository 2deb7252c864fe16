"""From measured times of engines to Envoy's active health checks. Pure.

What Envoy 1.40 does with them (tests/envoy/test_sla_probes.py shows it on the binary):

- without `retriable_statuses`, a single answer other than 200 makes an engine unhealthy, whatever
  `unhealthy_threshold` is;
- a host that leaves EDS stays while its probes succeed, unless `ignore_health_on_host_removal`;
- a good probe ends an ejection early, unless `successful_active_health_check_uneject_host` is false;
- a pick (override_host) ignores health checks: they affect only requests that go by weights.
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
    """An SLA or health check that no numbers can meet. `field` is the first field to change."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True)
class Probe:
    """Envoy's active health check of one pool."""

    path: str
    timeout_seconds: float
    interval_seconds: float
    """From the end of one probe to the start of the next."""
    failures: int
    successes: int
    panic_percent: float
    """Below this percentage of healthy engines, Envoy uses all of them."""

    @property
    def silence_seconds(self) -> float:
        """Time after which an engine that accepts and does not answer is unhealthy."""
        return self.failures * self.timeout_seconds + (self.failures - 1) * self.interval_seconds

    @property
    def refusal_seconds(self) -> float:
        """Time from the first refused probe until an engine that refuses connections is unhealthy."""
        return (self.failures - 1) * self.interval_seconds


def probe(pool: PoolSettings) -> Probe | None:
    """Derive a pool's active health check; None without one.

    Time limit. A busy engine answers its probes late: its web server shares a process, often a thread, with
    tokenisation and scheduling. A limit of a second removes engines exactly when they are full; their load
    moves to the next ones, and those fail too. The limit is three times the time measured under load. Without
    a measurement it is ten first tokens of the SLA. It is never below 5 s.

    Interval. Half the limit after each probe's end: an engine that refuses connections is unhealthy after
    (failures - 1) intervals, one that hangs only after `failures` whole limits.

    Raises:
        ImpossibleError: the limit is not above the usual time of a working engine.
    """
    check = pool.health_check
    if check is None:
        return None
    usual, name = usual_seconds(pool, check)
    timeout = check.timeout_seconds
    if timeout is None:
        timeout = max(LEAST_SECONDS, usual * (FIRST_TOKENS if check.measured_p99_seconds is None else P99S))
    elif timeout <= usual:
        raise ImpossibleError(
            "timeout_seconds",
            f"{timeout:g}; allowed: more than the {usual:g} s of {name}, or engines that work are taken out",
        )
    return Probe(
        check.path,
        timeout,
        check.interval_seconds or timeout * _INTERVAL_SHARE,
        check.failures,
        check.successes,
        round(100 * (1 - check.most_out_ratio), 3),
    )


def usual_seconds(pool: PoolSettings, check: HealthCheckSettings) -> tuple[float, str]:
    """Return the usual time of a working engine and its setting; 0 and empty if no setting has it."""
    if check.measured_p99_seconds is not None:
        return check.measured_p99_seconds, "measured_p99_seconds"
    if pool.sla is not None:
        return pool.sla.first_token_p95_seconds, "sla.first_token_p95_seconds"
    return 0.0, ""
