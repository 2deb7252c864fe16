"""Keys of requests that may be repeated, and refusals of duplicates.

For each request: `key_of`, then `begin` and `confirm` before the pick if duplicates are refused, and `end`
with the stream. Faults of the store let requests through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client import Counter, Gauge

from ext_proc.idempotency.key import repeatable
from ext_proc.idempotency.shared import SharedClaims
from ext_proc.idempotency.store import Claims
from ext_proc.pick.result import Refusal
from ext_proc.protocol.attributes import CROWDED, METHOD
from fleet.names import CLIENT_KEY_HEADER, METADATA_FIRST_BYTE, METADATA_IDEMPOTENCY, METADATA_RETRY_ON
from fleet.settings.sla_policy import KEYED, derive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from ext_proc.idempotency.store import Claim
    from ext_proc.prompt.decode import ParsedBody
    from ext_proc.protocol.attributes import HttpRequest
    from fleet.settings import Settings

DUPLICATE: Final = Refusal(
    409,
    "A request with the same path, idempotency-key (if any) and body is in flight. Please try again when it"
    " has ended, or tell the two apart by idempotency-key.",
    1.0,
)


class RequestKey(NamedTuple):
    """The key of a request that may be repeated."""

    key: str
    streams: bool
    metadata: Mapping[str, str]
    """For Envoy, by key of our metadata namespace."""
    by_client: bool
    """Whether the client sent a key of its own."""


class Metrics(NamedTuple):
    """What is counted."""

    keys: Counter
    duplicates: Counter
    unchecked: Counter
    faults: Counter

    @classmethod
    def on(cls, registry: CollectorRegistry) -> Metrics:
        """Create them."""
        return cls(
            Counter("warmroute_idempotency_keys", "Requests with a key", registry=registry),
            Counter(
                "warmroute_duplicates",
                "Requests refused because an equal one was in flight",
                registry=registry,
            ),
            Counter(
                "warmroute_duplicates_unchecked",
                "Requests let through without a check for an equal one in flight",
                registry=registry,
            ),
            Counter(
                "warmroute_idempotency_store_faults",
                "Requests to the store without an answer",
                registry=registry,
            ),
        )


class Idempotency:
    """The requests in flight with a key. Single-threaded."""

    def __init__(
        self, settings: Settings, registry: CollectorRegistry, clock: Callable[[], float], worker: str
    ) -> None:
        """`worker` is unique among all workers.

        Raises:
            SettingsError: a shared store is configured, and the extra `redis` is not installed.
        """
        self._clock = clock
        self._metrics = Metrics.on(registry)
        idempotency = settings.ext_proc.idempotency
        self._claims = Claims(idempotency.entries, idempotency.expiry_seconds)
        flying = Gauge("warmroute_idempotency_in_flight", "Keys that are in flight", registry=registry)
        flying.set_function(lambda: len(self._claims))
        self._shared = (
            SharedClaims(idempotency, worker, self._metrics.faults.inc, clock=clock)
            if idempotency.url.get_secret_value()
            else None
        )
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Take over changed settings; the shared store stays as it was at the start."""
        idempotency = self._settings = settings.ext_proc.idempotency
        self._claims.entries, self._claims.expiry_seconds = idempotency.entries, idempotency.expiry_seconds
        self._tenant_header = settings.ext_proc.pick.tenant_header
        self._paths = frozenset(idempotency.paths)
        self._retries: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        """Pool to the metadata of its whole answers and of its streams, in addition to the key."""
        for pool in settings.pools:
            derived = derive(pool, streaming_keys=idempotency.streaming)
            whole = {METADATA_RETRY_ON: KEYED} if derived is not None and derived.repeats_keyed else {}
            limited = derived is not None and derived.hedged
            late = {METADATA_FIRST_BYTE: str(derived.answer_ms)} if derived is not None and limited else {}
            self._retries[pool.name] = (whole, {**whole, **late})

    def key_of(self, request: HttpRequest, parsed: ParsedBody) -> RequestKey | None:
        """Return the key of a request that may be repeated; None for any other."""
        settings = self._settings
        if not settings.enabled or parsed.envelope is None:
            return None
        attributes = request.attributes
        # The bytes of a compressed body may differ, and a crowded request has no room for the key.
        if request.content_encoding or attributes.get(CROWDED):
            return None
        client_key = attributes.get(CLIENT_KEY_HEADER, "")
        request_key = repeatable(
            # Without headers, Envoy's routes have passed only POST.
            attributes.get(METHOD, "POST"),
            request.path,
            request.body,
            parsed.envelope,
            self._paths,
            tenant=attributes.get(self._tenant_header, "").strip(),
            client_key=client_key,
        )
        if request_key is None or (request_key.streams and not settings.streaming):
            return None
        self._metrics.keys.inc()
        retries = self._retries_of(request.cluster)[request_key.streams]
        metadata = {METADATA_IDEMPOTENCY: request_key.key, **retries}
        return RequestKey(request_key.key, request_key.streams, metadata, bool(client_key))

    def begin(self, key: RequestKey) -> Claim | None:
        """Return the claim of a new request; None: it is a duplicate, to be refused with `DUPLICATE`.

        Only for requests that `refuses` allows to refuse.
        """
        claim = self._claims.claim(key.key, self._clock())
        if claim is None:
            self._metrics.duplicates.inc()
        elif not claim.token:
            self._metrics.unchecked.inc()
        return claim

    def refuses(self, key: RequestKey) -> bool:
        """Return whether a request may be refused as a duplicate: never one for a stream.

        A client may intend two equal requests without a key of its own, so they are duplicates only by an
        explicit setting.
        """
        duplicates = self._settings.duplicates
        return not key.streams and (duplicates == "reject" or (duplicates == "named" and key.by_client))

    @property
    def shared(self) -> bool:
        """Whether workers share keys, so that `confirm` may wait."""
        return self._shared is not None

    async def confirm(self, claim: Claim) -> bool:
        """Return whether a claim is valid among all workers, or unknown; False: a duplicate, now released."""
        if self._shared is None or not claim.token:
            return True
        free = await self._shared.claim(claim.key, claim.token)
        if free is None:
            self._metrics.unchecked.inc()
        elif not free:
            self._metrics.duplicates.inc()
            self._claims.release(claim)
        return free is not False

    def end(self, claim: Claim) -> None:
        """Release the claim of a request that has ended, or was not sent."""
        self._claims.release(claim)
        if self._shared is not None and claim.token:
            self._shared.release(claim.key, claim.token)

    async def close(self) -> None:
        """Disconnect from the store."""
        if self._shared is not None:
            await self._shared.close()

    def _retries_of(self, cluster: str) -> tuple[dict[str, str], dict[str, str]]:
        if not cluster and len(self._retries) == 1:
            return next(iter(self._retries.values()))
        return self._retries.get(cluster, ({}, {}))
