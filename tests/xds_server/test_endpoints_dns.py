"""The DNS source against a name server on loopback whose answers each test sets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeAlias

import dns.rcode
import pytest
from prometheus_client import CollectorRegistry

from fleet.settings import DnsDiscoverySettings, PoolSettings
from testing.name_server import NameServer
from xds_server.endpoints.dns import DnsSource
from xds_server.endpoints.source import SourceMetrics, TroubleReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fleet.endpoint import Endpoint

pytestmark = pytest.mark.io

NAME, SRV_NAME = "engines.test.", "_http._tcp.engines.test."
SERVFAIL, NXDOMAIN = dns.rcode.SERVFAIL, dns.rcode.NXDOMAIN


class Resolved:
    """A source that queries the name server, and its endpoints."""

    def __init__(self, address: str, routed: Callable[[str], bool], **settings: object) -> None:
        self.registry = CollectorRegistry()
        self.results: list[tuple[Endpoint, ...]] = []
        values = {"min_ttl_seconds": 0.02, "max_ttl_seconds": 0.05, "nameservers": (address,), **settings}
        dns_settings = DnsDiscoverySettings.model_validate(values)
        trouble = TroubleReport("dns", "dns", SourceMetrics(self.registry))
        pool = PoolSettings(name="p", models=("m",))
        self.source = DnsSource(pool, dns_settings, trouble, routed=routed)
        self.task = asyncio.create_task(self.source.run(self.results.append))

    @property
    def errors(self) -> float:
        value = self.registry.get_sample_value("warmroute_endpoint_source_errors_total", {"source": "dns"})
        assert value is not None
        return value

    @property
    def newest(self) -> list[str] | None:
        return [endpoint.address for endpoint in self.results[-1]] if self.results else None

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)

    async def after_errors(self, count: int = 3) -> None:
        """Until so many more errors came."""
        errors = self.errors
        await self.until(lambda: self.errors >= errors + count)


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with NameServer() as server:
        yield server


@pytest.fixture
async def resolve(server: NameServer) -> AsyncIterator[Callable[..., Resolved]]:
    made: list[Resolved] = []

    def start(routed: Callable[[str], bool] = lambda address: True, **settings: object) -> Resolved:
        made.append(Resolved(server.address, routed, **settings))
        return made[-1]

    yield start
    for resolved in made:
        resolved.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await resolved.task


Resolve: TypeAlias = "Callable[..., Resolved]"


async def test_both_families_are_found_with_the_port_and_in_one_order(
    server: NameServer, resolve: Resolve
) -> None:
    server.answers = {(NAME, "A"): ["10.0.0.2", "10.0.0.1"], (NAME, "AAAA"): ["2001:db8::1"]}
    resolved = resolve(name="engines.test", port=8000, family="ALL")
    await resolved.until(lambda: len(resolved.results) >= 2)
    assert resolved.newest == ["10.0.0.1:8000", "10.0.0.2:8000", "[2001:db8::1]:8000"]
    assert resolved.results[0][0].models == ("m",)
    assert resolved.results[0][0].metrics_url == "http://10.0.0.1:8000/metrics"
    assert resolved.errors == 0


V4, V6 = ["10.0.0.1:80", "10.0.0.2:80"], ["[2001:db8::1]:80"]


@pytest.mark.parametrize(
    ("family", "expected"),
    [({}, V4), ({"family": "v6_preferred"}, V6), ({"family": "V4_ONLY"}, V4), ({"family": "v6_only"}, V6)],
)
async def test_a_name_gives_one_family(
    family: dict[str, str], expected: list[str], server: NameServer, resolve: Resolve
) -> None:
    """An engine with an address of each family is one endpoint, however many engines share the name."""
    server.answers = {(NAME, "A"): ["10.0.0.1", "10.0.0.2"], (NAME, "AAAA"): ["2001:db8::1"]}
    resolved = resolve(name=NAME, port=80, **family)
    await resolved.until(lambda: bool(resolved.results))
    assert (resolved.newest, resolved.errors) == (expected, 0)


async def test_other_family_counts_without_the_preferred(server: NameServer, resolve: Resolve) -> None:
    server.answers = {(NAME, "AAAA"): ["2001:db8::1"]}
    resolved = resolve(name=NAME, port=80)
    await resolved.until(lambda: resolved.newest == V6)
    server.answers[NAME, "A"] = ["10.0.0.1", "10.0.0.2"]
    await resolved.until(lambda: resolved.newest == V4)
    server.answers[NAME, "A"] = SERVFAIL
    await resolved.after_errors()
    assert resolved.newest == V4, "unknown is not gone"


@pytest.mark.parametrize(("routed", "expected"), [("2001:db8::1", V6), ("10.0.0.2", V4), ("", V4)])
async def test_family_without_a_route_comes_last(
    routed: str, expected: list[str], server: NameServer, resolve: Resolve
) -> None:
    server.answers = {(NAME, "A"): ["10.0.0.1", "10.0.0.2"], (NAME, "AAAA"): ["2001:db8::1"]}
    resolved = resolve(lambda address: address == routed, name=NAME, port=80)
    await resolved.until(lambda: bool(resolved.results))
    assert resolved.newest == expected


async def test_srv_target_gets_a_query_for_its_preferred_family(server: NameServer, resolve: Resolve) -> None:
    """The additional section may be cut."""
    server.answers = {(SRV_NAME, "SRV"): ["1 1 80 a.test."], ("a.test.", "A"): ["10.0.0.1"]}
    server.additional = [("a.test.", "AAAA", "2001:db8::1")]
    resolved = resolve(name=SRV_NAME, kind="srv")
    await resolved.until(lambda: bool(resolved.results))
    assert resolved.newest == ["10.0.0.1:80"]


async def test_change_shows_after_the_ttl(server: NameServer, resolve: Resolve) -> None:
    server.answers = {(NAME, "A"): ["10.0.0.1"]}
    resolved = resolve(name=NAME, port=80)
    await resolved.until(lambda: resolved.newest == ["10.0.0.1:80"])
    server.answers = {(NAME, "A"): ["10.0.0.9"]}
    await resolved.until(lambda: resolved.newest == ["10.0.0.9:80"])


async def test_ttl_decides_within_its_bounds(server: NameServer, resolve: Resolve) -> None:
    server.answers, server.ttl = {(NAME, "A"): ["10.0.0.1"], (NAME, "AAAA"): ["2001:db8::1"]}, 30
    resolved = resolve(name=NAME, port=80, max_ttl_seconds=10.0)
    await resolved.until(lambda: bool(resolved.results))
    source = resolved.source
    assert 10.0 <= source._wait(0) <= 11.0
    source._ttl = 0.5
    assert 0.5 <= source._wait(0) <= 0.55
    source._ttl = 0.0
    assert 0.02 <= source._wait(0) <= 0.022
    waits = [source._wait(failures) for failures in (1, 2, 3, 100)]
    assert waits[0] <= 0.022
    assert waits[0] < waits[1] < waits[2]
    assert waits[3] <= 11.0


@pytest.mark.parametrize("trouble", [SERVFAIL, dns.rcode.REFUSED, ["0.0.0.0"]])
async def test_error_keeps_the_last_endpoints(
    trouble: list[str] | dns.rcode.Rcode,
    server: NameServer,
    resolve: Resolve,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each error counts; the log has the change of state once."""
    server.answers = {(NAME, "A"): ["10.0.0.1"]}
    resolved = resolve(name=NAME, port=80)
    await resolved.until(lambda: bool(resolved.results))
    server.answers = {(NAME, "A"): trouble, (NAME, "AAAA"): SERVFAIL}
    await resolved.after_errors()
    assert resolved.newest == ["10.0.0.1:80"]
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    # The first round may have met the change between its two questions.
    assert len(messages) == len(set(messages)) <= 2


@pytest.mark.parametrize("trouble", [SERVFAIL, NXDOMAIN, []])
async def test_nothing_is_told_before_anything_is_certain(
    trouble: list[str] | dns.rcode.Rcode, server: NameServer, resolve: Resolve
) -> None:
    """A negative answer without SOA proves nothing."""
    server.soa = False
    server.answers = {(NAME, "A"): trouble, (NAME, "AAAA"): trouble}
    resolved = resolve(name=NAME, port=80)
    await resolved.after_errors()
    assert resolved.results == []


async def test_silence_is_no_answer_in_time(
    server: NameServer, resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xds_server.endpoints.lookup.LIFETIME_SECONDS", 0.1)
    server.answers = {(NAME, "A"): None, (NAME, "AAAA"): ["2001:db8::1"]}
    resolved = resolve(name=NAME, port=80)
    await resolved.after_errors(2)
    await resolved.until(lambda: resolved.newest == ["[2001:db8::1]:80"])


@pytest.mark.parametrize("negative", [NXDOMAIN, []])
async def test_negative_answer_with_soa_is_certain(
    negative: list[str] | dns.rcode.Rcode, server: NameServer, resolve: Resolve
) -> None:
    server.answers = {(NAME, "A"): ["10.0.0.1"]}
    resolved = resolve(name=NAME, port=80)
    await resolved.until(lambda: resolved.newest == ["10.0.0.1:80"])
    server.answers = {(NAME, "A"): negative, (NAME, "AAAA"): negative}
    await resolved.until(lambda: resolved.newest == [])
    assert resolved.errors == 0


async def test_one_family_failing_takes_nothing_from_the_other(server: NameServer, resolve: Resolve) -> None:
    server.answers = {(NAME, "A"): ["10.0.0.1"], (NAME, "AAAA"): ["2001:db8::1"]}
    resolved = resolve(name=NAME, port=80, family="all")
    await resolved.until(lambda: bool(resolved.results))
    server.answers = {(NAME, "A"): ["10.0.0.2"], (NAME, "AAAA"): SERVFAIL}
    await resolved.until(lambda: resolved.newest == ["10.0.0.2:80", "[2001:db8::1]:80"])
    server.answers = {(NAME, "A"): SERVFAIL, (NAME, "AAAA"): NXDOMAIN}
    await resolved.until(lambda: resolved.newest == ["10.0.0.2:80"])


async def test_no_data_of_one_family_needs_no_proof_beside_the_other(
    server: NameServer, resolve: Resolve
) -> None:
    server.soa = False
    server.answers = {(NAME, "A"): ["10.0.0.1"]}
    resolved = resolve(name=NAME, port=80)
    await resolved.until(lambda: len(resolved.results) >= 2)
    assert (resolved.newest, resolved.errors) == (["10.0.0.1:80"], 0)


async def test_answer_too_long_for_udp_comes_by_tcp(server: NameServer, resolve: Resolve) -> None:
    server.answers = {(NAME, "A"): [f"10.0.{i // 250}.{i % 250 + 1}" for i in range(1000)]}
    server.cut = True
    resolved = resolve(name=NAME, port=80)
    await resolved.until(lambda: bool(resolved.results))
    assert len(resolved.results[0]) == 1000


async def test_srv_gives_host_and_port_and_the_lowest_priority_counts(
    server: NameServer, resolve: Resolve
) -> None:
    server.answers = {
        (SRV_NAME, "SRV"): ["1 10 8001 a.test.", "1 90 8002 b.test.", "2 1 8003 c.test."],
        ("a.test.", "A"): ["10.0.0.1"],
        ("b.test.", "A"): ["10.0.0.2"],
        ("c.test.", "A"): ["10.0.0.3"],
    }
    resolved = resolve(name=SRV_NAME, kind="srv")
    await resolved.until(lambda: bool(resolved.results))
    assert resolved.newest == ["10.0.0.1:8001", "10.0.0.2:8002"]
    del server.answers["a.test.", "A"]
    del server.answers["b.test.", "A"]
    await resolved.until(lambda: resolved.newest == ["10.0.0.3:8003"])
    assert resolved.errors == 0


async def test_addresses_in_the_additional_section_are_not_asked_for(
    server: NameServer, resolve: Resolve
) -> None:
    server.answers = {
        (SRV_NAME, "SRV"): ["1 1 8001 A.test.", "1 1 8002 b.test."],
        ("b.test.", "A"): ["10.0.0.2"],
    }
    server.additional = [("a.TEST.", "A", "10.0.0.1"), ("a.test.", "AAAA", "2001:db8::1")]
    resolved = resolve(name=SRV_NAME, kind="srv", family="all")
    await resolved.until(lambda: bool(resolved.results))
    assert resolved.newest == ["10.0.0.1:8001", "10.0.0.2:8002", "[2001:db8::1]:8001"]
    assert {name for name, _ in server.queries} == {SRV_NAME, "b.test."}


async def test_failing_target_never_activates_next_priority(server: NameServer, resolve: Resolve) -> None:
    server.answers = {
        (SRV_NAME, "SRV"): ["1 1 8001 a.test.", "2 1 8002 b.test."],
        ("a.test.", "A"): SERVFAIL,
        ("b.test.", "A"): ["10.0.0.2"],
    }
    resolved = resolve(name=SRV_NAME, kind="srv")
    await resolved.after_errors()
    assert resolved.results == []
    server.answers["a.test.", "A"] = ["10.0.0.1"]
    await resolved.until(lambda: resolved.newest == ["10.0.0.1:8001"])
    server.answers["a.test.", "A"] = SERVFAIL
    await resolved.after_errors()
    assert resolved.newest == ["10.0.0.1:8001"]


async def test_root_as_srv_target_means_no_service(server: NameServer, resolve: Resolve) -> None:
    server.answers = {(SRV_NAME, "SRV"): ["0 0 0 ."]}
    resolved = resolve(name=SRV_NAME, kind="srv")
    await resolved.until(lambda: resolved.newest == [])
    server.answers = {(SRV_NAME, "SRV"): SERVFAIL}
    await resolved.after_errors()
    assert resolved.newest == []
