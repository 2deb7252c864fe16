"""How late a client is with what it was not sent."""

from __future__ import annotations

from fleet.endpoint import Locality
from fleet.names import TYPE_ENDPOINT
from xds_server.discovery.progress import Progress
from xds_server.discovery.status import ClientStatus, TypeStatus


def test_client_with_an_old_version_is_not_late_at_first() -> None:
    """It has named the version that another server gave it; nothing was sent to it here."""
    status = TypeStatus(TYPE_ENDPOINT, version_sent="", version_acked="v1", version_nacked="", error="")
    progress = Progress(2, clock=lambda: 7.0, wall=lambda: 7.0)
    shown = progress.of(ClientStatus("node-1", "fleet", Locality(), "sotw", 1, (status,)))
    assert [(entry.state, entry.lag_seconds) for entry in shown.types] == [("not_sent", 0.0)]
    assert shown.lag_seconds == 0.0
