"""Where an endpoint's metrics page may be, apart from the URL in the settings. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.endpoint import address_of
from xds_server.http1.place import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.endpoint import Endpoint
    from xds_server.signals.scrape.rules import Table


def usual_places(
    endpoint: Endpoint, tables: Mapping[str, Table], *, shares_host: bool = False
) -> list[tuple[str, Table]]:
    """Return the URLs at which kinds of engine have their pages, each with the only table that counts there.

    None for an endpoint with a page of its own in the settings. `shares_host`: other endpoints have the same
    host, so a page at another port may be theirs.
    """
    default = f"://{endpoint.address}/metrics"
    scheme, _, _ = endpoint.metrics_url.partition("://")
    if endpoint.metrics_url != scheme + default:
        return []
    places = []
    for table in tables.values():
        usual = table.usual
        if usual is None or (usual.port is not None and shares_host):
            continue
        at = address_of(endpoint.host, usual.port or endpoint.port)
        # A page at another port has no part in the TLS of requests.
        places.append((f"{scheme if usual.port is None else 'http'}://{at}{usual.path}", table))
    return places


def at_own_port(endpoint: Endpoint, url: str) -> bool:
    """Whether the engine itself serves a page, not a separate exporter."""
    # Most do, by default; to take thousands of URLs apart at once would hold the loop.
    if url.partition("://")[2].startswith(f"{endpoint.address}/"):
        return True
    try:
        place = place_of(url)
    except ValueError:
        return False
    return (place.host, place.port) == (endpoint.host, endpoint.port)


def takes_key(endpoint: Endpoint, url: str) -> bool:
    """Whether a request may carry the key of an engine's API.

    It may on the engine's own host, at its own port and at that of its page in the settings, and if the URL
    has no user's name and password of its own. Another port, where a page is looked for, may be a stranger's.
    """
    try:
        place, page = place_of(url), place_of(endpoint.metrics_url or url)
    except ValueError:
        return False
    return (
        place.host == endpoint.host
        and place.port in (endpoint.port, page.port)
        and "@" not in url.partition("://")[2].partition("/")[0]
    )
