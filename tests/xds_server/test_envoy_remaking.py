"""Engines change what routes depend on: the resources are made again outside the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING

import pytest

from fleet.settings import parse_settings
from xds_server.envoy import remaking
from xds_server.envoy.build import of_settings
from xds_server.envoy.remaking import Remaking
from xds_server.envoy.routes import AS_CONFIGURED
from xds_server.http2.protocol_choice import ProtocolChoice

if TYPE_CHECKING:
    from fleet.settings import Settings

MOVED = ProtocolChoice(frozenset("p"), frozenset("p"), frozenset("p"))


def new_settings() -> Settings:
    pool = {"name": "p", "protocol": "auto", "endpoints": [{"address": "10.0.0.1:80"}]}
    listener = {"name": "l", "address": "127.0.0.1:9000", "pool": "p"}
    return parse_settings(json.dumps({"pools": [pool], "listeners": [listener]}), environ={})


async def test_former_resources_hold_while_a_thread_makes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, threads, newer = new_settings(), list[bool](), asyncio.Event()

    def make(*inputs: object) -> object:
        threads.append(threading.current_thread() is threading.main_thread())
        return of_settings(*inputs)  # type: ignore[arg-type]

    monkeypatch.setattr(remaking, "of_settings", make)
    source = Remaking(newer.set)
    before = source.resources(settings, AS_CONFIGURED, {})
    assert source.resources(settings, MOVED, {}) is before
    await newer.wait()
    await source.close()
    after = source.resources(settings, MOVED, {})
    assert after != before
    assert after == of_settings(settings, MOVED, {})
    assert threads == [True, False]


async def test_changed_settings_count_at_once() -> None:
    source = Remaking(lambda: None)
    first, second = new_settings(), new_settings().model_copy(update={"listeners": ()})
    before = source.resources(first, AS_CONFIGURED, {})
    source.resources(first, MOVED, {})
    assert len(source.resources(second, AS_CONFIGURED, {})) < len(before)
    await source.close()
    assert len(source.resources(second, AS_CONFIGURED, {})) < len(before), (
        "what was under way is of the first"
    )


async def test_a_fault_of_the_thread_is_the_next_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, source = new_settings(), Remaking(lambda: None)
    before = source.resources(settings, AS_CONFIGURED, {})

    def fail(*_: object) -> None:
        raise ValueError("no routes")

    with monkeypatch.context() as patched:
        patched.setattr(remaking, "of_settings", fail)
        source.resources(settings, MOVED, {})
        await source.close()
        with pytest.raises(ValueError, match="no routes"):
            source.resources(settings, MOVED, {})
    assert source.resources(settings, AS_CONFIGURED, {}) is before
