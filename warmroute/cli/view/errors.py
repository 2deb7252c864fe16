"""Errors of the verbs that ask an admin server."""

from __future__ import annotations

from fleet.errors import WarmrouteError


class AdminError(WarmrouteError):
    """The admin server gave no usable answer; the text says why."""


class NotThereError(AdminError):
    """The server has no such path, or does not know the requested name."""
