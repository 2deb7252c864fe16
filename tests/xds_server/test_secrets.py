"""Secrets from files to the snapshot: whole, newest, and only where nobody else can read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from bench.certificates import Authority
from fleet.errors import SettingsError, SnapshotError
from fleet.names import TYPE_SECRET
from fleet.settings import Settings, parse_settings
from fleet.settings.membership import membership
from fleet.tls import Certificates
from xds_server.snapshot.build import build_snapshot
from xds_server.snapshot.secrets import Secrets

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


def snapshot(held: Settings, secrets: Secrets) -> Snapshot:
    return build_snapshot(held, membership(held), {}, frozenset(), secrets=secrets.of(held))


async def test_a_rotation_changes_one_secret_and_nothing_else(tmp_path: Path) -> None:
    """So only that one goes to Envoys; it holds key and certificate, and no text of ours shows them."""
    authority, certificates = Authority(tmp_path), Certificates()
    issued = authority.issue("front")
    held, told = settings(tmp_path), []
    secrets = Secrets(certificates, held)
    secrets.on_change = lambda: told.append(1)
    before = snapshot(held, secrets)
    assert set(before.of_type(TYPE_SECRET)) == {"listener/l", "pool/p/authorities"}
    assert secrets.of(held)[0] is secrets.of(held)[0]
    authority.issue("front")
    await certificates.look()
    after = snapshot(held, secrets)
    assert told == [1]
    differing = {name for name in before.versions if before.versions[name] != after.versions[name]}
    assert differing == {TYPE_SECRET}
    one, other = before.of_type(TYPE_SECRET), after.of_type(TYPE_SECRET)
    assert one["pool/p/authorities"] == other["pool/p/authorities"]
    read = secret_pb2.Secret.FromString(other["listener/l"].body.value)
    assert read.tls_certificate.private_key.inline_bytes == issued.key_file.read_bytes()
    key = issued.key_file.read_text().splitlines()[1]
    assert key not in f"{after!r} {secrets.of(held)!r}"


async def test_refused_settings_leave_the_old_secrets_and_their_rotation(tmp_path: Path) -> None:
    authority, certificates = Authority(tmp_path), Certificates()
    authority.issue("front")
    held = settings(tmp_path)
    secrets = Secrets(certificates, held)
    with pytest.raises(SettingsError, match=r"listeners\[0\]\.tls\.certificate_file"):
        secrets.reconfigure(settings(tmp_path, "absent"))
    before = secrets.of(held)
    authority.issue("front")
    await certificates.look()
    assert secrets.of(held) != before


def test_keys_never_go_where_others_can_read_them(tmp_path: Path) -> None:
    """The address that is bound since the start counts, whatever the file says by now."""
    Authority(tmp_path).issue("front")
    held = settings(tmp_path)
    bound = held.model_copy(update={"xds": held.xds.model_copy(update={"address": "127.0.0.1:18000"})})
    with pytest.raises(SettingsError, match=r"xds\.address"):
        Secrets(Certificates(), bound)


def test_a_snapshot_that_refers_to_a_missing_secret_is_not_served(tmp_path: Path) -> None:
    held = settings(tmp_path)
    with pytest.raises(SnapshotError, match="listener/l, pool/p/authorities"):
        build_snapshot(held, membership(held), {}, frozenset())
