"""Secrets from files to the snapshot: whole, newest, and only over safe connections."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from fleet.envoy_api.extensions.transport_sockets.tls.v3 import secret_pb2
from fleet.errors import SettingsError, SnapshotError
from fleet.names import TYPE_SECRET
from fleet.service.tls import Certificates
from fleet.settings import Settings, parse_settings
from fleet.settings.membership import membership
from testing.certificates import Authority
from xds_server.envoy.build import build_snapshot, of_settings
from xds_server.envoy.routes import AS_CONFIGURED
from xds_server.tls.ocsp.response import Staple
from xds_server.tls.ocsp.staples import Staples
from xds_server.tls.secrets import Secrets
from xds_server.tls.tickets import KEY_BYTES, TURN_SECONDS, Tickets

if TYPE_CHECKING:
    from pathlib import Path

    from xds_server.snapshot.snapshot import Snapshot

TEXT = """
pools:
  - name: p
    endpoints: [{{address: "127.0.0.1:8000"}}]
    tls: {{ca_file: {at}/test-ca.crt, sni: engines.test}}
listeners:
  - name: l
    address: 127.0.0.1:10000
    pool: p
    tls: {{certificate_file: {at}/{front}.crt, key_file: {at}/{front}.key}}
"""


def settings(at: Path, front: str = "front") -> Settings:
    return parse_settings(TEXT.format(at=at, front=front))


def snapshot(configured: Settings, secrets: Secrets) -> Snapshot:
    resources = (*of_settings(configured, AS_CONFIGURED, {}), *secrets.of(configured))
    return build_snapshot(configured, membership(configured), {}, frozenset(), resources=resources)


async def test_rotation_changes_one_secret_only(tmp_path: Path) -> None:
    """So only that one goes to Envoys; it holds key and certificate, and no text of ours shows them."""
    authority, certificates = Authority(tmp_path), Certificates()
    issued = authority.issue("front")
    configured, changes = settings(tmp_path), []
    secrets = Secrets(certificates, configured)
    secrets.on_change = lambda: changes.append(1)
    before = snapshot(configured, secrets)
    assert set(before.of_type(TYPE_SECRET)) == {"listener/l", "pool/p/authorities"}
    assert secrets.of(configured)[0] is secrets.of(configured)[0]
    authority.issue("front")
    await certificates.look()
    after = snapshot(configured, secrets)
    assert changes == [1]
    differing = {name for name in before.versions if before.versions[name] != after.versions[name]}
    assert differing == {TYPE_SECRET}
    one, other = before.of_type(TYPE_SECRET), after.of_type(TYPE_SECRET)
    assert one["pool/p/authorities"] == other["pool/p/authorities"]
    read = secret_pb2.Secret.FromString(other["listener/l"].body.value)
    assert read.tls_certificate.private_key.inline_bytes == issued.key_file.read_bytes()
    key = issued.key_file.read_text().splitlines()[1]
    assert key not in f"{after!r} {secrets.of(configured)!r}"


async def test_refused_settings_keep_secrets_and_rotation(tmp_path: Path) -> None:
    authority, certificates = Authority(tmp_path), Certificates()
    authority.issue("front")
    configured = settings(tmp_path)
    secrets = Secrets(certificates, configured)
    with pytest.raises(SettingsError, match=r"listeners\[0\]\.tls\.certificate_file"):
        secrets.reconfigure(settings(tmp_path, "absent"))
    before = secrets.of(configured)
    authority.issue("front")
    await certificates.look()
    assert secrets.of(configured) != before


def test_keys_never_go_where_others_can_read_them(tmp_path: Path) -> None:
    """The address that is bound since the start counts, whatever the file says by now."""
    Authority(tmp_path).issue("front")
    configured = settings(tmp_path)
    bound = configured.model_copy(
        update={"xds": configured.xds.model_copy(update={"address": "127.0.0.1:18000"})}
    )
    with pytest.raises(SettingsError, match=r"xds\.address"):
        Secrets(Certificates(), bound)


def test_snapshot_without_its_secret_is_refused(tmp_path: Path) -> None:
    configured = settings(tmp_path)
    with pytest.raises(SnapshotError, match="listener/l, pool/p/authorities"):
        build_snapshot(configured, membership(configured), {}, frozenset())


def with_fetching(at: Path, more: str = "ocsp_fetch: true") -> Settings:
    text = TEXT.format(at=at, front="front")
    return parse_settings(text.replace("front.key}", f"front.key, {more}}}"))


class FixedStaples(Staples):
    """Staples that the test gives, without asking anybody."""

    def __init__(self) -> None:
        super().__init__()
        self.staple: Staple | None = None

    def of(self, use: str) -> Staple | None:
        return self.staple if use == "listener/l" else None


def served(configured: Settings, secrets: Secrets, name: str = "listener/l") -> Any:
    body = snapshot(configured, secrets).of_type(TYPE_SECRET)[name].body.value
    return secret_pb2.Secret.FromString(body)


def test_staple_changes_only_its_certificate(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("front")
    staples, configured = FixedStaples(), with_fetching(tmp_path)
    secrets = Secrets(Certificates(), configured, staples)
    alone = served(configured, secrets).tls_certificate
    staples.staple = Staple(b"staple", 0.0, 100.0)
    both = served(configured, secrets).tls_certificate
    assert secrets.of(configured)[0] is secrets.of(configured)[0]
    assert (alone.ocsp_staple.inline_bytes, both.ocsp_staple.inline_bytes) == (b"", b"staple")
    assert alone.certificate_chain == both.certificate_chain
    assert alone.certificate_chain.inline_bytes == issued.certificate_file.read_bytes()
    staples.staple = None
    assert not served(configured, secrets).tls_certificate.HasField("ocsp_staple")


@pytest.mark.parametrize(
    ("must", "now", "waits"),
    [
        (True, 50.0, True),
        (False, 50.0, False),  # Nobody refuses it alone.
        (True, 150.0, False),  # The old staple has ended: nothing is better with the old one.
        (True, 1e11, False),
    ],
)
async def test_must_staple_certificate_waits_for_its_staple(
    tmp_path: Path, *, must: bool, now: float, waits: bool
) -> None:
    authority, certificates, staples = Authority(tmp_path), Certificates(), FixedStaples()
    first = authority.issue("front", must_staple=must)
    staples.staple = Staple(b"first", 0.0, 100.0)
    configured = with_fetching(tmp_path)
    secrets = Secrets(certificates, configured, staples, wall=lambda: now)
    before = served(configured, secrets)
    assert before.tls_certificate.certificate_chain.inline_bytes == first.certificate_file.read_bytes()
    authority.issue("front", must_staple=must)
    staples.staple = None
    await certificates.look()
    assert (served(configured, secrets) == before) is waits
    staples.staple = Staple(b"second", 0.0, 100.0)
    assert served(configured, secrets).tls_certificate.ocsp_staple.inline_bytes == b"second"
    assert served(configured, secrets) != before


@pytest.mark.parametrize(
    ("ended", "more"), [(False, "ocsp_fetch: true"), (True, "ocsp_fetch: true"), (False, "")]
)
async def test_must_staple_certificate_waits_behind_a_plain_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, ended: bool, more: str
) -> None:
    """As long as that one holds: a fresh Envoy would have no certificate at all."""
    authority, certificates, staples = Authority(tmp_path), Certificates(), FixedStaples()
    first = authority.issue("front")
    configured = with_fetching(tmp_path, more) if more else settings(tmp_path)
    now = first.certificate.not_valid_after_utc.timestamp() + (1 if ended else -1)
    secrets = Secrets(certificates, configured, staples, wall=lambda: now)
    before = served(configured, secrets)
    authority.issue("front", must_staple=True)
    await certificates.look()
    assert (served(configured, secrets) == before) is not ended
    assert served(configured, secrets) == served(configured, secrets)
    assert caplog.text.count("listener/l stays until the new one") == (0 if ended else 1)
    staples.staple = Staple(b"its", 0.0, 1e11)
    if more:
        assert served(configured, secrets).tls_certificate.ocsp_staple.inline_bytes == b"its"
    # One that needs none ends the wait.
    staples.staple = None
    third = authority.issue("front")
    await certificates.look()
    assert (
        served(configured, secrets).tls_certificate.certificate_chain.inline_bytes
        == third.certificate_file.read_bytes()
    )


async def test_keys_that_envoy_refuses_never_reach_it(tmp_path: Path) -> None:
    """Of listeners and of pools, in files and in settings."""
    authority, certificates = Authority(tmp_path), Certificates()
    authority.issue("front")
    configured = settings(tmp_path)
    secrets = Secrets(certificates, configured)
    before = secrets.of(configured)
    authority.issue("front", rsa_bits=1024)
    await certificates.look()
    assert secrets.of(configured) == before
    authority.issue("weak", rsa_bits=1024)
    with pytest.raises(SettingsError, match=r"listeners\[0\]\.tls\.certificate_file: Envoy takes RSA"):
        secrets.reconfigure(settings(tmp_path, "weak"))
    shown = f"sni: engines.test, certificate_file: {tmp_path}/weak.crt, key_file: {tmp_path}/weak.key"
    pool = parse_settings(TEXT.format(at=tmp_path, front="good").replace("sni: engines.test", shown))
    authority.issue("good")
    with pytest.raises(SettingsError, match=r"pools\[0\]\.tls\.certificate_file: Envoy takes RSA"):
        secrets.reconfigure(pool)
    assert secrets.of(configured) == before


async def test_ended_certificate_keeps_the_old_secrets(tmp_path: Path) -> None:
    authority, certificates = Authority(tmp_path), Certificates()
    authority.issue("front")
    configured = settings(tmp_path)
    secrets = Secrets(certificates, configured)
    before = secrets.of(configured)
    authority.issue("ended", days=-0.02)
    with pytest.raises(SettingsError, match=r"listeners\[0\]\.tls\.certificate_file: it ended"):
        secrets.reconfigure(settings(tmp_path, "ended"))
    assert secrets.of(configured) == before


def test_ticket_keys_turn_and_each_listener_has_its_own(tmp_path: Path) -> None:
    """Envoys have the key in use before and after: they apply a turn at moments of their own."""
    now = 0.0
    tickets = Tickets(lambda: now)
    rings = [tickets.of("a")]
    assert tickets.of("a") is rings[0]
    for _ in range(3):
        now += TURN_SECONDS
        rings.append(tickets.of("a"))
    for before, after in pairwise(rings):
        assert after[0] == before[1], "the next key comes into use"
        assert after[2] == before[0], "the last one is understood"
    assert {len(key) for ring in rings for key in ring} == {KEY_BYTES}
    assert len({key for ring in rings for key in ring}) == 5
    assert not set(tickets.of("b")) & {key for ring in rings for key in ring}
    tickets.keep_only(["b"])
    assert not set(tickets.of("a")) & set(rings[-1])
    assert str(rings[-1][0]) not in repr(tickets.__dict__)


def test_tickets_are_a_secret_of_listeners_that_share_them(tmp_path: Path) -> None:
    Authority(tmp_path).issue("front")
    configured = with_fetching(tmp_path, "shared_tickets: true")
    secrets = Secrets(Certificates(), configured)
    keys = served(configured, secrets, "listener/l/tickets").session_ticket_keys.keys
    assert [len(key.inline_bytes) for key in keys] == [KEY_BYTES] * 2
    assert secrets.of(configured)[1] is secrets.of(configured)[1]
    own = settings(tmp_path)
    secrets.reconfigure(own)
    assert set(snapshot(own, secrets).of_type(TYPE_SECRET)) == {"listener/l", "pool/p/authorities"}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("ocsp_fetch: true, ocsp_file: /x", "ocsp_file or ocsp_fetch"),
        ("ocsp_url: 'http://a/'", "ocsp_url with ocsp_fetch"),
        ("ocsp_fetch: true, ocsp_url: 'file:///etc/passwd'", "ocsp_url"),
        ("ocsp_fetch: true, ocsp_url: 'http:///x'", "ocsp_url"),
    ],
)
def test_mismatched_files_are_refused(tmp_path: Path, more: str, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        with_fetching(tmp_path, more)


@pytest.mark.parametrize("must", [True, False])
async def test_start_waits_only_for_must_staple(tmp_path: Path, *, must: bool) -> None:
    Authority(tmp_path).issue("front", must_staple=must)
    staples = FixedStaples()
    secrets = Secrets(Certificates(), with_fetching(tmp_path), staples)
    waiting = asyncio.create_task(secrets.first_sync(10))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.done() is not must
    staples.on_change()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.done() is not must
    staples.staple = Staple(b"staple", 0.0, 100.0)
    staples.on_change()
    await waiting
    staples.staple = None
    await secrets.first_sync(0.01)


def test_missing_staple_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Authority(tmp_path).issue("front", must_staple=True)
    Secrets(Certificates(), settings(tmp_path))
    assert "listener l without a staple" in caplog.text
