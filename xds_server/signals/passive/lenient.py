"""Retries that blame no engine, because a 4xx may have been the reason. Pure.

The log has the last attempt only: it shows that another one was before, and not what the answer to it was.
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

_RETRIED_4XX: Final = frozenset(
    ("retriable-4xx", "retriable-status-codes", "retriable-headers", "envoy-ratelimited")
)


@dataclass(frozen=True, slots=True)
class Lenient:
    """What may be retried for a 4xx."""

    pools: frozenset[str] = frozenset()
    """All requests of these."""
    keyed: frozenset[str] = frozenset()
    """Of these, requests that ext_proc has given a key to: only they are repeated for their status."""
    handshakes: bool = False
    """Handshakes of WebSockets: the next engine is tried when one has none."""

    def forgives(self, finished: Finished) -> bool:
        """Whether a retry of this request says nothing of the engine that was tried before."""
        return (
            finished.cluster in self.pools
            or (self.handshakes and finished.handshake)
            or (finished.cluster in self.keyed and METADATA_RETRY_ON in finished.metadata)
        )


BLAMING: Final = Lenient()
"""Nothing is retried for a 4xx."""


def lenient_of(settings: Settings) -> Lenient:
    """Return what the routes that follow from these settings retry for what may be a 4xx."""
    streaming = settings.ext_proc.idempotency.enabled and settings.ext_proc.idempotency.streaming
    return Lenient(
        frozenset(_by_policy(settings.pools)),
        frozenset(pool.name for pool in settings.pools if _repeats_4xx(pool, streaming_keys=streaming)),
        any(map(_is_4xx, settings.upgrades.retry_statuses)),
    )


def _by_policy(pools: Iterable[PoolSettings]) -> Iterable[str]:
    return (pool.name for pool in pools if not _RETRIED_4XX.isdisjoint(pool.retry_on.split(",")))


def _repeats_4xx(pool: PoolSettings, *, streaming_keys: bool) -> bool:
    derived = derive(pool, streaming_keys=streaming_keys)
    return derived is not None and any(map(_is_4xx, derived.retriable_status_codes))


def _is_4xx(status: int) -> bool:
    return 400 <= status < 500
