"""Check of certificates, token and engines' keys on this host against the settings.

Other files that cannot be read here are skipped: the parts that use them report that.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from fleet.errors import SettingsError
from fleet.service.admin_access import TokenFile
from fleet.service.roles import PeerNames, has_role
from fleet.service.tls_files import is_issued_by
from fleet.settings.role_check import Finding, asking_services, keys_by_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleet.settings import PeerTlsSettings, Settings

LEAST_TOKEN_CHARS: Final = 16
_SERVICES: Final = ("xds", "ext_proc", "control", "admin")
_DIALLED_BY: Final = (("xds", "envoy"), ("ext_proc", "envoy"), ("control", "workers"))
"""Our services, and the section with the name that their clients require."""
_SIDES: Final = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


def host_findings(settings: Settings) -> tuple[Finding, ...]:
    """Return the files of this host that cannot serve their purpose, or allow more than they should."""
    return (
        *_usages(settings),
        *_server_names(settings),
        *_authorities(settings),
        *_workers(settings),
        *_envoys(settings),
        *_fetching(settings),
        *_token(settings),
        *_api_keys(settings),
    )


def _own(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield path, file and side of each certificate of this host, and of Envoys for it."""
    for service in _SERVICES:
        section = getattr(settings.tls, service)
        if section is not None:
            yield f"tls.{service}.certificate_file", section.certificate_file, "server"
    for i, listener in enumerate(settings.listeners):
        if listener.tls is not None:
            yield f"listeners[{i}].tls.certificate_file", listener.tls.certificate_file, "server"
    for i, pool in enumerate(settings.pools):
        if pool.tls is not None and pool.tls.certificate_file is not None:
            yield f"pools[{i}].tls.certificate_file", pool.tls.certificate_file, "client"
    if settings.tls.workers is not None:
        yield "tls.workers.certificate_file", settings.tls.workers.certificate_file, "client"


def _usages(settings: Settings) -> Iterator[Finding]:
    for path, file, side in _own(settings):
        chain = _chain(file)
        if chain and not _usable(chain[0], side):
            yield Finding(
                f"{path}: {file!r} is not for the {side}'s side of a connection, so peers refuse it; allowed:"
                f" the extended key usage {side}Auth",
                grave=True,
            )


def _server_names(settings: Settings) -> Iterator[Finding]:
    """Yield names that our clients require and certificates of our services lack."""
    for service, client in _DIALLED_BY:
        section, peer = getattr(settings.tls, service), getattr(settings.tls, client)
        chain = () if section is None or peer is None else _chain(section.certificate_file)
        if not chain:
            continue
        names = PeerNames.of(chain[0])
        if not _carries(names, peer.server_name):
            yield Finding(
                f"tls.{client}.server_name: {peer.server_name!r} is not in the certificate of tls.{service},"
                f" which shows {names}, so no client connects there; allowed: one of its DNS names",
                grave=True,
            )


def _authorities(settings: Settings) -> Iterator[Finding]:
    """Yield authorities of clients that have signed our own certificate too."""
    for service, authority in asking_services(settings).items():
        if _signed(_chain(getattr(settings.tls, service).certificate_file), _chain(authority)):
            field = f"tls.{service}.client_ca_file"
            yield Finding(
                f"{field}: {authority!r} has signed the certificate of tls.{service} too, so a service's"
                " certificate may let its holder in; allowed: an authority that signs clients only",
                grave=False,
            )


def _workers(settings: Settings) -> Iterator[Finding]:
    """Yield what keeps workers from `control.address`."""
    peer, control = settings.tls.workers, settings.tls.control
    if peer is None or control is None:
        return
    chain, field = _chain(peer.certificate_file), "tls.workers.certificate_file"
    authorities = () if control.client_ca_file is None else _chain(control.client_ca_file)
    if chain and authorities and not _signed(chain, authorities):
        yield Finding(
            f"{field}: {peer.certificate_file!r} is not signed by tls.control.client_ca_file, which lets no"
            " worker in; allowed: a certificate of that authority",
            grave=True,
        )
    yield from _without_role(settings, field, peer, "workers", control.client_ca_file, grave=True)
    served, trusted = _chain(control.certificate_file), _chain(peer.ca_file)
    if served and trusted and not _signed(served, trusted):
        yield Finding(
            f"tls.workers.ca_file: {peer.ca_file!r} has not signed tls.control.certificate_file, so no worker"
            " connects; allowed: the authority that has",
            grave=True,
        )


def _envoys(settings: Settings) -> Iterator[Finding]:
    """Never grave: the paths are on Envoys' hosts, and may be other files here."""
    peer, xds = settings.tls.envoy, settings.tls.xds
    if peer is None or xds is None:
        return
    yield from _without_role(
        settings, "tls.envoy.certificate_file", peer, "envoys", xds.client_ca_file, grave=False
    )


def _without_role(
    settings: Settings, field: str, peer: PeerTlsSettings, role: str, authority: str | None, *, grave: bool
) -> Iterator[Finding]:
    chain, roles = _chain(peer.certificate_file), settings.tls.roles
    if not chain or roles is None or authority is None:
        return
    names = PeerNames.of(chain[0])
    if not has_role(names, (role,), roles):  # type: ignore[arg-type]
        yield Finding(
            f"{field}: {peer.certificate_file!r} shows {names}, so its holder is refused; allowed: a name in"
            f" tls.roles.{role}, where one of these may be added",
            grave,
        )


def _fetching(settings: Settings) -> Iterator[Finding]:
    """Yield certificates of other peers than Envoys to which the settings give the role of Envoys."""
    if not keys_by_certificate(settings) or settings.tls.roles is None:
        return
    authorities = _chain(asking_services(settings)["xds"])
    for path, file, _ in _own(settings):
        chain = _chain(file)
        if not chain or not _usable(chain[0], "client") or not _signed(chain, authorities):
            continue
        names = PeerNames.of(chain[0])
        if has_role(names, ("envoys",), settings.tls.roles):
            yield Finding(
                f"{path}: {file!r} shows {names}, which tls.roles.envoys matches, so its holder may fetch the"
                " keys of listeners and pools; allowed: a name that is in no role, or in its own only",
                grave=True,
            )


def _token(settings: Settings) -> Iterator[Finding]:
    if not settings.admin.token_file:
        return
    try:
        token = TokenFile(Path(settings.admin.token_file)).token
    except SettingsError:
        return
    if len(token) < LEAST_TOKEN_CHARS:
        yield Finding(
            f"admin.token_file: a token of {len(token)} characters can be guessed; allowed:"
            f" {LEAST_TOKEN_CHARS} or more, as `openssl rand -hex 32` makes them",
            grave=True,
        )


def _api_keys(settings: Settings) -> Iterator[Finding]:
    """Never grave: the file may come later, and another host may run xds_server."""
    for i, pool in enumerate(settings.pools):
        if pool.api_key_file is None:
            continue
        try:
            problem = "" if Path(pool.api_key_file).read_bytes().strip() else "it is empty"
        except OSError as error:
            problem = error.strerror or type(error).__name__
        if problem:
            yield Finding(
                f"pools[{i}].api_key_file: {pool.api_key_file!r}: {problem}, so probes and requests for lists"
                " and pages have no key; allowed: a file with the key that the pool's engines require",
                grave=False,
            )


def _chain(file: str) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(Path(file).read_bytes()))
    except (OSError, ValueError):
        return ()


def _usable(leaf: x509.Certificate, side: str) -> bool:
    try:
        usages = set(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except (x509.ExtensionNotFound, ValueError):
        return True
    accepted: set[ObjectIdentifier] = {_SIDES[side], ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    return not usages.isdisjoint(accepted)


def _carries(names: PeerNames, server_name: str) -> bool:
    exact = server_name.lower()
    wide = f"*.{exact.partition('.')[2]}"
    return any(name.lower() in (exact, wide) for name in names.dns)


def _signed(chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]) -> bool:
    """Whether one of the authorities has signed a certificate of the chain, or is in the chain."""
    return any(
        entry == authority or is_issued_by(entry, authority) for entry in chain for authority in authorities
    )
