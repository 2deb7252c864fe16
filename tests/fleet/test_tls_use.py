"""Certificates that parse and cannot be used: ended, of a later time, with keys that Envoy refuses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from prometheus_client import CollectorRegistry

from fleet.errors import SettingsError
from fleet.service.tls import Certificates, Files, TlsError, load
from testing.certificates import Authority, Issued

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files(issued: Issued, **others: Any) -> Files:
    return Files(str(issued.certificate_file), str(issued.key_file), **others)


class Clock:
    """A wall clock that is set to moments of a certificate."""

    def __init__(self, issued: Issued) -> None:
        self.now = issued.certificate.not_valid_before_utc.timestamp() + HOUR

    def __call__(self) -> float:
        return self.now


def outcomes(registry: CollectorRegistry) -> tuple[float | None, ...]:
    name = "warmroute_certificate_reloads_total"
    return tuple(
        registry.get_sample_value(name, {"use": "xds", "outcome": outcome})
        for outcome in ("applied", "refused")
    )


async def test_an_ended_certificate_takes_no_place_of_a_good_one(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    registry, issued = CollectorRegistry(), authority.issue("server", days=3)
    certificates = Certificates(registry, wall=Clock(issued))
    provider = certificates.watch("xds", "tls.xds", files(issued))
    first = provider.material
    authority.issue("server", days=-0.02)
    await certificates.look()
    await certificates.look()
    assert provider.material is first
    assert outcomes(registry) == (0, 1)
    assert "certificate_file: it ended at 20" in caplog.text
    third = authority.issue("server", days=5)
    await certificates.look()
    assert provider.material.certificate == third.certificate_file.read_bytes()
    assert outcomes(registry) == (1, 1)


async def test_future_certificate_applies_at_its_time(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Without another change of the files."""
    registry, issued = CollectorRegistry(), authority.issue("server", days=3)
    clock = Clock(issued)
    certificates = Certificates(registry, wall=clock)
    provider = certificates.watch("xds", "tls.xds", files(issued))
    first = provider.material
    later = authority.issue("server", days=9, from_days=2)
    await certificates.look()
    await certificates.look()
    assert provider.material is first
    assert outcomes(registry) == (0, 1)
    assert "certificate_file: it holds only from 20" in caplog.text
    clock.now = later.certificate.not_valid_before_utc.timestamp()
    await certificates.look()
    assert provider.material.certificate == later.certificate_file.read_bytes()
    assert outcomes(registry) == (1, 1)


async def test_one_that_cannot_be_used_is_as_good_as_another(authority: Authority) -> None:
    """Nothing is kept for the sake of a certificate that has ended itself."""
    issued = authority.issue("server", days=3)
    clock = Clock(issued)
    certificates = Certificates(wall=clock)
    provider = certificates.watch("xds", "tls.xds", files(issued))
    clock.now = issued.certificate.not_valid_after_utc.timestamp() + 1
    other = authority.issue("server", days=-0.02)
    await certificates.look()
    assert provider.material.certificate == other.certificate_file.read_bytes()


def test_expired_certificate_starts_with_an_error(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Peers that do not check validity are still served; a failed start would serve none."""
    issued = authority.issue("server", days=-0.02)
    certificates = Certificates()
    assert certificates.watch("xds", "tls.xds", files(issued)).material.certificate
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "xds" in record.getMessage()
    assert "it ended at 20" in record.getMessage()


def test_changed_settings_with_an_ended_certificate_are_refused(authority: Authority) -> None:
    issued, ended = authority.issue("server"), authority.issue("ended", days=-0.02)
    certificates = Certificates()
    provider = certificates.watch("xds", "tls.xds", files(issued))
    with pytest.raises(SettingsError, match=r"tls\.xds\.certificate_file: it ended at 20"):
        certificates.watch("xds", "tls.xds", files(ended))
    assert certificates.watch("xds", "tls.xds", files(issued)) is provider


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (2047, "2,048 bits"),
        (2048, ""),
        (ec.SECP256R1, ""),
        (ec.SECP384R1, ""),
        (ec.SECP521R1, ""),
        (ec.SECP224R1, "secp224r1"),
        (ec.SECP256K1, "secp256k1"),
        (ed25519.Ed25519PrivateKey.generate, ""),
        (ed448.Ed448PrivateKey.generate, "Ed448"),
    ],
)
def test_keys_that_envoy_refuses_are_refused_for_envoy(authority: Authority, make: Any, text: str) -> None:
    """Measured at Envoy 1.40; elsewhere they may do."""
    if isinstance(make, int):
        issued = authority.issue("server", rsa_bits=make)
    else:
        curve = isinstance(make, type)
        issued = authority.issue("server", key=ec.generate_private_key(make()) if curve else make())
    assert load(files(issued)).key
    if not text:
        assert load(files(issued, for_envoy=True)).key
        return
    with pytest.raises(TlsError, match=text) as caught:
        load(files(issued, for_envoy=True))
    assert [named for named, _ in caught.value.problems] == ["certificate_file"]
