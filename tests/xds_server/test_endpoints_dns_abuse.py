"""A name server that is hostile costs bounded work, ends no source, and sends nobody to odd addresses."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dns.exception
import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset
import pytest
from prometheus_client import CollectorRegistry
from pydantic import TypeAdapter

from bench.abuse import dns as attacks
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import DiscoverySettings, ListenerSettings, PoolSettings, Settings
from xds_server.endpoints import lookup as lookup_module
from xds_server.endpoints import name_server
from xds_server.endpoints.factory import SourceFactory
from xds_server.endpoints.keeper import EndpointKeeper
from xds_server.endpoints.lookup import Lookup, Reply, ReplyStatus
from xds_server.endpoints.source import SourceMetrics
from xds_server.endpoints.special import screen_last_good, special_endpoints
from xds_server.http1.place import place_of
from xds_server.http1.special import special

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

A = "10.0.0.1:80"
QUERY = dns.message.make_query("engines.test.", "A").to_wire()


class Hostile:
    """A name server that answers in one of the ways of `bench.abuse`, and counts the questions."""

    def __init__(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._address = address
        self._patch = monkeypatch
        self._task: asyncio.Task[int] | None = None
        self.queries = 0

    async def start(self, kind: str) -> str:
        """Return the address, once it listens there."""
        answer, listening = attacks.KINDS[kind], asyncio.Event()

        def counted(query: bytes) -> bytes:
            self.queries += 1
            return answer(query)

        self._patch.setitem(attacks.KINDS, kind, counted)
        attack = attacks.attack(self._address, kind, seconds=600.0, listening=listening)
        self._task = asyncio.create_task(attack)
        await listening.wait()
        return self._address

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


@pytest.fixture
async def hostile(unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hostile]:
    server = Hostile(f"127.0.0.1:{unused_tcp_port}", monkeypatch)
    yield server
    await server.stop()


@pytest.mark.parametrize("kind", ["deep", "deep_owners", "types", "pointers", "counted", "cut_off"])
def test_answer_that_is_slow_to_read_is_refused(kind: str) -> None:
    """The walk before it looks at each record once, and at few labels of each."""
    looked = 0

    class Counted(bytes):
        def __getitem__(self, at: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().__getitem__(at)

    wire = Counted(attacks.KINDS[kind](QUERY))
    with pytest.raises(dns.exception.FormError):
        name_server.check(wire)
    assert looked <= len(wire)


def test_truncated_answer_is_fetched_by_tcp() -> None:
    """Some name servers fill a datagram to its end, and say that there is more."""
    response = dns.message.make_response(dns.message.make_query("engines.test.", "A"))
    addresses = [f"10.0.0.{number}" for number in range(60)]
    response.answer.append(dns.rrset.from_text("engines.test.", 30, "IN", "A", *addresses))
    response.flags |= dns.flags.TC
    wire = response.to_wire()[:510]
    with pytest.raises(dns.message.Truncated):
        name_server.check(wire, by_udp=True)
    with pytest.raises(dns.exception.FormError, match="cut off"):
        name_server.check(wire)


def test_two_questions_are_refused_as_such() -> None:
    query = dns.message.make_query("engines.test.", "A")
    query.question *= 2
    with pytest.raises(dns.exception.FormError, match="2 questions; allowed: 1"):
        name_server.check(query.to_wire())


async def test_large_answer_is_read_on_a_thread(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    read = name_server._read

    def noting(wire: bytes, *, by_udp: bool) -> dns.message.Message:
        if len(wire) > 10_000:
            threads.append(threading.current_thread())
        return read(wire, by_udp=by_udp)

    monkeypatch.setattr(name_server, "_read", noting)
    address = await hostile.start("many")
    reply = await Lookup([address]).ask("engines.test", dns.rdatatype.A)
    assert len(reply.records) == 4000
    assert threads
    assert threading.main_thread() not in threads


async def test_failed_query_leaves_another_its_resolver(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both families are asked at once; the failure of one forgets the resolver."""
    lookup = Lookup([await hostile.start("many")])
    step = lookup._turns.step

    async def fail_meanwhile() -> None:
        lookup._resolver = None
        await step()

    monkeypatch.setattr(lookup._turns, "step", fail_meanwhile)
    reply = await lookup.ask("engines.test", dns.rdatatype.A)
    assert len(reply.records) == 4000


NO_ANSWER = "A: no answer in time"
NAMELESS = "A: every name server failed: "
PROBLEMS = {
    "deep": NAMELESS + "FormError, Truncated",
    "deep_owners": NAMELESS + "FormError, Truncated",
    "types": NAMELESS + "FormError, Truncated",
    "loop": NAMELESS + "ChainTooLong",
    "chain": NAMELESS + "ChainTooLong, Truncated",
    "denied_chain": NAMELESS + "ChainTooLong, Truncated",
    "pointers": NAMELESS + "FormError",
    "wrong_id": NO_ANSWER,
    "other_question": NAMELESS + "FormError",
    "cut_off": NAMELESS + "FormError, Truncated",
    "counted": NAMELESS + "FormError",
    "drip": NO_ANSWER,
    "random": NAMELESS + "FormError, Truncated",
}
"""What is said of each; `Truncated` stands for the word over UDP that there is more."""


@pytest.mark.parametrize("kind", [kind for kind in attacks.KINDS if kind not in ("many", "metadata")])
async def test_whatever_is_answered_is_unknown_and_raises_nothing(
    hostile: Hostile, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = PROBLEMS[kind] == NO_ANSWER
    monkeypatch.setattr(lookup_module, "TRY_SECONDS", 0.2 if waits else 30.0)
    monkeypatch.setattr(lookup_module, "LIFETIME_SECONDS", 0.5 if waits else 60.0)
    address = await hostile.start(kind)
    reply = await Lookup([address]).ask("engines.test", dns.rdatatype.A)
    assert hostile.queries
    assert reply == Reply(ReplyStatus.UNKNOWN, problem=PROBLEMS[kind])


async def test_answers_of_others_do_not_hide_the_right_one(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = attacks.KINDS["wrong_id"], attacks.KINDS["metadata"]
    turns = iter([0, 0, 0, 1] * 100)
    monkeypatch.setitem(attacks.KINDS, "wrong_id", lambda query: answers[next(turns)](query))
    sent = attacks._Server.datagram_received

    def again(self: attacks._Server, data: bytes, peer: object) -> None:
        for _ in range(4):
            sent(self, data, peer)

    monkeypatch.setattr(attacks._Server, "datagram_received", again)
    address = await hostile.start("wrong_id")
    reply = await Lookup([address]).ask("engines.test", dns.rdatatype.A)
    assert reply.records == ("169.254.169.254",)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("169.254.169.254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("0xa9fea9fe", "metadata"),
        ("2852039166", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("metadata.google.internal.", "metadata"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("metadata.goog", "metadata"),
        ("192.0.0.192", "metadata"),
        ("fd00:ec2::23", "metadata"),
        ("2002:a9fe:a9fe::1", "metadata"),
        ("64:ff9b:1::a9fe:a9fe", "metadata"),
        ("64:ff9b:1:a9fe:a9:fe00::", "metadata"),
        ("64:ff9b:1:a9:fe:a9fe::", "metadata"),
        ("64:ff9b:1::a9:fea9:fe00:0", "metadata"),
        ("::169.254.169.254", "metadata"),
        ("::ffff:0:169.254.169.254", "metadata"),
        ("fec0::1", "site-local"),
        ("64:ff9b:1:a00:0:100::", ""),
        ("64:ff9b:1::10.0.0.1", ""),
        ("2002:a00:1::1", ""),
        ("10.0.0.1", ""),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("fd00::1", ""),
        ("2001:db8::1", ""),
        ("exporter.example", ""),
        ("", ""),
    ],
)
def test_addresses_without_an_engine(host: str, why: str) -> None:
    assert special(host) == why


@pytest.mark.parametrize("url", ["metrics_url", "gpu_metrics_url"])
def test_special_page_addresses_count_too(url: str) -> None:
    good = Endpoint("10.0.0.1:80", "p", metrics_url="http://10.0.0.1:80/metrics")
    bad = Endpoint("10.0.0.2:80", "p", **{url: "http://169.254.169.254/latest/"})  # type: ignore[arg-type]
    assert special_endpoints([good, bad]) == {"10.0.0.2:80": "metadata"}


@pytest.mark.parametrize(
    "url",
    [
        "http://\uff11\uff16\uff19.254.169.254/",
        "http://\u24ea.0.0.0/",
        "http://169\u3002254\u3002169\u3002254/",
        "http://metadata\u3002google\u3002internal/",
    ],
)
def test_address_counts_however_it_is_spelt(url: str) -> None:
    bad = Endpoint("10.0.0.2:80", "p", metrics_url=url)
    assert special_endpoints([bad]) == {"10.0.0.2:80": special(place_of(url).host)}


@pytest.mark.parametrize("allowed", [False, True])
def test_last_good_state_is_screened(allowed: bool) -> None:
    discovery = {"dns": {"name": "engines.test", "port": 80}, "special_addresses": allowed}
    text = json.dumps([{"name": "p", "discovery": [discovery]}, {"name": "q"}])
    pools = TypeAdapter(tuple[PoolSettings, ...]).validate_json(text)
    good, bad = (Endpoint(address, "p") for address in ("10.0.0.1:80", "169.254.169.254:80"))
    led = Endpoint("10.0.0.2:80", "p", metrics_url="http://169.254.169.254/latest/")
    back = screen_last_good(Membership((Pool("p", (good, bad, led)), Pool("q"))), pools)
    assert back == {"p": (good, bad, led) if allowed else (replace(good, screened=True),)}


async def test_keeper_screens_the_last_good_state() -> None:
    text = json.dumps({"dns": {"name": "engines.test", "port": 80, "nameservers": ["127.0.0.1:1"]}})
    pool = PoolSettings(name="p", discovery=(DiscoverySettings.model_validate_json(text),))
    listener = ListenerSettings(name="l", address="127.0.0.1:1", pool="p")
    keeper = EndpointKeeper(Settings(pools=(pool,), listeners=(listener,)), CollectorRegistry())
    keeper.restore(Membership((Pool("p", (Endpoint("169.254.169.254:80", "p"), Endpoint(A, "p"))),)))
    await keeper.start()
    assert keeper.membership().addresses == (A,)
    await keeper.close()


@pytest.mark.parametrize("allowed", [False, True])
async def test_special_addresses_need_the_setting(
    hostile: Hostile, caplog: pytest.LogCaptureFixture, allowed: bool
) -> None:
    address = await hostile.start("metadata")
    values = {
        "name": "engines.test",
        "port": 80,
        "nameservers": (address,),
        "min_ttl_seconds": 0.02,
        "max_ttl_seconds": 0.05,
    }
    settings = DiscoverySettings.model_validate({"dns": values, "special_addresses": allowed})
    made = SourceFactory()(
        PoolSettings(name="p", models=("m",)), settings, SourceMetrics(CollectorRegistry())
    )
    results: list[tuple[Endpoint, ...]] = []
    task = asyncio.create_task(made.source.run(results.append))
    async with asyncio.timeout(60):
        while not results and "left out" not in caplog.text:
            await asyncio.sleep(0.01)
        enough = hostile.queries + 12
        while hostile.queries < enough:  # some more rounds, of two questions each
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert bool(results) is allowed
    assert caplog.text.count("left out: 169.254.169.254:80 (metadata)") == (not allowed)
