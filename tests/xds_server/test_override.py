"""Weights by an operator's word: until when, over a restart, and what a broken file does."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import msgspec
import pytest

from xds_server.state.override import MAX_SECONDS, OverrideBook, OverrideFile, override_path

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000.0


def test_override_lasts_until_its_expiry() -> None:
    book = OverrideBook()
    assert book.active(NOW) == {}
    book.set({"a": 100, "b": 5}, NOW + 10)
    book.set({"b": 7}, NOW + 20)
    assert book.active(NOW + 9.9) == {"a": 100, "b": 7}
    assert (book.until("a"), book.until("b"), book.until("c")) == (NOW + 10, NOW + 20, None)
    assert book.active(NOW + 10) == {"b": 7}
    assert book.active(NOW + 20) == {}
    assert len(book) == 0


def test_weight_of_0_drains_until_its_expiry() -> None:
    book = OverrideBook()
    book.set({"a": 0, "b": 5}, NOW + 10)
    assert (book.active(NOW), book.drained(NOW)) == ({"b": 5}, {"a"})
    assert book.drained(NOW) is book.drained(NOW + 5)
    assert book.until("a") == NOW + 10
    book.set({"a": 5}, NOW + 20)
    assert (book.active(NOW), book.drained(NOW)) == ({"a": 5, "b": 5}, frozenset())
    book.set({"a": 0}, NOW + 20)
    assert book.drained(NOW + 20) == frozenset()


async def test_restart_keeps_drains(tmp_path: Path) -> None:
    path, before, after = tmp_path / "x.overrides", OverrideBook(), OverrideBook()
    before.set({"a": 0}, NOW + 1000)
    assert await OverrideFile(before, path).save()
    await OverrideFile(after, path).load(NOW + 500)
    assert (after.drained(NOW + 999), after.drained(NOW + 1000)) == ({"a"}, frozenset())


def test_clearing_is_at_once_and_of_those_named() -> None:
    book = OverrideBook()
    book.set({"a": 1, "b": 2}, NOW + 10)
    book.clear(["a", "unknown"])
    assert book.active(NOW) == {"b": 2}


def test_overrides_and_expiries_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    book = OverrideBook()
    book.set({"b": 2, "a": 1}, NOW + 10)
    book.clear(["a", "unknown"])
    book.clear(["unknown"])
    book.active(NOW + 10)
    assert [record.message for record in caplog.records] == [
        "weights are overridden by an operator until 2023-11-14T22:13:30+00:00: a 1, b 2",
        "overridden weights are cleared by an operator: a",
        "overridden weights have expired: b",
    ]


def test_ticks_get_the_same_object_while_nothing_changes() -> None:
    book = OverrideBook()
    book.set({"a": 1}, NOW + 10)
    assert book.active(NOW) is book.active(NOW + 5)


async def test_restart_keeps_weights_and_expiries(tmp_path: Path) -> None:
    path, before, after = tmp_path / "new" / "x.overrides", OverrideBook(), OverrideBook()
    before.set({"a": 100}, NOW + 10)
    before.set({"b": 100}, NOW + 1000)
    assert await OverrideFile(before, path).save()
    await OverrideFile(after, path).load(NOW + 500)
    assert after.active(NOW + 500) == {"b": 100}
    assert after.until("b") == NOW + 1000
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"overrides":{"a":{"weight":-1,"expires_at":1}}}',
        b'{"overrides":{"a":{"weight":true,"expires_at":1}}}',
        b'{"overrides":{"a":{"weight":10001,"expires_at":9e9}}}',
        b'{"overrides":{"a":{"weight":1}}}',
    ],
)
async def test_damaged_override_file_stops_nothing(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path, book = tmp_path / "x", OverrideBook()
    path.write_bytes(content)
    await OverrideFile(book, path).load(NOW)
    assert book.active(NOW) == {}
    assert "lost" in caplog.text


async def test_without_a_file_or_a_place_for_one_nothing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (tmp_path / "none", None):
        await OverrideFile(OverrideBook(), path).load(NOW)
    assert caplog.text == ""
    assert not await OverrideFile(OverrideBook(), None).save()


async def test_unwritable_override_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not await OverrideFile(OverrideBook(), tmp_path / "file" / "x").save()


def test_file_cannot_override_longer_than_a_day() -> None:
    """The clock may have been wrong when it was written."""
    book = OverrideBook()
    book.decode(json.dumps({"overrides": {"a": {"weight": 1, "expires_at": NOW + 1e9}}}).encode(), NOW)
    assert book.until("a") == NOW + MAX_SECONDS
    with pytest.raises(msgspec.DecodeError):
        book.decode(b'{"overrides": 1}', NOW)
    assert book.active(NOW) == {"a": 1}, "nothing is taken over of a damaged one"


def test_it_stands_beside_the_last_good_state(tmp_path: Path) -> None:
    assert override_path(tmp_path / "xds.sock.last-good") == tmp_path / "xds.sock.last-good.overrides"
    assert override_path(None) is None
