"""Secrets for Envoys: certificates of listeners and pools, read from files here and sent over ADS.

They stand in the snapshot and nowhere else: not in the last good state, nor in the log or in what the admin
server shows.
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
from fleet.settings.tls_check import SAFE_FOR_KEYS, keys_are_safe
from xds_server.snapshot.snapshot import Resource
from xds_server.tls.engine_tls import Dials
from xds_server.tls.ocsp.response import must_staple
from xds_server.tls.ocsp.staples import Staples, Wanted
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
class _Made:
    """Resources with what they are made of."""

    material: Material
    staple: Staple | None
    resources: tuple[Resource, ...]


class Secrets:
    """What the newest settings refer to, and until they are served what those before did."""

    def __init__(
        self,
        certificates: Certificates,
        settings: Settings,
        staples: Staples | None = None,
        tickets: Tickets | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Read what the settings name.

        Raises:
            SettingsError: as for `reconfigure`.
        """
        self._certificates = certificates
        self._staples = staples or Staples()
        self._staples.on_change = self._changed
        self._tickets = tickets or Tickets()
        self._wall = wall
        self._held: Mapping[str, CertificateProvider] = {}
        self._responders: Mapping[str, str | None] = {}
        """Uses whose certificate wants a staple, with whom to ask instead of whom it names."""
        self._engine_names: Mapping[str, str] = {}
        """Pool to the name that its engines' certificates must carry."""
        self._dials = Dials()
        self._made: dict[str, _Made] = {}
        self._waiting: dict[str, Material] = {}
        """Of which it has been told that they wait."""
        self._keys: dict[str, tuple[tuple[bytes, ...], Resource]] = {}
        self._heard = asyncio.Event()
        """Set by each change."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when files, or what is known of them, have changed."""
        self.reconfigure(settings)

    @classmethod
    def of_server(
        cls, certificates: Certificates, settings: Settings, registry: CollectorRegistry
    ) -> Secrets:
        """With staples that are kept beside the last good state.

        Raises:
            SettingsError: as for `reconfigure`.
        """
        return cls(certificates, settings, Staples(registry, staple_path(settings)))

    async def start(self) -> None:
        """Begin to ask for staples; those from before are there at once."""
        await self._staples.start()

    async def first_sync(self, timeout_seconds: float) -> None:
        """Wait for staples of certificates that clients refuse alone: so long Envoys keep what they have."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while any(self._staples.of(use) is None for use in self._must_staple()):
                    self._heard.clear()
                    await self._heard.wait()

    async def close(self) -> None:
        """Ask for no more."""
        await self._staples.close()

    def reconfigure(self, settings: Settings) -> None:
        """Read what changed settings name.

        Raises:
            SettingsError: files cannot be used, or keys would be sent where others can read them.
        """
        if secret_names(settings) and not keys_are_safe(settings):
            # The addresses of the file may be other ones than those that are bound since the start.
            told = "xds.address: whoever can connect could fetch keys"
            raise SettingsError([f"{told}; allowed: {SAFE_FOR_KEYS}"])
        wanted = _wanted(settings)
        for use, path, files in wanted:
            # All of them first, so that settings which are refused change nothing.
            if use not in self._held or self._held[use].files != files:
                self._certificates.check(use, path, files)
        held = {use: self._hold(use, path, files) for use, path, files in wanted}
        for use in self._held.keys() - held.keys():
            self._certificates.drop(use)
        self._held = held
        own = {entry.name: entry.tls for entry in settings.listeners if entry.tls is not None}
        self._responders = {
            listener_certificate(name): entry.ocsp_url for name, entry in own.items() if entry.ocsp_fetch
        }
        self._engine_names = {pool.name: pool.tls.sni for pool in settings.pools if pool.tls is not None}
        sharing = [name for name, entry in own.items() if entry.shared_tickets]
        self._tickets.keep_only(sharing)
        self._keys = {name: known for name, known in self._keys.items() if name in sharing}
        self._want_staples()
        for name, entry in own.items():
            alone = not entry.ocsp_fetch and entry.ocsp_file is None
            if alone and must_staple(held[listener_certificate(name)].material.certificate):
                logger.warning(
                    "clients refuse the certificate of listener %s without a staple: %s", name, _HINT
                )

    def of(self, settings: Settings) -> tuple[Resource, ...]:
        """The secrets of settings that have been read: the same objects until something in them changes."""
        made: list[Resource] = []
        for listener in settings.listeners:
            if listener.tls is not None:
                made += self._resources(listener_certificate(listener.name), None)
                if listener.tls.shared_tickets:
                    made.append(self._ticket_keys(listener.name))
        for pool in settings.pools:
            if pool.tls is not None:
                made += self._resources(f"pool/{pool.name}", pool)
        return tuple(made)

    def engine_tls(self, pool: str) -> Dial | None:
        """How to speak to a pool's engines; None: in plaintext."""
        name = self._engine_names.get(pool)
        return None if name is None else self._dials.of(self._held[f"pool/{pool}"], name)

    def _hold(self, use: str, path: str, files: Files) -> CertificateProvider:
        held = self._certificates.watch(use, path, files)
        if self._read_anew not in held.on_change:
            held.on_change.append(self._read_anew)
        return held

    def _read_anew(self) -> None:
        self._want_staples()
        self._changed()

    def _changed(self) -> None:
        self._heard.set()
        self.on_change()

    def _must_staple(self) -> list[str]:
        """Uses whose certificate clients refuse without a staple, of those that have somebody to ask."""
        return [use for use in self._responders if must_staple(self._held[use].material.certificate)]

    def _want_staples(self) -> None:
        self._staples.update(
            {use: Wanted(self._held[use].material.certificate, url) for use, url in self._responders.items()}
        )

    def _resources(self, use: str, pool: PoolSettings | None) -> tuple[Resource, ...]:
        held = self._held.get(use)
        known = self._made.get(use)
        if held is None:
            return () if known is None else known.resources
        material, staple = held.material, self._staples.of(use)
        if pool is None and known is not None and self._waits(use, known, material, staple):
            return known.resources
        if known is None or known.material is not material or known.staple is not staple:
            resources = _resources(use, material, staple, pool)
            known = self._made[use] = _Made(material, staple, resources)
        return known.resources

    def _waits(self, use: str, known: _Made, material: Material, staple: Staple | None) -> bool:
        """Whether a new certificate waits for its staple behind the old one.

        Envoy refuses one that clients refuse without a staple, and a fresh Envoy would have none at all.
        """
        if known.material is material or not _lacks_staple(material, staple):
            return False
        now = self._wall()
        lasts = known.staple is None or known.staple.valid(now)
        if (
            not lasts
            or now >= (known.material.valid_until or 0.0)
            or _lacks_staple(known.material, known.staple)
        ):
            return False
        if self._waiting.get(use) is not material:
            self._waiting[use] = material
            logger.warning("the new certificate of %s waits for its staple behind the one before", use)
        return True

    def _ticket_keys(self, listener: str) -> Resource:
        keys = self._tickets.of(listener)
        known = self._keys.get(listener)
        if known is None or known[0] is not keys:
            sources = [DataSource(inline_bytes=key) for key in keys]
            name = listener_tickets(listener)
            secret = Secret(name=name, session_ticket_keys=TlsSessionTicketKeys(keys=sources))
            known = self._keys[listener] = (keys, _resource(secret))
        return known[1]


def _lacks_staple(material: Material, staple: Staple | None) -> bool:
    """Whether clients, and Envoy, refuse a certificate with what is stapled to it."""
    return staple is None and not material.ocsp and must_staple(material.certificate)


def _wanted(settings: Settings) -> list[tuple[str, str, Files]]:
    """Use, place in the settings and files of each set."""
    wanted = []
    for i, listener in enumerate(settings.listeners):
        if (own := listener.tls) is not None:
            files = Files(own.certificate_file, own.key_file, ocsp_file=own.ocsp_file, for_envoy=True)
            wanted.append((listener_certificate(listener.name), f"listeners[{i}].tls", files))
    for i, pool in enumerate(settings.pools):
        if (their := pool.tls) is not None:
            files = Files(their.certificate_file, their.key_file, their.ca_file, for_envoy=True)
            wanted.append((f"pool/{pool.name}", f"pools[{i}].tls", files))
    return wanted


def _resources(
    use: str, material: Material, staple: Staple | None, pool: PoolSettings | None
) -> tuple[Resource, ...]:
    if pool is None:
        told = material.ocsp if staple is None else staple.der
        return (_resource(Secret(name=use, tls_certificate=_certificate(material, told))),)
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
