"""Faults of what is read."""

from __future__ import annotations

from fleet.errors import WarmrouteError


class DoctorError(WarmrouteError):
    """There is nothing that can be examined; the text says why."""
