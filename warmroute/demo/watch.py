"""What the admin server says of a running deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warmroute.demo.cluster import Cluster


async def warmroute_status(cluster: Cluster) -> dict[str, Any]:
    """Return /api/v1/status; apart, that of xds with the picks of ext-proc."""
    status: dict[str, Any] = await cluster.get_json(cluster.admin_address, "/api/v1/status") or {}
    if cluster.settings.router == "apart":
        other = await cluster.get_json(cluster.ext_proc_admin_address, "/api/v1/status") or {}
        status = {**other, **status, "picks": other.get("picks")}
    return status


def by_address(document: Any) -> dict[str, Mapping[str, Any]]:
    """Return the entries of /api/v1/endpoints by their addresses."""
    return {entry["address"]: entry for entry in (document or {}).get("endpoints", ())}
