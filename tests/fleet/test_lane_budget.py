"""The memory that connections share: steps, turns, and which messages end first."""

from __future__ import annotations

import random

import pytest

from fleet.lane import frames as h2
from fleet.lane.budget import LEAD, Budget
from fleet.lane.limits import STREAM_WINDOW
from tests.fleet.lane_client import MIB, Client, data, request

KIB = 1024
_FRAME = 16_384


class Peer:
    """A client that obeys its windows."""

    def __init__(self, budget: Budget) -> None:
        self._client = Client(budget=budget)
        self.connection = self._client.connection
        self._windows: dict[int, int] = {}
        self._left: dict[int, int] = {}
        """Bytes of their messages to send."""
        self.whole: list[int] = []
        """Streams whose message has arrived."""
        self.ended: list[int] = []
        """Streams that the server has ended for want of memory."""

    def begin(self, size: int, sent: int | None = None) -> int:
        """Open a stream, and send the first `sent` bytes behind a message's prefix, as far as it may."""
        stream = 3 + 2 * len(self._windows)
        self._take(self._client.sends(request(stream)))
        self._take(self._client.sends(data(stream, b"\0" + size.to_bytes(4))))
        self._windows[stream], self._left[stream] = STREAM_WINDOW - 5, size
        self.send(stream, size if sent is None else sent)
        return stream

    def send(self, stream: int, most: int) -> int:
        """Send as much of a message as its window has room for; return how much that was."""
        self.react()
        begun = most
        while size := min(self._windows[stream], most, self._left[stream], _FRAME):
            self._left[stream] -= size
            self._windows[stream] -= size
            most -= size
            self._take(self._client.sends(data(stream, bytes(size))))
            self.react()
        return begun - most

    def reset(self, stream: int) -> None:
        self._client.sends(h2.reset(stream, h2.CANCEL))

    def react(self) -> None:
        """Read what the server has sent."""
        self._take(self._client.sends(b""))
        for words in self._client.reads():
            kind, stream, *more = words.split()
            if kind == "WINDOW_UPDATE" and more:
                self._windows[int(stream)] += int(more[0])

    def _take(self, events: list[str]) -> None:
        for kind, stream, *_ in map(str.split, events):
            if kind == "message":
                self.whole.append(int(stream))
            elif kind == "ended":
                self.ended.append(int(stream))
                self._left[int(stream)] = 0


@pytest.mark.untraced
def test_announced_lengths_take_nothing_from_others() -> None:
    """Of 4,000 messages of 60 MB that have begun."""
    budget = Budget(4 * MIB, MIB, unfinished_bytes=4 * MIB)
    for _ in range(8):
        hostile = Peer(budget)
        for _ in range(500):
            hostile.begin(60_000_000, 10)
    honest = Peer(budget)
    stream = honest.begin(3 * MIB)
    assert honest.whole == [stream]
    assert not honest.ended


def test_a_message_earns_its_memory() -> None:
    """No more is permitted than eight times what has arrived."""
    budget = Budget(64 * MIB, MIB)
    peer = Peer(budget)
    stream = peer.begin(30 * MIB, 40 * KIB)
    assert budget.permitted <= LEAD * 40 * KIB
    assert (peer.send(stream, 5 * MIB), budget.unfinished) == (5 * MIB, 0)
    assert LEAD * MIB < budget.permitted <= LEAD * (5 * MIB + 40 * KIB)
    peer.reset(stream)
    assert budget.permitted == 0


def test_one_message_goes_on_beyond_the_limit() -> None:
    """The next one follows once it is whole, and both are, although each is larger than the limit."""
    budget = Budget(MIB, MIB)
    first, second = Peer(budget), Peer(budget)
    ours, theirs = first.begin(4 * MIB, 3 * MIB), second.begin(4 * MIB)
    assert budget.waiting == 1
    first.send(ours, MIB)
    assert first.whole == [ours]
    assert second.connection in budget.stirred
    second.send(theirs, 4 * MIB)
    assert second.whole == [theirs]


def test_connections_take_turns() -> None:
    """One with five messages in line delays another one's by two of them."""
    budget = Budget(MIB, MIB)
    leads, many, one = (Peer(budget) for _ in range(3))
    leader = leads.begin(4 * MIB, 2 * MIB)
    for _ in range(5):
        many.begin(2 * MIB, 60 * KIB)
    stream = one.begin(2 * MIB, 60 * KIB)
    assert budget.waiting > 3
    leads.send(leader, 2 * MIB)
    while not one.whole:
        assert sum(many.send(each, 200 * KIB) for each in range(3, 13, 2)) + one.send(stream, 200 * KIB)
    assert len(many.whole) <= 2


@pytest.mark.parametrize("leaves", ["reset", "end", "lost"])
def test_a_stream_that_ends_leaves_the_line(leaves: str) -> None:
    budget = Budget(MIB, MIB)
    leads, second, third = (Peer(budget) for _ in range(3))
    leader = leads.begin(4 * MIB, 2 * MIB)
    waits, other = second.begin(2 * MIB, 60 * KIB), third.begin(2 * MIB, 60 * KIB)
    assert budget.waiting == 2
    if leaves == "reset":
        second.reset(waits)
    elif leaves == "end":
        second.connection.end(waits)
    else:
        second.connection.lost()
    assert budget.waiting == 1
    leads.reset(leader)
    assert third.send(other, 2 * MIB) == 2 * MIB - 60 * KIB
    assert (budget.unfinished, budget.permitted, budget.waiting) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_honest_messages_become_whole(seed: int) -> None:
    """Of any sizes, in any order, next to clients that stop anywhere; within the limit and one message."""
    draw = random.Random(seed)
    limit, most = draw.choice((1, 200 * KIB, 2 * MIB)), 2 * MIB
    budget = Budget(limit, MIB, unfinished_bytes=1 << 40)
    honest = [Peer(budget) for _ in range(draw.randrange(1, 4))]
    hostile = [Peer(budget) for _ in range(draw.randrange(3))]
    sending: list[tuple[Peer, int]] = []
    for _ in range(12):
        for peer in hostile:
            peer.begin(draw.randrange(most), draw.randrange(most))
        peer = draw.choice(honest)
        sending.append((peer, peer.begin(draw.randrange(most), draw.randrange(1, 300 * KIB))))
    for _ in range(200):
        draw.shuffle(sending)
        for peer, stream in sending:
            peer.send(stream, draw.randrange(most // 2, most))
        assert budget.permitted <= limit + most + 5
        budget.relieve()
    assert [len(peer.whole) for peer in honest] == [
        sum(each is peer for each, _ in sending) for peer in honest
    ]
    assert not any(peer.ended for peer in honest)


def test_relief_ends_what_stands_still_while_others_wait() -> None:
    """Two whole periods long, the leader as well; neither what goes on nor what waits."""
    budget = Budget(MIB, MIB)
    stops, waits = Peer(budget), Peer(budget)
    small, leader = stops.begin(200 * KIB, 40 * KIB), stops.begin(60 * MIB, 2 * MIB)
    for _ in range(5):
        budget.relieve()
    stops.react()
    assert not stops.ended, "nobody waits"
    stream = waits.begin(MIB, 60 * KIB)
    stops.send(leader, 9 * MIB)
    for ended in ([], [], [small, leader]):
        budget.relieve()
        stops.react()
        if not ended:
            stops.send(small, 1)
        assert sorted(stops.ended) == ended
    waits.send(stream, MIB)
    assert (waits.whole, waits.ended) == ([stream], [])


def test_those_without_progress_for_longest_end_first() -> None:
    """Above the limit of parts, until an eighth is free: not the connection with most, which goes on."""
    budget = Budget(MIB, MIB, unfinished_bytes=40 * 50 * KIB)
    hostile = [Peer(budget) for _ in range(36)]
    honest = Peer(budget)
    tiny = hostile[0].begin(60_000, 500)
    for peer in hostile[:30]:
        peer.begin(60_000, 50 * KIB)
    for _ in range(9):
        honest.begin(60_000, 50 * KIB)
    for peer in hostile[30:]:
        peer.begin(60_000, 50 * KIB)
        peer.react()
    honest.react()
    assert not honest.ended
    for peer in hostile:
        peer.react()
    assert [len(peer.ended) for peer in hostile] == [1] * 6 + [0] * 30
    assert tiny not in hostile[0].ended, "its end would free nothing"
    assert budget.unfinished <= 40 * 50 * KIB


@pytest.mark.parametrize(("sent", "ends"), [(994, False), (995, True)])
def test_streams_with_half_the_mean_end(sent: int, ends: bool) -> None:
    budget = Budget(MIB, MIB, unfinished_bytes=3998)
    first, second = Peer(budget), Peer(budget)
    first.begin(60_000, sent)
    second.begin(60_000, 3990 - sent)
    first.react()
    second.react()
    assert (bool(first.ended), bool(second.ended)) == (ends, not ends)


def test_an_equal_part_of_all_streams_is_every_connections() -> None:
    """Above the total: streams beyond it are refused, so that another connection can open some."""
    budget = Budget(MIB, MIB, streams=100)
    hostile, honest = Client(budget=budget), Client(budget=budget)
    hostile.sends(*map(request, range(3, 303, 2)))
    assert hostile.reads().count("RST_STREAM 301 REFUSED_STREAM") == 1
    assert hostile.connection.streams == 100
    assert honest.sends(*map(request, range(3, 103, 2))) == [f"opened {each}" for each in range(3, 103, 2)]
    assert honest.answer(request(103)) == ["RST_STREAM 103 REFUSED_STREAM"]
    hostile.connection.lost()
    honest.connection.lost()
    assert budget.streams == 0
