"""Secrets for Envoys: certificates of listeners and pools, read from files here and sent over ADS.

They are in the snapshot and nowhere else: not in the last good state, the log or the admin server's pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.core.v3 import DataSource
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    Secret,
    SubjectAltNameMatcher,
    SubjectAltNameMatcherSanType,
    TlsCertificate,
    TlsSessionTicketKeys,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher

from fleet.errors import SettingsError
from fleet.names import TYPE_SECRET
from fleet.service.tls import Files
from fleet.settings.check import SAFE_FOR_KEYS, keys_are_safe
from xds_server.snapshot.snapshot import Resource
from xds_server.tls.engine_tls import Dials
from xds_server.tls.ocsp.response import must_staple
from xds_server.tls.ocsp.staples import Staples, StapleTarget
from xds_server.tls.ocsp.store import staple_path
from xds_server.tls.secret_names import (
    listener_certificate,
    listener_tickets,
    pool_authorities,
    pool_certificate,
    secret_names,
)
from xds_server.tls.tickets import Tickets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.service.tls import CertificateProvider, Certificates, Material
    from fleet.settings import PoolSettings, Settings
    from xds_server.tls.engine_tls import Dial
    from xds_server.tls.ocsp.response import Staple


logger = logging.getLogger(__name__)

_HINT: Final = "set its tls.ocsp_fetch or tls.ocsp_file"


@dataclass(frozen=True, slots=True)
class _Cached:
    """Resources with the material and the staple in them."""

    material: Material
    staple: Staple | None
    resources: tuple[Resource, ...]


class Secrets:
    """The secrets of the newest settings, and those of the settings before until the newest are served."""

    def __init__(
        self,
        certificates: Certificates,
        settings: Settings,
        staples: Staples | None = None,
        tickets: Tickets | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Read the files of the settings.

        Raises:
            SettingsError: as for `reconfigure`.
        """
        self._certificates = certificates
        self._staples = staples or Staples()
        self._staples.on_change = self._changed
        self._tickets = tickets or Tickets()
        self._wall = wall
        self._entries: Mapping[str, CertificateProvider] = {}
        self._responders: Mapping[str, str | None] = {}
        """Use whose staple is fetched to the responder's URL; None: the one that the certificate names."""
        self._engine_names: Mapping[str, str] = {}
        """Pool to the name that its engines' certificates must have."""
        self._dials = Dials()
        self._cache: dict[str, _Cached] = {}
        self._waiting: dict[str, Material] = {}
        """Use to material whose wait has been logged."""
        self._keys: dict[str, tuple[tuple[bytes, ...], Resource]] = {}
        self._changes = asyncio.Event()
        """Set by each change."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when files or staples have changed."""
        self.reconfigure(settings)

    @classmethod
    def of_server(
        cls, certificates: Certificates, settings: Settings, registry: CollectorRegistry
    ) -> Secrets:
        """With staples that are kept next to the last good state.

        Raises:
            SettingsError: as for `reconfigure`.
        """
        return cls(certificates, settings, Staples(registry, staple_path(settings)))

    async def start(self) -> None:
        """Load the saved staples and begin to fetch newer ones."""
        await self._staples.start()

    async def first_sync(self, timeout_seconds: float) -> None:
        """Wait for the staples of must-staple certificates; meanwhile Envoys keep their configuration."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while any(self._staples.of(use) is None for use in self._must_staple()):
                    self._changes.clear()
                    await self._changes.wait()

    async def close(self) -> None:
        """Stop fetching staples."""
        await self._staples.close()

    def reconfigure(self, settings: Settings) -> None:
        """Read the files of changed settings.

        Raises:
            SettingsError: files cannot be used, or keys would be sent where others can read them.
        """
        if secret_names(settings) and not keys_are_safe(settings):
            # The file's addresses may differ from those that are bound since the start.
            problem = "xds.address: anyone who can connect could fetch keys"
            raise SettingsError([f"{problem}; allowed: {SAFE_FOR_KEYS}"])
        sets = _files_of(settings)
        for use, path, files in sets:
            # All of them first, so that refused settings change nothing.
            if use not in self._entries or self._entries[use].files != files:
                self._certificates.check(use, path, files)
        entries = {use: self._watch(use, path, files) for use, path, files in sets}
        for use in self._entries.keys() - entries.keys():
            self._certificates.drop(use)
        self._entries = entries
        own = {entry.name: entry.tls for entry in settings.listeners if entry.tls is not None}
        self._responders = {
            listener_certificate(name): entry.ocsp_url for name, entry in own.items() if entry.ocsp_fetch
        }
        self._engine_names = {pool.name: pool.tls.sni for pool in settings.pools if pool.tls is not None}
        sharing = [name for name, entry in own.items() if entry.shared_tickets]
        self._tickets.keep_only(sharing)
        self._keys = {name: cached for name, cached in self._keys.items() if name in sharing}
        self._update_staples()
        for name, entry in own.items():
            alone = not entry.ocsp_fetch and entry.ocsp_file is None
            if alone and must_staple(entries[listener_certificate(name)].material.certificate):
                logger.warning(
                    "clients refuse the certificate of listener %s without a staple: %s", name, _HINT
                )

    def of(self, settings: Settings) -> tuple[Resource, ...]:
        """The secrets of settings that have been read: the same objects until their content changes."""
        resources: list[Resource] = []
        for listener in settings.listeners:
            if listener.tls is not None:
                resources += self._resources(listener_certificate(listener.name), None)
                if listener.tls.shared_tickets:
                    resources.append(self._ticket_keys(listener.name))
        for pool in settings.pools:
            if pool.tls is not None:
                resources += self._resources(f"pool/{pool.name}", pool)
        return tuple(resources)

    def engine_tls(self, pool: str) -> Dial | None:
        """TLS of connections to a pool's engines; None: plaintext."""
        name = self._engine_names.get(pool)
        return None if name is None else self._dials.of(self._entries[f"pool/{pool}"], name)

    def _watch(self, use: str, path: str, files: Files) -> CertificateProvider:
        entry = self._certificates.watch(use, path, files)
        if self._on_files not in entry.on_change:
            entry.on_change.append(self._on_files)
        return entry

    def _on_files(self) -> None:
        self._update_staples()
        self._changed()

    def _changed(self) -> None:
        self._changes.set()
        self.on_change()

    def _must_staple(self) -> list[str]:
        """Uses with a must-staple certificate and a responder."""
        return [use for use in self._responders if must_staple(self._entries[use].material.certificate)]

    def _update_staples(self) -> None:
        self._staples.update(
            {
                use: StapleTarget(self._entries[use].material.certificate, url)
                for use, url in self._responders.items()
            }
        )

    def _resources(self, use: str, pool: PoolSettings | None) -> tuple[Resource, ...]:
        entry = self._entries.get(use)
        cached = self._cache.get(use)
        if entry is None:
            return () if cached is None else cached.resources
        material, staple = entry.material, self._staples.of(use)
        if pool is None and cached is not None and self._waits(use, cached, material, staple):
            return cached.resources
        if cached is None or cached.material is not material or cached.staple is not staple:
            resources = _resources(use, material, staple, pool)
            cached = self._cache[use] = _Cached(material, staple, resources)
        return cached.resources

    def _waits(self, use: str, cached: _Cached, material: Material, staple: Staple | None) -> bool:
        """Whether the old certificate stays until the new one has its staple.

        Envoy refuses a must-staple certificate without a staple, and a new Envoy would have none at all.
        """
        if cached.material is material or not _lacks_staple(material, staple):
            return False
        now = self._wall()
        lasts = cached.staple is None or cached.staple.valid(now)
        if (
            not lasts
            or now >= (cached.material.valid_until or 0.0)
            or _lacks_staple(cached.material, cached.staple)
        ):
            return False
        if self._waiting.get(use) is not material:
            self._waiting[use] = material
            logger.warning("the old certificate of %s stays until the new one has its staple", use)
        return True

    def _ticket_keys(self, listener: str) -> Resource:
        keys = self._tickets.of(listener)
        cached = self._keys.get(listener)
        if cached is None or cached[0] is not keys:
            sources = [DataSource(inline_bytes=key) for key in keys]
            name = listener_tickets(listener)
            secret = Secret(name=name, session_ticket_keys=TlsSessionTicketKeys(keys=sources))
            cached = self._keys[listener] = (keys, _resource(secret))
        return cached[1]


def _lacks_staple(material: Material, staple: Staple | None) -> bool:
    """Whether a must-staple certificate has no staple: clients and Envoy refuse it."""
    return staple is None and not material.ocsp and must_staple(material.certificate)


def _files_of(settings: Settings) -> list[tuple[str, str, Files]]:
    """Use, settings path and files of each certificate."""
    sets = []
    for i, listener in enumerate(settings.listeners):
        if (own := listener.tls) is not None:
            files = Files(own.certificate_file, own.key_file, ocsp_file=own.ocsp_file, for_envoy=True)
            sets.append((listener_certificate(listener.name), f"listeners[{i}].tls", files))
    for i, pool in enumerate(settings.pools):
        if (their := pool.tls) is not None:
            files = Files(their.certificate_file, their.key_file, their.ca_file, for_envoy=True)
            sets.append((f"pool/{pool.name}", f"pools[{i}].tls", files))
    return sets


def _resources(
    use: str, material: Material, staple: Staple | None, pool: PoolSettings | None
) -> tuple[Resource, ...]:
    if pool is None:
        der = material.ocsp if staple is None else staple.der
        return (_resource(Secret(name=use, tls_certificate=_certificate(material, der))),)
    authorities = Secret(name=pool_authorities(pool.name), validation_context=_validation(material, pool))
    if not material.certificate:
        return (_resource(authorities),)
    shown = Secret(name=pool_certificate(pool.name), tls_certificate=_certificate(material))
    return (_resource(authorities), _resource(shown))


def _certificate(material: Material, staple: bytes = b"") -> TlsCertificate:
    return TlsCertificate(
        certificate_chain=DataSource(inline_bytes=material.certificate),
        private_key=DataSource(inline_bytes=material.key),
        ocsp_staple=DataSource(inline_bytes=staple) if staple else None,
    )


def _validation(material: Material, pool: PoolSettings) -> CertificateValidationContext:
    assert pool.tls is not None
    return CertificateValidationContext(
        trusted_ca=DataSource(inline_bytes=material.ca),
        match_typed_subject_alt_names=[
            SubjectAltNameMatcher(
                san_type=SubjectAltNameMatcherSanType.DNS, matcher=StringMatcher(exact=pool.tls.sni)
            )
        ],
    )


def _resource(secret: Secret) -> Resource:
    return Resource.of(secret.name, TYPE_SECRET, bytes(secret))
