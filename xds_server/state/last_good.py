"""The last good state on disk: endpoints and weights, for a start without discovery or engines.

    warmroute-last-good VERSION SHA-256-OF-THE-REST
    {"saved_at": ..., "settings": ..., "pools": [...]}

Clusters, listeners and routes come from the settings, so the file and equal settings give an equal snapshot.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from pydantic import ValidationError

from fleet.cause import cause_of
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.errors import WarmrouteError
from fleet.settings import EndpointSettings
from fleet.settings.membership import endpoint_of
from fleet.settings.pools import KvEventSettings, LocalitySettings
from xds_server.state.whole_file import read_whole, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.settings import PoolSettings, Settings

logger = logging.getLogger(__name__)

VERSION: Final = 1
REFUSALS: Final = ("unreadable", "damaged", "version", "settings")
_MAGIC: Final = b"warmroute-last-good"
_MAX_BYTES: Final = 256 * 1024 * 1024
_SUFFIX: Final = ".last-good"


class RefusedError(WarmrouteError):
    """The file is not used; `reason` is one of `REFUSALS`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class LastGood:
    """The endpoints that Envoys got, without those that were leaving."""

    membership: Membership
    weights: Mapping[str, int]
    unhealthy: frozenset[str]
    static: frozenset[str]
    """Addresses from `pools.endpoints`: the settings of the next start may lack them."""
    saved_at: float = field(default=0.0, compare=False)
    """Seconds since the epoch."""

    @property
    def discovered(self) -> Membership:
        """The endpoints of sources, without those from `pools.endpoints`."""
        return Membership(
            tuple(
                Pool(pool.name, tuple(e for e in pool.endpoints if e.address not in self.static))
                for pool in self.membership.pools
            )
        )

    @property
    def saved_at_text(self) -> str:
        """In ISO 8601, UTC."""
        return datetime.fromtimestamp(self.saved_at, UTC).isoformat(timespec="seconds")


class _Entry(msgspec.Struct):
    endpoint: msgspec.Raw
    """As in a list of endpoints."""
    weight: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None
    unhealthy: bool
    static: bool


class _Pool(msgspec.Struct):
    name: str
    endpoints: list[_Entry]


class _File(msgspec.Struct):
    saved_at: float
    settings: str
    pools: list[_Pool]


def state_path(settings: Settings) -> Path | None:
    """The file of the state; None: no file.

    By default next to the Unix socket of discovery, whose directory is this server's alone and writable
    anyway. There is no default for a TCP address.
    """
    path, address = settings.xds.state_path, settings.xds.address
    if path is None and address.startswith("unix:"):
        return Path(address.removeprefix("unix:") + _SUFFIX)
    return Path(path) if path else None


def fingerprint(settings: Settings) -> str:
    """Hash of the pools' names and sources, without their endpoints: a state is valid for equal ones."""
    sources = {
        pool.name: [
            entry.file.path
            if entry.file is not None
            else entry.dns and [entry.dns.name, entry.dns.kind, entry.dns.port]
            for entry in pool.discovery
        ]
        for pool in settings.pools
    }
    return sha256(msgspec.json.encode(sources, order="sorted")).hexdigest()


def encode(state: LastGood, settings: Settings) -> bytes:
    """The file's content."""
    body = msgspec.json.encode(
        _File(
            state.saved_at,
            fingerprint(settings),
            [
                _Pool(pool.name, [_entry(endpoint, state) for endpoint in pool.endpoints])
                for pool in state.membership.pools
            ],
        )
    )
    return b"%s %d %s\n%s" % (_MAGIC, VERSION, sha256(body).hexdigest().encode(), body)


def decode(content: bytes, settings: Settings) -> LastGood:
    """Read the inverse of `encode`, for the current settings.

    Raises:
        RefusedError: it is damaged, of another version, or of other settings.
    """
    header, _, body = content.partition(b"\n")
    words = header.split(b" ")
    if len(words) != 3 or words[0] != _MAGIC:
        raise RefusedError("damaged", "it does not begin as a last good state does")
    if words[1] != str(VERSION).encode():
        raise RefusedError("version", f"its version is {words[1][:20]!r}, this server reads {VERSION}")
    if words[2] != sha256(body).hexdigest().encode():
        raise RefusedError("damaged", "its checksum is wrong")
    try:
        file = msgspec.json.decode(body, type=_File)
        if file.settings != fingerprint(settings):
            raise RefusedError("settings", "its pools or their sources are not those of the settings")
        return _state(file, {pool.name: pool for pool in settings.pools})
    except (msgspec.DecodeError, UnicodeDecodeError, ValidationError, KeyError) as error:
        raise RefusedError("damaged", f"its content is wrong: {type(error).__name__}") from error


def read(path: Path, settings: Settings) -> LastGood | None:
    """Read the file; None without one.

    Raises:
        RefusedError: it cannot be used.
    """
    try:
        content = read_whole(path, _MAX_BYTES)
    except OSError as error:
        raise RefusedError("unreadable", cause_of(error)) from error
    if content is None:
        return None
    if len(content) > _MAX_BYTES:
        raise RefusedError("damaged", f"it is larger than {_MAX_BYTES} bytes")
    return decode(content, settings)


def write(path: Path, state: LastGood, settings: Settings) -> None:
    """Replace the file as a whole: after a crash there is the old one or the new one.

    Raises:
        OSError: it cannot be written.
    """
    # Readable by its owner only: a metrics URL may contain a password.
    write_whole(path, encode(state, settings))


def _entry(endpoint: Endpoint, state: LastGood) -> _Entry:
    place, source = endpoint.locality, endpoint.kv_events
    settings = EndpointSettings.model_construct(
        address=endpoint.address,
        models=endpoint.models,
        engine=endpoint.engine,
        metrics_url=endpoint.metrics_url,
        node="" if endpoint.node == endpoint.host else endpoint.node,
        gpus=endpoint.gpus,
        gpu_metrics_url=endpoint.gpu_metrics_url or None,
        # The first one is the node, which `endpoint_of` adds again.
        fault_domains=endpoint.fault_domains[1:],
        locality=LocalitySettings(region=place.region, zone=place.zone, sub_zone=place.sub_zone),
        kv_events=source
        and KvEventSettings(
            port=source.port,
            replay_port=source.replay_port or None,
            topic=source.topic,
            ranks=source.ranks,
        ),
    )
    # Without defaults, so that a server of an older version reads it too.
    return _Entry(
        msgspec.Raw(settings.model_dump_json(exclude_defaults=True).encode()),
        state.weights.get(endpoint.address),
        endpoint.address in state.unhealthy,
        endpoint.address in state.static,
    )


def _state(file: _File, pools: Mapping[str, PoolSettings]) -> LastGood:
    members, weights = [], {}
    unhealthy, static = set(), set()
    for pool in file.pools:
        endpoints = []
        settings = pools[pool.name]
        # Without sources the file adds no endpoint: its writer could send traffic anywhere.
        allowed = (
            None if settings.discovery else {entry_settings.address for entry_settings in settings.endpoints}
        )
        for entry in pool.endpoints:
            entry_settings = EndpointSettings.model_validate_json(bytes(entry.endpoint))
            if allowed is not None and entry_settings.address not in allowed:
                continue
            endpoints.append(endpoint_of(settings, entry_settings))
            if entry.weight is not None:
                weights[entry_settings.address] = entry.weight
            if entry.unhealthy:
                unhealthy.add(entry_settings.address)
            if entry.static or allowed is not None:
                static.add(entry_settings.address)
        members.append(Pool(pool.name, tuple(endpoints)))
    return LastGood(
        Membership(tuple(members)), weights, frozenset(unhealthy), frozenset(static), file.saved_at
    )
