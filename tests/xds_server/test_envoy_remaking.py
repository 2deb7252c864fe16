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


def made_settings() -> Settings:
    pool = {"name": "p", "protocol": "auto", "endpoints": [{"address": "10.0.0.1:80"}]}
    listener = {"name": "l", "address": "127.0.0.1:9000", "pool": "p"}
    return parse_settings(json.dumps({"pools": [pool], "listeners": [listener]}), environ={})


async def test_former_resources_hold_while_a_thread_makes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, threads, newer = made_settings(), list[bool](), asyncio.Event()

    def make(*inputs: object) -> object:
        threads.append(threading.current_thread() is threading.main_thread())
        return of_settings(*inputs)  # type: ignore[arg-type]

    monkeypatch.setattr(remaking, "of_settings", make)
    made = Remaking(newer.set)
    before = made.resources(settings, AS_CONFIGURED, {})
    assert made.resources(settings, MOVED, {}) is before
    await newer.wait()
    await made.close()
    after = made.resources(settings, MOVED, {})
    assert after != before
    assert after == of_settings(settings, MOVED, {})
    assert threads == [True, False]


async def test_changed_settings_count_at_once() -> None:
    made = Remaking(lambda: None)
    first, second = made_settings(), made_settings().model_copy(update={"listeners": ()})
    before = made.resources(first, AS_CONFIGURED, {})
    made.resources(first, MOVED, {})
    assert len(made.resources(second, AS_CONFIGURED, {})) < len(before)
    await made.close()
    assert len(made.resources(second, AS_CONFIGURED, {})) < len(before), "what was under way is of the first"


async def test_a_fault_of_the_thread_is_the_next_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, made = made_settings(), Remaking(lambda: None)
    before = made.resources(settings, AS_CONFIGURED, {})

    def fail(*_: object) -> None:
        raise ValueError("no routes")

    with monkeypatch.context() as patched:
        patched.setattr(remaking, "of_settings", fail)
        made.resources(settings, MOVED, {})
        await made.close()
        with pytest.raises(ValueError, match="no routes"):
            made.resources(settings, MOVED, {})
    assert made.resources(settings, AS_CONFIGURED, {}) is before
