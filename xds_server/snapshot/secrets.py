"""Secrets for Envoys: certificates of listeners and pools, read from files here and sent over ADS.

They stand in the snapshot and nowhere else: not in the last good state, nor in the log or in what the admin
server shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy_data_plane.envoy.config.core.v3 import DataSource
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    Secret,
    SubjectAltNameMatcher,
    SubjectAltNameMatcherSanType,
    TlsCertificate,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher

from fleet.errors import SettingsError
from fleet.names import TYPE_SECRET
from fleet.settings.tls import keys_are_safe
from fleet.tls import Files, check
from xds_server.snapshot import tls
from xds_server.snapshot.snapshot import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.settings import PoolSettings, Settings
    from fleet.tls import Certificates, Held, Material


class Secrets:
    """What the newest settings refer to, and until they are served what those before did."""

    def __init__(self, certificates: Certificates, settings: Settings) -> None:
        """Read what the settings name.

        Raises:
            SettingsError: as for `reconfigure`.
        """
        self._certificates = certificates
        self._held: Mapping[str, Held] = {}
        self._made: dict[str, tuple[Material, tuple[Resource, ...]]] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when files have changed."""
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Read what changed settings name.

        Raises:
            SettingsError: files cannot be used, or keys would be sent where others can read them.
        """
        if tls.secret_names(settings) and not keys_are_safe(settings):
            # The addresses of the file may be other ones than those that are bound since the start.
            raise SettingsError(["xds.address: plaintext with keys; allowed: a Unix socket, or tls.xds"])
        wanted = _wanted(settings)
        for use, path, files in wanted:
            # All of them first, so that settings which are refused change nothing.
            if use not in self._held or self._held[use].files != files:
                check(path, files)
        held = {use: self._hold(use, path, files) for use, path, files in wanted}
        for use in self._held.keys() - held.keys():
            self._certificates.drop(use)
        self._held = held

    def of(self, settings: Settings) -> tuple[Resource, ...]:
        """The secrets of settings that have been read: the same objects until files change."""
        made: list[Resource] = []
        for listener in settings.listeners:
            if listener.tls is not None:
                made += self._resources(f"listener/{listener.name}", None)
        for pool in settings.pools:
            if pool.tls is not None:
                made += self._resources(f"pool/{pool.name}", pool)
        return tuple(made)

    def _hold(self, use: str, path: str, files: Files) -> Held:
        held = self._certificates.hold(use, path, files)
        if self._changed not in held.on_change:
            held.on_change.append(self._changed)
        return held

    def _changed(self) -> None:
        self.on_change()

    def _resources(self, use: str, pool: PoolSettings | None) -> tuple[Resource, ...]:
        held = self._held.get(use)
        known = self._made.get(use)
        if held is None:
            return () if known is None else known[1]
        if known is None or known[0] is not held.material:
            known = self._made[use] = (held.material, _resources(use, held.material, pool))
        return known[1]


def _wanted(settings: Settings) -> list[tuple[str, str, Files]]:
    """Use, place in the settings and files of each set."""
    wanted = []
    for i, listener in enumerate(settings.listeners):
        if (own := listener.tls) is not None:
            files = Files(own.certificate_file, own.key_file, ocsp_file=own.ocsp_file)
            wanted.append((f"listener/{listener.name}", f"listeners[{i}].tls", files))
    for i, pool in enumerate(settings.pools):
        if (their := pool.tls) is not None:
            files = Files(their.certificate_file, their.key_file, their.ca_file)
            wanted.append((f"pool/{pool.name}", f"pools[{i}].tls", files))
    return wanted


def _resources(use: str, material: Material, pool: PoolSettings | None) -> tuple[Resource, ...]:
    if pool is None:
        return (_resource(Secret(name=use, tls_certificate=_certificate(material))),)
    authorities = Secret(name=tls.pool_authorities(pool.name), validation_context=_validation(material, pool))
    if not material.certificate:
        return (_resource(authorities),)
    shown = Secret(name=tls.pool_certificate(pool.name), tls_certificate=_certificate(material))
    return (_resource(authorities), _resource(shown))


def _certificate(material: Material) -> TlsCertificate:
    return TlsCertificate(
        certificate_chain=DataSource(inline_bytes=material.certificate),
        private_key=DataSource(inline_bytes=material.key),
        ocsp_staple=DataSource(inline_bytes=material.ocsp) if material.ocsp else None,
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
