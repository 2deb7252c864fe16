"""What holds for all tests: on a busy host, how long an example takes says nothing about the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("any_host", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_host")
