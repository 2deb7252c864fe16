"""The doctor before real Envoys: ours, others with traps, and what of its words was not measured before."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest_asyncio
import yaml

from fleet.names import DESTINATION_KEY
from tests.envoy import foreign as others
from tests.envoy.conftest import free_address
from tests.envoy.foreign import Foreign, Way, foreign
from warmroute.demo.envoy import EnvoyProcess
from warmroute.doctor.envoy.rules import RULES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from tests.envoy.conftest import World

PRE = "type.googleapis.com/envoy.extensions.filters.http"
BUFFER = {
    "name": "envoy.filters.http.buffer",
    "typed_config": {"@type": f"{PRE}.buffer.v3.Buffer", "max_request_bytes": 8 << 20},
}


async def doctor(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Run the command; return its exit status and findings."""
    command = [sys.executable, "-m", "warmroute.cli.main", "doctor", "--json", *arguments]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    assert process.returncode < 2, err.decode()
    return process.returncode, json.loads(out)["findings"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def untroubled(worlds: Any) -> AsyncIterator[World]:
    """An Envoy of these tests' own: the doctor reads counters, and they keep what other tests have done.

    Its time limits are the product's: the doctor judges them.
    """
    async with worlds(patient=False) as world:
        yield world


async def test_nothing_is_found_in_ours_but_what_a_test_needs(untroubled: Any) -> None:
    """A running Envoy with our configuration; one of its pools retries on 5xx, for the tests of retries."""
    for _ in range(3):
        await untroubled.post()
    status, findings = await doctor("--admin", untroubled.envoy.admin_address)
    assert status == 1
    assert {found["rule"] for found in findings} == {"unsafe-retries"}
    assert all("routes[retrying]" in found["where"] for found in findings)


async def test_nothing_at_all_is_found_before_the_other_pools(untroubled: Any, tmp_path: Path) -> None:
    pools = [{"name": name} for name in untroubled.pools if name != "retrying"]
    listeners = [{"name": "l", "address": "127.0.0.1:1", "pool": "live"}]
    path = tmp_path / "warmroute.yaml"
    path.write_text(yaml.safe_dump({"pools": pools, "listeners": listeners}))
    arguments = ("--settings", str(path), "--longest-prompt-bytes", str(1 << 30), "--fail-on", "note")
    assert await doctor("--admin", untroubled.envoy.admin_address, *arguments) == (0, [])


def everything_on(settings: dict[str, Any]) -> None:
    """Switch on what is off by default and makes Envoy's configuration another one."""
    sla = {"first_token_p95_seconds": 0.8, "tolerated_error_ratio": 0.15, "base_round_trip_seconds": 0.02}
    for pool in settings["pools"]:
        pool.pop("retry_on", None)
        pool["sla"] = {**sla, "repeats": "keyed"}
        pool["health_check"] = {}
        pool["protocol"] = "h2"
    settings["connections"] = {"ping_seconds": 5, "ping_timeout_seconds": 2, "engine_ping_seconds": 300}
    settings["upgrades"] = {"paths": ["/v1/realtime", "/v2/"], "elsewhere": "refuse"}
    settings["ext_proc"]["idempotency"] = {"enabled": True, "streaming": True, "duplicates": "reject"}


async def test_nothing_is_found_in_ours_with_everything_on(worlds: Any) -> None:
    async with worlds(patient=False, adapt=everything_on) as world:
        arguments = ("--p99-seconds", "600", "--fail-on", "note")
        assert await doctor("--admin", world.envoy.admin_address, *arguments) == (0, [])
        assert not world.ads.nacks


async def test_a_file_and_the_envoy_that_runs_it_get_the_same_findings(tmp_path: Path) -> None:
    """What Envoy dumps has other spellings and leaves defaults out; the doctor sees the same in it."""
    ways = [Way(mode.lower(), mode, allow=mode != "STREAMED") for mode in others.MODES]
    addresses = {way.name: free_address() for way in ways}
    boot = others.bootstrap(ways, addresses, str(tmp_path / "ext_proc.sock"), ["127.0.0.1:1", "127.0.0.1:2"])
    path = tmp_path / "envoy.yaml"
    path.write_text(yaml.safe_dump(boot))
    _, read = await doctor("--config-dump", str(path))
    async with EnvoyProcess(boot) as envoy:
        await envoy.wait_ready(listeners=len(ways))
        status, asked = await doctor("--admin", envoy.admin_address)
    assert status == 1
    assert [found["rule"] for found in asked] == [found["rule"] for found in read]
    assert [found["where"] for found in asked] == [found["where"] for found in read]
    assert {found["rule"] for found in asked} >= {
        "buffer-limit",
        "upgrade-behind-buffer",
        "ext-proc-failure-mode",
        "ext-proc-message-timeout",
        "ext-proc-health",
        "ext-proc-circuit-breaker",
        "ext-proc-streamed",
        "unsafe-retries",
        "retry-limit",
        "doubled-body",
        "pool-circuit-breaker",
    }
    assert {found["rule"] for found in asked} <= set(RULES)


@contextlib.asynccontextmanager
async def changed(monkeypatch: pytest.MonkeyPatch, ways: list[Way], change: Any) -> Any:
    """Start a foreign Envoy whose connection managers `change` has had its way with."""
    made = others._listener

    def listener(way: Way, address: str) -> Any:
        built = made(way, address)
        change(way, built["filter_chains"][0]["filters"][0]["typed_config"])
        return built

    monkeypatch.setattr(others, "_listener", listener)
    async with foreign(ways) as held:
        yield held


async def honoured(world: Foreign, way: str, requests: int) -> int:
    """How many of some requests went where the processor said."""
    count = 0
    for number in range(requests):
        body = {"model": "m", "prompt": f"{number} " * 400}
        async with world.http.post(world.url(way), json=body) as response:
            served = (await response.json(content_type=None))["address"]
        count += served == world.newest.endpoints[0]
    return count


async def test_the_buffer_filter_must_stand_behind_ext_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `pick-too-late`: before ext_proc or missing, it is too late; behind it or with headers SEND, not."""
    ways = [
        Way("before", "BUFFERED", headers=False),
        Way("missing", "BUFFERED", headers=False),
        Way("behind", "BUFFERED", headers=False),
        Way("sent", "BUFFERED"),
    ]

    def change(way: Way, manager: Any) -> None:
        if way.name in {"before", "behind"}:
            manager["http_filters"].insert(int(way.name == "behind"), BUFFER)

    requests = 16
    async with changed(monkeypatch, ways, change) as world:
        counts = {way.name: await honoured(world, way.name, requests) for way in ways}
        _, findings = await doctor("--admin", world.envoy.admin_address)
    assert counts["behind"] == counts["sent"] == requests
    assert counts["before"] < requests
    assert counts["missing"] < requests
    late = {found["where"].partition("]")[0] for found in findings if found["rule"] == "pick-too-late"}
    assert late == {"routes[before", "routes[missing"}


async def test_what_a_route_removes_is_gone_before_a_host_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `header-removal` and `pick-ignored`: such a header steers no more, whoever has set it."""
    ways = [Way("open", "NONE", cluster="by_header"), Way("closed", "NONE", cluster="by_header")]

    def change(way: Way, manager: Any) -> None:
        del manager["http_filters"][:-1]
        if way.name == "closed":
            manager["route_config"]["virtual_hosts"][0]["request_headers_to_remove"] = [DESTINATION_KEY]

    async with changed(monkeypatch, ways, change) as world:
        seen: dict[str, set[str]] = {"open": set(), "closed": set()}
        for way, addresses in seen.items():
            for _ in range(12):
                headers = {DESTINATION_KEY: world.pool[1]}
                async with world.http.post(world.url(way), json={}, headers=headers) as response:
                    addresses.add((await response.json(content_type=None))["address"])
        _, findings = await doctor("--admin", world.envoy.admin_address)
    assert seen["open"] == {world.pool[1]}
    assert len(seen["closed"]) > 1
    steered = [found["where"] for found in findings if found["rule"] == "header-removal"]
    assert len(steered) == 1
    assert "listeners[open]" in steered[0]
