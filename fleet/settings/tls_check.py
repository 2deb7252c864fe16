"""Which TLS sections need each other, and what an exposed address needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.settings.address import is_local

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.settings.model import Settings
    from fleet.settings.strict import FieldPath
    from fleet.settings.tls import ServerTlsSettings

SAFE_FOR_KEYS: Final = "xds.address a Unix socket, or tls.xds with client_ca_file"


def contradictions(settings: Settings) -> Iterator[tuple[FieldPath, str]]:
    """Return path and text of each TLS section that lacks another one, and of unprotected keys."""
    tls = settings.tls
    for service in ("xds", "ext_proc"):
        if getattr(tls, service) is not None and tls.envoy is None:
            yield ("tls", service), "without tls.envoy no Envoy could connect; allowed: both or neither"
    if tls.control is not None and tls.workers is None:
        yield ("tls", "control"), "without tls.workers no worker could connect; allowed: both or neither"
    admin, workers = tls.admin, settings.ext_proc.workers
    if admin is not None and admin.client_ca_file is not None and workers > 1:
        yield (
            ("tls", "admin", "client_ca_file"),
            f"allowed: none with ext_proc.workers = {workers}, whose parent asks them without one",
        )
    if keys_are_safe(settings):
        return
    text = f"every peer that can connect to xds.address could fetch {{}}; allowed: {SAFE_FOR_KEYS}"
    for i, listener in enumerate(settings.listeners):
        if listener.tls is not None:
            yield ("listeners", i, "tls"), text.format("this listener's key")
    for i, pool in enumerate(settings.pools):
        if pool.tls is not None:
            what = "this pool's key" if pool.tls.key_file else "what this pool trusts"
            yield ("pools", i, "tls"), text.format(what)


def keys_are_safe(settings: Settings) -> bool:
    """Whether only authorised peers can read what xds_server sends."""
    own = settings.tls.xds
    return settings.xds.address.startswith("unix:") or (own is not None and own.client_ca_file is not None)


def missing_guard(settings: Settings, path: str, address: str) -> str | None:
    """Return what an exposed address lacks; None: its TLS is enough."""
    service = path.partition(".")[0]
    section: ServerTlsSettings | None = getattr(settings.tls, service)
    if is_local(address):
        return None
    if section is None:
        return f"a Unix socket or loopback, or tls.{service}, or allow_plaintext: true"
    if service != "admin" and section.client_ca_file is None:
        return f"a Unix socket or loopback, or tls.{service}.client_ca_file"
    return None
