"""Names of the secrets that listeners and clusters refer to and that the secret discovery service serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.settings import Settings


def listener_certificate(listener: str) -> str:
    """Name of the secret with a listener's certificate."""
    return f"listener/{listener}"


def listener_tickets(listener: str) -> str:
    """Name of the secret with the keys of a listener's session tickets."""
    return f"listener/{listener}/tickets"


def pool_certificate(pool: str) -> str:
    """Name of the secret with the client certificate that Envoys present to a pool's engines."""
    return f"pool/{pool}/certificate"


def pool_authorities(pool: str) -> str:
    """Name of the secret with the authorities that sign the certificates of a pool's engines."""
    return f"pool/{pool}/authorities"


def secret_names(settings: Settings) -> set[str]:
    """The secrets that listeners and pools of these settings refer to."""
    names = {listener_certificate(entry.name) for entry in settings.listeners if entry.tls is not None}
    names |= {
        listener_tickets(entry.name) for entry in settings.listeners if entry.tls and entry.tls.shared_tickets
    }
    for pool in settings.pools:
        if pool.tls is not None:
            names.add(pool_authorities(pool.name))
            if pool.tls.certificate_file is not None:
                names.add(pool_certificate(pool.name))
    return names
