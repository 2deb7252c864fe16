"""Faults of what is read."""

from __future__ import annotations

from fleet.errors import WarmrouteError


class DoctorError(WarmrouteError):
    """There is nothing that can be examined; the text says why.

    `document` is which of what is read the text is about: `configuration`, `clusters`, `stats`; "" if it says
    so itself.
    """

    def __init__(self, text: str, document: str = "") -> None:
        super().__init__(text)
        self.document = document
