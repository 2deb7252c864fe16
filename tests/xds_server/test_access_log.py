"""The access log service over real gRPC: whatever an Envoy sends, its stream goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from fleet.envoy_api.data.accesslog.v3 import accesslog_pb2
from fleet.envoy_api.service.accesslog.v3 import als_pb2, als_pb2_grpc
from fleet.names import (
    ACCESS_LOG_NAME,
    DESTINATION_KEY,
    DESTINATION_NAMESPACE,
    JSON_ROUTE,
    LEADING_FILTER,
    LEADING_ROUTE,
    METADATA_MODEL,
    METADATA_NAMESPACE,
    SESSION_TAG,
    WEBSOCKET_ROUTE,
)
from fleet.service.turns import Turns
from fleet.wire_fields import fields
from tests.xds_server.transports import TRANSPORTS, server_of
from xds_server.access_log import batches as log_batches
from xds_server.access_log import mend as log_mend
from xds_server.access_log import service as access_log
from xds_server.access_log.batches import MAX_ENTRY_BYTES, MAX_FIELDS, PORTION, batches_of
from xds_server.access_log.entry import MOST_ATTEMPTS, finished_of
from xds_server.access_log.finished import Finished
from xds_server.access_log.service import AccessLogService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


def entry(address: str = "10.0.0.1", status: int = 200, pick: str = "") -> Any:
    made = accesslog_pb2.HTTPAccessLogEntry()
    common = made.common_properties
    common.upstream_remote_address.socket_address.address = address
    common.upstream_remote_address.socket_address.port_value = 80
    common.upstream_cluster = "chat"
    common.upstream_request_attempt_count = 1
    common.start_time.FromNanoseconds(1_700_000_000_250_000_000)
    common.time_to_first_upstream_rx_byte.FromMilliseconds(125)
    common.time_to_last_downstream_tx_byte.FromMilliseconds(1500)
    made.request.request_id = "r-1"
    made.response.response_code.value = status
    if pick:
        common.metadata.filter_metadata[DESTINATION_NAMESPACE].update({DESTINATION_KEY: pick})
        common.metadata.filter_metadata[METADATA_NAMESPACE].update({"reason": "warm", "number": 3})
    return made


def message(*entries: Any) -> Any:
    made = als_pb2.StreamAccessLogsMessage()
    made.identifier.log_name = ACCESS_LOG_NAME
    made.http_logs.log_entry.extend(entries)
    return made


class Taken:
    """A service and what it has handed on."""

    def __init__(self) -> None:
        self.requests: list[Finished] = []
        self.observed: list[Finished] = []
        self.fail = False
        self.registry = CollectorRegistry()
        self.service = AccessLogService(self.take, self.registry, lambda: 5.0, [self.observed.append])

    def take(self, finished: Finished, now: float) -> None:
        if self.fail:
            raise RuntimeError("ours")
        assert now == 5.0
        self.requests.append(finished)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def taken() -> Taken:
    return Taken()


@pytest.fixture(params=TRANSPORTS)
async def stub(taken: Taken, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    server = server_of(request.param, f"unix:{tmp_path}/x.sock", taken.service.register)
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield als_pb2_grpc.AccessLogServiceStub(channel)
    await server.stop(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def test_an_entry_is_read() -> None:
    """Every field, with times in seconds."""
    read = finished_of(entry(status=503, pick="10.0.0.2:80, 10.0.0.1:80"))
    assert read == Finished(
        address="10.0.0.1:80",
        picked="10.0.0.2:80",
        cluster="chat",
        request_id="r-1",
        started_at=1_700_000_000.25,
        first_byte_seconds=0.125,
        duration_seconds=1.5,
        status=503,
        flags=(),
        attempts=1,
        metadata={"reason": "warm"},
    )


def test_what_an_entry_lacks_is_unknown() -> None:
    """No host, no pick, no byte: empty or None, never 0 seconds."""
    read = finished_of(accesslog_pb2.HTTPAccessLogEntry())
    assert read is not None
    assert (read.address, read.picked, read.first_byte_seconds, read.duration_seconds) == ("", "", None, None)
    assert (read.status, read.flags, dict(read.metadata)) == (0, (), {})


def test_session_is_identified_by_its_tag() -> None:
    """What it is called is nobody's business here."""
    made = entry()
    untagged = finished_of(made)
    assert untagged is not None
    assert untagged.session is None
    made.common_properties.custom_tags[SESSION_TAG] = "somebody"
    tagged = finished_of(made)
    assert tagged is not None
    assert tagged.session == hash("somebody")
    assert "somebody" not in repr(tagged)


def test_flags_have_envoys_short_names() -> None:
    """Also IPv6 hosts are written as the fleet writes them."""
    made = entry("::1")
    made.common_properties.response_flags.upstream_connection_failure = True
    made.common_properties.response_flags.upstream_retry_limit_exceeded = True
    read = finished_of(made)
    assert read is not None
    assert set(read.flags) == {"UF", "URX"}
    assert read.address == "[::1]:80"


def test_notes_of_requests_that_go_on_are_left_out() -> None:
    """Envoy can be told to log in between."""
    made = entry()
    made.common_properties.intermediate_log_entry = True
    assert finished_of(made) is None


def opened() -> Any:
    made = entry(status=101)
    made.common_properties.intermediate_log_entry = True
    made.common_properties.access_log_type = accesslog_pb2.DownstreamTunnelSuccessfullyEstablished
    made.common_properties.route_name = WEBSOCKET_ROUTE
    return made


async def test_websocket_is_taken_at_opening_and_counted_at_end(taken: Any) -> None:
    """One request, one count, one span."""
    taken.service.follow(["chat"])
    await taken.service.read(message(opened(), entry(status=101)).SerializeToString())
    assert [(read.established, read.handshake) for read in taken.requests] == [(True, True), (False, False)]
    assert taken.observed == taken.requests[1:]
    assert taken.metric("warmroute_served_requests_total", pool="chat", code_class="1xx") == 1


async def test_requests_arrive_and_are_counted(stub: Any, taken: Any) -> None:
    """By pool and class of status, with what became of the pick."""
    taken.service.follow(["chat"])
    assert not taken.service.listening
    call = stub.StreamAccessLogs()
    await call.write(message(entry(), entry(status=429), entry(pick="10.0.0.1:80"), entry(pick="10.0.0.9:1")))
    await until(lambda: len(taken.requests) == 4)
    assert taken.service.listening
    assert taken.observed == taken.requests
    assert taken.metric("warmroute_served_requests_total", pool="chat", code_class="2xx") == 3
    assert taken.metric("warmroute_served_requests_total", pool="chat", code_class="4xx") == 1
    picks = [
        taken.metric("warmroute_served_picks_total", outcome=o) for o in ("honoured", "elsewhere", "none")
    ]
    assert picks == [1, 1, 2]
    await call.done_writing()
    assert await call == als_pb2.StreamAccessLogsResponse()
    await until(lambda: not taken.service.listening)


async def test_strangers_share_one_label(stub: Any, taken: Any) -> None:
    """A cluster that is no pool of ours makes no metric of its own."""
    made = entry(status=302)
    made.common_properties.upstream_cluster = "x" * 1000
    made.common_properties.upstream_request_attempt_count = 3
    await stub.StreamAccessLogs(iter([message(made)]))
    assert taken.metric("warmroute_served_requests_total", pool="other", code_class="3xx") == 1
    assert taken.metric("warmroute_served_retries_total", pool="other") == 2


async def test_hostile_entries_are_counted_and_the_stream_goes_on(stub: Any, taken: Any) -> None:
    """Times that are none, statuses beyond all classes, a message of another kind."""
    bad = entry()
    bad.common_properties.time_to_first_upstream_rx_byte.seconds = -5
    odd = entry(status=4_000_000_000)
    odd.common_properties.upstream_request_attempt_count = 4_000_000_000
    taken.service.follow(["chat"])
    tcp = als_pb2.StreamAccessLogsMessage()
    tcp.tcp_logs.log_entry.add()
    await stub.StreamAccessLogs(iter([message(bad, odd), tcp, message(entry())]))
    assert taken.metric("warmroute_access_log_malformed_total") == 1
    assert len(taken.requests) == 2
    assert taken.requests[0].attempts == MOST_ATTEMPTS
    assert taken.metric("warmroute_served_retries_total", pool="chat") == MOST_ATTEMPTS - 1, (
        "no sum is spoilt"
    )


async def test_bytes_that_are_no_message_end_no_stream(taken: Any) -> None:
    """They are counted; what follows is read."""
    await taken.service.read(b"\xff\xff\xff")
    await taken.service.read(b"")
    await taken.service.read(message(entry()).SerializeToString())
    assert taken.metric("warmroute_access_log_malformed_total") == 1
    assert len(taken.requests) == 1


def with_bad_text(*fields: str) -> bytes:
    """An entry with bytes that are no UTF-8 in these fields; Protobuf itself writes none."""
    made = entry(pick="10.0.0.1:80")
    common = made.common_properties
    for field in fields:
        if field == "session":
            common.custom_tags[SESSION_TAG] = "caf!"
        elif field == "id":
            made.request.request_id = "caf!"
        elif field == "nested":
            common.metadata.filter_metadata["x"].update({"a": [{"b": "caf!"}, "caf! ☃"]})
    return made.SerializeToString().replace(b"caf!", b"caf\xe9")


def sized(number: int, value: bytes) -> bytes:
    """One field of the wire format that has a length."""
    size, length = len(value), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + value


def raw(*entries: bytes) -> bytes:
    identifier = als_pb2.StreamAccessLogsMessage.Identifier(log_name=ACCESS_LOG_NAME).SerializeToString()
    return sized(1, identifier) + sized(2, b"".join(sized(1, entry) for entry in entries))


@pytest.mark.parametrize("fields", [("session",), ("id",), ("nested",), ("session", "id", "nested")], ids=str)
async def test_text_that_is_no_utf8_costs_no_entry(taken: Any, fields: Any) -> None:
    """Bad text loses neither the neighbouring entries nor the other fields of its own entry."""
    good = entry(status=503).SerializeToString()
    await taken.service.read(raw(good, with_bad_text(*fields), good))
    assert [read.status for read in taken.requests] == [503, 200, 503]
    bad = taken.requests[1]
    assert (bad.address, bad.picked, bad.first_byte_seconds) == ("10.0.0.1:80", "10.0.0.1:80", 0.125)
    assert (bad.session is not None) == ("session" in fields)
    assert bad.request_id == ("caf?" if "id" in fields else "r-1")
    assert taken.metric("warmroute_access_log_mended_total") == 1
    assert taken.metric("warmroute_access_log_malformed_total") == 0


async def test_an_entry_that_nothing_mends_costs_itself_only(taken: Any) -> None:
    """A number in it leads beyond its end."""
    good = entry().SerializeToString()
    await taken.service.read(raw(good, good[:-1] + b"\xff", good))
    assert len(taken.requests) == 2
    assert taken.metric("warmroute_access_log_malformed_total") == 1


async def test_cut_and_spoilt_messages_never_raise(taken: Any) -> None:
    """At every byte; the next message is read."""
    whole = raw(entry().SerializeToString(), with_bad_text("session"), entry(status=503).SerializeToString())
    for at in range(len(whole)):
        await taken.service.read(whole[:at])
        await taken.service.read(whole[:at] + b"\xff" + whole[at + 1 :])
    taken.requests.clear()
    await taken.service.read(whole)
    assert [read.status for read in taken.requests] == [200, 200, 503]


async def test_a_good_message_is_not_read_by_hand(taken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would cost the usual path several times as much."""
    monkeypatch.setattr(log_batches, "read_or_mended", None)
    await taken.service.read(message(*[entry()] * 3).SerializeToString())
    assert len(taken.requests) == 3


async def test_a_fault_of_ours_ends_no_stream(
    stub: Any, taken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One traceback, one count an entry, and the next ones are taken."""
    taken.fail = True
    call = stub.StreamAccessLogs()
    await call.write(message(entry(), entry(), entry()))
    await until(lambda: taken.metric("warmroute_access_log_faults_total") == 3)
    taken.fail = False
    await call.write(message(entry()))
    await until(lambda: len(taken.requests) == 1)
    call.cancel()
    assert sum(record.exc_info is not None for record in caplog.records) == 1


async def test_a_large_batch_lets_others_run(taken: Any) -> None:
    """Between slices the loop turns, however many streams have one."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    service, now = taken.service, iter(range(1_000_000))
    service._turns = Turns(lambda: float(next(now)))
    running = asyncio.create_task(others())
    whole = message(*[entry()] * (PORTION * 20)).SerializeToString()
    await asyncio.gather(*(service.read(whole) for _ in range(3)))
    running.cancel()
    assert len(taken.requests) == 3 * PORTION * 20
    assert turns >= 3 * 20


def test_each_step_through_a_hostile_message_is_small() -> None:
    """Of whatever it is full: entries, logs, numbers, and what no log has."""
    for filling in (
        raw(*[b""] * 100_000),
        raw(b"x" * 100_000, *[b"\xff"] * 100_000),
        sized(2, b"") * 100_000,
        b"\x08\x01" * 100_000,
        sized(2, b"\x08\x01" * 100_000),
        sized(2, sized(9, b"") * 100_000),
    ):
        steps = list(batches_of(filling, lambda: None))
        assert max(map(len, steps)) <= PORTION
        assert sum(map(len, steps)) <= MAX_FIELDS + 1
        assert steps[-1] == [None], "it is not read to its end"


async def test_message_of_many_entries_is_read_up_to_a_limit(taken: Any) -> None:
    few = entry().SerializeToString()
    await taken.service.read(raw(*[few] * 5000))
    assert len(taken.requests) == 5000
    taken.requests.clear()
    await taken.service.read(raw(*[b""] * (MAX_FIELDS + 1000)))
    assert MAX_FIELDS - 2 * PORTION <= len(taken.requests) <= MAX_FIELDS
    assert taken.metric("warmroute_access_log_malformed_total") == 1


async def test_an_entry_of_too_many_fields_is_not_mended(taken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mending is slow, so an entry of 256 KiB would hold the loop for a third of a second."""
    looked = 0

    def counted(*at: Any) -> Any:
        nonlocal looked
        for field in fields(*at):
            looked += 1
            yield field

    monkeypatch.setattr(log_mend, "fields", counted)
    endless = with_bad_text("session") + sized(3, sized(13, b"") * 100_000 + sized(2, b"\xff"))
    await taken.service.read(raw(entry().SerializeToString(), endless, entry(status=503).SerializeToString()))
    assert [read.status for read in taken.requests] == [200, 503]
    assert taken.metric("warmroute_access_log_malformed_total") == 1
    assert looked < 3000


def test_entries_that_are_mended_are_steps_of_their_own() -> None:
    slow = sized(3, sized(13, b"") * 1900 + sized(2, b"\xff"))
    steps = [len(step) for step in batches_of(raw(*[slow] * 20), lambda: None)]
    assert (max(steps), sum(steps)) == (1, 20)


async def test_a_huge_entry_costs_itself_only(taken: Any) -> None:
    good, huge = entry(), entry()
    huge.request.path = "/" + "x" * MAX_ENTRY_BYTES
    await taken.service.read(message(good, huge, good).SerializeToString())
    assert len(taken.requests) == 2
    assert taken.metric("warmroute_access_log_malformed_total") == 1


async def test_messages_that_wait_are_bounded_together(
    taken: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = message(*[entry()] * 200).SerializeToString()
    monkeypatch.setattr(access_log, "MAX_BYTES", 3 * len(whole) + 100)
    await asyncio.gather(*(taken.service.read(whole) for _ in range(5)))
    assert len(taken.requests) == 3 * 200
    assert taken.metric("warmroute_access_log_malformed_total") == 2
    assert sum("left out" in record.message for record in caplog.records) == 1
    await taken.service.read(whole)
    assert len(taken.requests) == 4 * 200
    assert taken.service._bytes == 0


async def test_access_log_of_another_name_is_logged(taken: Any, caplog: pytest.LogCaptureFixture) -> None:
    made = message(entry())
    made.identifier.node.id = "x"
    made.identifier.log_name = "theirs"
    await taken.service.read(made.SerializeToString())
    assert len(taken.requests) == 1
    assert "'theirs'" in caplog.text


@pytest.mark.parametrize("chooses", [False, True])
@pytest.mark.parametrize(
    ("route", "pick", "cause"),
    [
        (LEADING_ROUTE, "10.0.0.1:80", ""),
        (LEADING_ROUTE, "", "unanswered"),
        (JSON_ROUTE, "", "unanswered"),
        ("content-type", "", "content_type"),
        ("other", "", "method"),
        ("upgrade", "", "upgrade"),
        ("of another", "", ""),
    ],
)
def test_a_route_tells_why_there_is_no_decision(route: str, pick: str, cause: str, *, chooses: bool) -> None:
    """The pick of a leading part is in the metadata of its filter, and Envoy's own choice in ours."""
    made = entry()
    made.common_properties.route_name = route
    made.common_properties.metadata.filter_metadata[METADATA_NAMESPACE].update(
        {METADATA_MODEL: "m"} if chooses else {}
    )
    if pick:
        deeper = {DESTINATION_NAMESPACE: {DESTINATION_KEY: pick}, METADATA_NAMESPACE: {"reason": "warm"}}
        made.common_properties.metadata.filter_metadata[LEADING_FILTER].update(deeper)
    finished = finished_of(made)
    assert finished is not None
    assert (finished.picked, finished.unseen) == (pick, cause)
    assert finished.metadata.get("reason") == ("warm" if pick else None)
