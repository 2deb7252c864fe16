"""The node and the error of a discovery request, for SotW and delta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fleet.endpoint import Locality
from fleet.errors import PeerError

MAX_TEXT: Final = 1024
"""Characters of a node's id, cluster or part of its locality."""


@dataclass(frozen=True, slots=True)
class Client:
    """The node at the other end of a stream, from its first message."""

    node_id: str
    cluster: str
    locality: Locality


def client_of(request: Any) -> Client:
    """Read the node of a stream's first message.

    Raises:
        PeerError: the node lacks an id, or a text is too long.
    """
    node = request.node
    if not node.id:
        raise PeerError("the first message of a stream must carry a node with an id")
    where = node.locality
    for name, text in (
        ("id", node.id),
        ("cluster", node.cluster),
        ("locality.region", where.region),
        ("locality.zone", where.zone),
        ("locality.sub_zone", where.sub_zone),
    ):
        if len(text) > MAX_TEXT:
            raise PeerError(f"node.{name} of {len(text)} characters; allowed: {MAX_TEXT}")
    return Client(node.id, node.cluster, Locality(where.region, where.zone, where.sub_zone))


def error_of(request: Any) -> str | None:
    """The text of a NACK; None for other requests."""
    if not request.HasField("error_detail"):
        return None
    return str(request.error_detail.message).strip() or f"code {request.error_detail.code}"
