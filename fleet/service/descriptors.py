"""File descriptors: as many as the system allows, and a share of them for each server.

Without shares, a peer that opens many connections to one server would leave the other servers none.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

logger = logging.getLogger(__name__)

_MOST: Final = 1_048_576
"""If the system has no limit."""
_GRPC_CONNECTIONS: Final = 65_536
"""Of one gRPC server; an idle connection takes 14 KB."""
_HTTP_CONNECTIONS: Final = 256
"""Of one HTTP server: far more than scrapers, health checks and people need."""


def raise_limit() -> None:
    """Raise this process's soft limit to the hard one: many systems start with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError) as error:
        logger.warning("the limit of open files stays at %s: %s", soft, error)


def grpc_connections() -> int:
    """Return the most connections of a gRPC server: a quarter, because a process has up to three servers."""
    return max(16, min(_GRPC_CONNECTIONS, _limit() // 4))


def http_connections() -> int:
    """Return the most connections of an HTTP server."""
    return max(8, min(_HTTP_CONNECTIONS, _limit() // 8))


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)
