"""Sources of signals, and when signals count."""

from __future__ import annotations

from fleet.settings.strict import NotNegative, Seconds, Strict


class SignalSettings(Strict):
    """Reading engines, GPUs and access logs, and when a number counts."""

    scrape_interval_seconds: Seconds = 1.0
    scrape_timeout_seconds: Seconds = 0.8
    stale_after_seconds: Seconds = 10.0
    latency_window_seconds: Seconds = 30.0
    access_log: bool = True
    """Envoys report each finished request: status, times, and the host that served it."""
    error_window_seconds: Seconds = 5.0
    stalled_after_seconds: Seconds = 2.0
    """The engine hangs when requests are in flight, none completes and no counter moves for this long."""
    returning_seconds: NotNegative = 2.0
    """Signals that return after a gap count only after this time."""
    decay_seconds: NotNegative = 15.0
    """Time constant by which an extreme value decays to the peers' mean while no request of ours runs
    there."""
