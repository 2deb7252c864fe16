"""Which retries count as faults of the engine that was tried before. Pure.

The access log shows only the last attempt. It shows that an earlier attempt was made, but not its answer.
Where Envoy also retries after a 4xx, the earlier engine may have been sound, so the retry is no fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleet.names import METADATA_RETRY_ON
from fleet.settings.sla_policy import derive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.settings import PoolSettings, Settings
    from xds_server.access_log.finished import Finished

_RETRIED_4XX: Final = frozenset(("retriable-4xx", "retriable-headers", "envoy-ratelimited"))


@dataclass(frozen=True, slots=True)
class RetryBlame:
    """The requests that Envoy may retry after a 4xx."""

    pools: frozenset[str] = frozenset()
    """Pools whose requests Envoy may all retry after a 4xx."""
    keyed: frozenset[str] = frozenset()
    """Pools in which Envoy may retry a request after a 4xx if ext_proc gave it a key."""
    handshakes: bool = False
    """Whether Envoy may retry WebSocket handshakes after a 4xx: an engine without WebSockets sends one."""

    def blames_engine(self, finished: Finished) -> bool:
        """Whether a retry of this request counts as a fault of the engine that was tried before."""
        return not (
            finished.cluster in self.pools
            or (self.handshakes and finished.handshake)
            or (finished.cluster in self.keyed and METADATA_RETRY_ON in finished.metadata)
        )


BLAME_ALL_RETRIES: Final = RetryBlame()
"""Envoy retries nothing after a 4xx, so every retry is a fault."""


def retry_blame_of(settings: Settings) -> RetryBlame:
    """Return the blame that follows from the retries in the routes of these settings."""
    streaming = settings.ext_proc.idempotency.enabled and settings.ext_proc.idempotency.streaming
    return RetryBlame(
        frozenset(_by_policy(settings.pools)),
        frozenset(pool.name for pool in settings.pools if _repeats_4xx(pool, streaming_keys=streaming)),
        any(map(_is_4xx, settings.upgrades.retry_statuses)),
    )


def _by_policy(pools: Iterable[PoolSettings]) -> Iterable[str]:
    for pool in pools:
        by_status = pool.sla is None and any(map(_is_4xx, pool.retry_statuses))
        if by_status or not _RETRIED_4XX.isdisjoint(pool.retry_on.split(",")):
            yield pool.name


def _repeats_4xx(pool: PoolSettings, *, streaming_keys: bool) -> bool:
    derived = derive(pool, streaming_keys=streaming_keys)
    return derived is not None and any(map(_is_4xx, derived.retriable_status_codes))


def _is_4xx(status: int) -> bool:
    return 400 <= status < 500
