"""The lane against hyper-h2, an independent implementation, through any valid exchange and any frames."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.lane.budget import Budget
from fleet.lane.connection import Connection, Ended, Event, HalfClosed, Message, Opened
from fleet.lane.limits import Limits
from testing.lane_client import REQUEST, Watched, as_bytes, grpc_message

_SIZES = (0, 1, 5, 100, 16_379, 16_380, 65_530, 65_531, 65_536, 100_000, 100_000, 200_000)
"""Around a frame of 16,384 bytes and the first window, with and without the prefix."""
_ALL = 1 << 30
_WINDOWS = (0, 1, 7, 16_384, 65_535, 1_000_000)
_FRAMES = (16_384, 20_000, 1 << 20)
_BUDGETS = (1, 250_000, 1 << 28)
"""Bytes of messages: one of the largest at a time, or all."""


@dataclass
class Plan:
    """A call: its messages, when the server answers and ends it, and how the client ends."""

    sizes: list[int]
    answers: str
    """`each` message at once, all at the `end`, or none: the server ends it `early`."""
    trailers: bool
    padded: bool
    cancelled: bool


@dataclass
class Call:
    """A plan that is under way."""

    plan: Plan
    rest: bytearray
    messages: list[bytes]
    arrived: list[bytes] = field(default_factory=list)
    replied: bytearray = field(default_factory=bytearray)
    status: str | None = None
    finished: bool = False
    """Nothing is to be sent any more."""
    gone: bool = False
    """Reset by either side."""


class App:
    """The server's part: echoes messages, in the manner of their call's plan."""

    def __init__(self, connection: Watched, calls: dict[int, Call]) -> None:
        self.connection = connection
        self.calls = calls
        self.ended: list[tuple[int, str]] = []

    def take(self, events: list[Event]) -> None:
        for event in events:
            call = self.calls[event.stream]
            if isinstance(event, Opened):
                assert event.path == "/test.Echo/Call"
            elif isinstance(event, Message):
                call.arrived.append(bytes(event.data))
                if call.plan.answers == "each":
                    self.connection.send(event.stream, event.data)
                elif call.plan.answers == "early":
                    self.connection.end(event.stream, 5, "early")
            elif isinstance(event, HalfClosed):
                if call.plan.answers == "end":
                    self.connection.send(event.stream, *call.arrived)
                self.connection.end(event.stream)
            else:
                assert isinstance(event, Ended)
                self.ended.append((event.stream, event.reason))


class Peer:
    """A client of hyper-h2, a connection, and the bytes on their way between them."""

    def __init__(self, budget: Budget, rng: random.Random, window: int) -> None:
        self.rng = rng
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.client.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = window
        self.client.local_settings.acknowledge()
        self.client.initiate_connection()
        self.connection = Connection(Limits(), budget)
        self.watched = Watched(self.connection)
        self.calls: dict[int, Call] = {}
        self.app = App(self.watched, self.calls)
        self.there = bytearray()
        self.back: list[bytes] = []
        """Whole frames: hyper-h2 applies an acknowledged setting only to the next bytes that it is given."""
        self.changing = True
        """A SETTINGS frame waits for its ACK."""
        self.unread: Counter[int] = Counter()
        """Bytes by stream that the client has not given back to its windows; 0 is the connection."""

    def open(self, plan: Plan) -> None:
        stream = self.client.get_next_available_stream_id()
        messages = [bytes([number % 251]) * size for number, size in enumerate(plan.sizes, stream)]
        self.client.send_headers(stream, REQUEST)
        self.calls[stream] = Call(plan, bytearray(b"".join(map(grpc_message, messages))), messages)

    def send(self) -> bool:
        """Send a piece of a call; returns whether there was room for one."""
        pending = [stream for stream, call in self.calls.items() if not call.finished]
        self.rng.shuffle(pending)
        return any(self._send(stream, self.calls[stream]) for stream in pending)

    def _send(self, stream: int, call: Call) -> bool:
        room = min(self.client.local_flow_control_window(stream), self.client.max_outbound_frame_size)
        if call.plan.cancelled and self.rng.random() < 0.2:
            self.client.reset_stream(stream, 8)
            call.finished = call.gone = True
            return True
        if not call.rest:
            if call.plan.trailers:
                self.client.send_headers(stream, [("x-trailer", "yes")], end_stream=True)
            else:
                self.client.end_stream(stream)
            call.finished = True
            return True
        pad = self.rng.choice((0, 3, 255)) if call.plan.padded else None
        size = min(
            len(call.rest), room - (0 if pad is None else pad + 1), self.rng.choice((1, 5, 3_000, 1 << 30))
        )
        if size <= 0:
            return False
        ends = size == len(call.rest) and not call.plan.trailers and self.rng.random() < 0.5
        self.client.send_data(stream, bytes(call.rest[:size]), end_stream=ends, pad_length=pad)
        del call.rest[:size]
        call.finished = ends
        return True

    def carry(self, most: int = _ALL) -> bool:
        """Carry some bytes both ways; returns whether there were any."""
        self.there += self.client.data_to_send()
        piece, self.there = bytes(self.there[:most]), self.there[most:]
        if piece:
            self.app.take(self.watched.receive(piece))
        self.back += map(as_bytes, self.watched.take())
        count = self.rng.choice((0, 1, len(self.back))) if most < _ALL else len(self.back)
        answers, self.back = self.back[:count], self.back[count:]
        for answer in answers:
            for event in self.client.receive_data(answer):
                self._take(event)
        return bool(piece or answers)

    def _take(self, event: h2.events.Event) -> None:
        assert not isinstance(event, h2.events.ConnectionTerminated), self.connection.error
        if isinstance(event, h2.events.SettingsAcknowledged):
            self.changing = False
        stream = int(getattr(event, "stream_id", None) or 0)
        call = self.calls.get(stream)
        if call is None:
            return
        if isinstance(event, h2.events.DataReceived):
            call.replied += event.data or b""
            for window in (0, stream):
                self.unread[window] += event.flow_controlled_length or 0
        elif isinstance(event, h2.events.TrailersReceived | h2.events.ResponseReceived):
            fields = {str(name): str(value) for name, value in event.headers or []}
            call.status = fields.get("grpc-status", call.status)
        elif isinstance(event, h2.events.StreamReset):
            assert event.error_code == 0, "only an early end's RST_STREAM"
            call.gone = call.finished = True

    def read(self) -> bool:
        """Give the windows back what has been read; returns whether there was any."""
        unread, self.unread = self.unread, Counter()
        for stream, count in unread.items():
            call = self.calls.get(stream)
            if count and (call is None or not (call.gone or call.status)):
                self.client.increment_flow_control_window(count, stream or None)
        return bool(unread)

    def open_window(self) -> bool:
        """Let the server send; returns whether that has to wait or has just begun."""
        if not self.changing and self.client.local_settings.initial_window_size < 65_535:
            self.changing = True
            self.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
        return self.changing

    def ping(self) -> None:
        self.client.ping(b"areyouup")

    def change(self) -> None:
        """Change a setting, one at a time: hyper-h2 takes an ACK for that of each change."""
        if self.changing:
            return
        self.changing = True
        code, values = self.rng.choice(
            ((SettingCodes.INITIAL_WINDOW_SIZE, _WINDOWS), (SettingCodes.MAX_FRAME_SIZE, _FRAMES))
        )
        self.client.update_settings({code: self.rng.choice(values)})


def stir(budget: Budget, peers: list[Peer]) -> bool:
    """Let the connections go on that another one's frames have changed; returns whether there were any."""
    stirred = set(budget.stirred)
    budget.stirred.clear()
    for peer in peers:
        if peer.connection in stirred:
            peer.app.take(peer.watched.receive(b""))
    return bool(stirred)


def run(plans: list[Plan], budget: Budget, seed: int, window: int, count: int) -> list[Peer]:
    """Take the plans through their exchange in an order by the seed, until nothing more happens."""
    rng = random.Random(seed)
    peers = [Peer(budget, rng, window) for _ in range(count)]
    waiting = list(plans)
    while waiting or rng.random() < 0.95:
        peer = rng.choice(peers)
        if waiting and rng.random() < 0.2:
            peer.open(waiting.pop())
        for step in rng.choices((peer.send, peer.read, peer.change, peer.ping), (6, 2, 0.3, 0.3), k=3):
            step()
        peer.carry(rng.choice((1, 9, 100, 20_000, _ALL)))
        stir(budget, peers)
    for peer in peers:
        peer.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
    while any(
        [step() for peer in peers for step in (peer.send, peer.carry, peer.read)] + [stir(budget, peers)]
    ):
        pass
    return peers


plans = st.builds(
    Plan,
    sizes=st.lists(st.sampled_from(_SIZES), max_size=4),
    answers=st.sampled_from(["each", "each", "end", "end", "early"]),
    trailers=st.booleans(),
    padded=st.booleans(),
    cancelled=st.sampled_from([False, False, False, True]),
)


@given(
    st.lists(plans, min_size=1, max_size=6),
    st.sampled_from(_BUDGETS),
    st.sampled_from(_WINDOWS),
    st.integers(0, 1 << 32),
    st.integers(1, 2),
)
@settings(max_examples=60)
def test_valid_exchanges_arrive_whole(
    plans: list[Plan], message_bytes: int, window: int, seed: int, count: int
) -> None:
    budget = Budget(message_bytes, 1 << 28)
    peers = run(plans, budget, seed, window, count)
    for peer in peers:
        assert not peer.connection.closing, peer.connection.error
        for call in peer.calls.values():
            check(call)
        assert {stream for stream, reason in peer.app.ended if reason != "reset"} == set()
        assert peer.connection.streams == 0
    assert budget.waiting == 0


def check(call: Call) -> None:
    """Check a finished call: its messages in their order, its replies, its end."""
    plan = call.plan
    assert call.arrived == call.messages[: len(call.arrived)]
    if plan.cancelled:
        return
    if plan.answers == "early" and call.messages:
        assert call.status == "5"
        assert len(call.arrived) >= 1
        return
    assert call.arrived == call.messages
    assert bytes(call.replied) == b"".join(map(grpc_message, call.messages))
    assert call.status == "0"
