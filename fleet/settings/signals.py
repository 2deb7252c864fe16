"""Where signals come from, and when they are to be trusted."""

from __future__ import annotations

from fleet.settings.strict import NotNegative, Seconds, Strict


class SignalSettings(Strict):
    """Reading engines, GPUs and access logs, and when a number is believed."""

    scrape_interval_seconds: Seconds = 1.0
    scrape_timeout_seconds: Seconds = 0.8
    stale_after_seconds: Seconds = 10.0
    latency_window_seconds: Seconds = 30.0
    access_log: bool = True
    """Envoys tell of each finished request: status, times, and the host that really served."""
    error_window_seconds: Seconds = 5.0
    stalled_after_seconds: Seconds = 2.0
    """Requests of ours in flight, none completing and no counter moving for so long: the engine hangs."""
    returning_seconds: NotNegative = 2.0
    """Signals that come back after a silence count only when they have been there this long."""
    decay_seconds: NotNegative = 15.0
    """An extreme value fades to the peers' mean with this time constant while nothing of ours runs there."""
