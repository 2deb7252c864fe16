"""Messages of one publisher in order, whatever is lost, repeated or begun anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.kv.sequence import END, MAX_DEFERRED, MAX_FRUITLESS, Output, Restart, Sequencer

WHOLE, PART = Restart(whole=True), Restart(whole=False)
OTHER = Restart(whole=False, emptied=True)


def payload(number: int, engine: str = "e") -> bytes:
    return f"{engine}{number}".encode()


class Engine:
    """A publisher with its memory of what it published."""

    def __init__(self, name: str = "e", memory: int = 10_000) -> None:
        self.name = name
        self.published = 0
        self.memory = memory

    def publish(self) -> tuple[int, bytes]:
        self.published += 1
        return self.published - 1, payload(self.published - 1, self.name)

    def replay(self, start: int) -> list[tuple[int, bytes]]:
        first = max(start, self.published - self.memory)
        return [(number, payload(number, self.name)) for number in range(first, self.published)]


def taken(sequence: Sequencer) -> list[Output]:
    return list(iter(sequence.take, None))


def serve(sequence: Sequencer, engine: Engine) -> None:
    """Answer every replay that is asked for."""
    while sequence.replay_from is not None:
        start, sequence.replay_from = sequence.replay_from, None
        for number, told in engine.replay(start):
            sequence.replayed(number, told)
        sequence.replayed(END, b"")


def following(engine: Engine) -> Sequencer:
    sequence = Sequencer(replayable=True)
    sequence.connect()
    serve(sequence, engine)
    taken(sequence)
    return sequence


def test_engine_without_messages_is_whole() -> None:
    sequence, engine = Sequencer(replayable=True), Engine()
    assert not sequence.settled
    sequence.connect()
    assert sequence.replay_from == 0
    serve(sequence, engine)
    sequence.live(*engine.publish())
    assert taken(sequence) == [WHOLE, payload(0)]
    assert sequence.settled


def test_earlier_messages_are_replayed() -> None:
    engine, sequence = Engine(), Sequencer(replayable=True)
    for _ in range(3):
        engine.publish()
    sequence.connect()
    serve(sequence, engine)
    sequence.live(*engine.publish())
    assert taken(sequence) == [WHOLE, *map(payload, range(4))]


def test_a_history_that_is_gone_makes_it_a_part() -> None:
    engine, sequence = Engine(memory=2), Sequencer(replayable=True)
    for _ in range(5):
        engine.publish()
    sequence.connect()
    serve(sequence, engine)
    assert taken(sequence) == [PART, payload(3), payload(4)]
    assert sequence.settled


def test_without_replay_a_late_beginning_is_a_part() -> None:
    sequence = Sequencer(replayable=False)
    sequence.connect()
    assert sequence.replay_from is None
    sequence.live(7, payload(7))
    sequence.live(8, payload(8))
    assert taken(sequence) == [PART, payload(7), payload(8)]


def test_without_replay_the_first_message_begins_the_whole() -> None:
    sequence = Sequencer(replayable=False)
    sequence.connect()
    sequence.live(0, payload(0))
    assert taken(sequence) == [WHOLE, payload(0)]


def test_a_gap_is_replayed_and_what_comes_meanwhile_waits() -> None:
    engine = Engine()
    sequence = following(engine)
    sequence.live(*engine.publish())
    engine.publish()
    sequence.live(*engine.publish())
    assert (sequence.replay_from, sequence.settled, sequence.counts["gap"]) == (1, False, 1)
    sequence.live(*engine.publish())
    serve(sequence, engine)
    assert taken(sequence) == list(map(payload, range(4)))


def test_what_was_replayed_and_then_comes_live_counts_once() -> None:
    engine = Engine()
    live = [engine.publish() for _ in range(4)]
    sequence = Sequencer(replayable=True)
    sequence.connect()
    serve(sequence, engine)
    for message in live[1:]:
        sequence.live(*message)
    sequence.live(*engine.publish())
    assert taken(sequence) == [WHOLE, *map(payload, range(5))]


def test_gap_without_replay_voids_the_blocks() -> None:
    sequence = Sequencer(replayable=False)
    sequence.connect()
    sequence.live(0, payload(0))
    sequence.live(2, payload(2))
    assert taken(sequence) == [WHOLE, payload(0), PART, payload(2)]
    assert sequence.counts["gap"] == 1


def test_a_number_that_goes_back_is_another_engine() -> None:
    engine = Engine()
    sequence = following(engine)
    for _ in range(3):
        sequence.live(*engine.publish())
    taken(sequence)
    other = Engine("f")
    sequence.live(*other.publish())
    assert taken(sequence) == [OTHER, WHOLE, payload(0, "f")]
    assert sequence.counts["restart"] == 1


def test_restarted_engine_is_replayed_from_its_start() -> None:
    engine = Engine()
    sequence = following(engine)
    for _ in range(5):
        sequence.live(*engine.publish())
    taken(sequence)
    other = Engine("f")
    for _ in range(2):
        other.publish()
    sequence.live(*other.publish())
    serve(sequence, other)
    assert taken(sequence) == [OTHER, WHOLE, *(payload(n, "f") for n in range(3))]


def test_reconnection_to_the_same_engine_continues() -> None:
    engine = Engine()
    sequence = following(engine)
    for _ in range(3):
        sequence.live(*engine.publish())
    taken(sequence)
    sequence.disconnect()
    engine.publish()
    sequence.connect()
    assert sequence.replay_from == 2
    serve(sequence, engine)
    sequence.live(*engine.publish())
    assert taken(sequence) == [payload(3), payload(4)]
    assert sequence.counts["restart"] == 0


@pytest.mark.parametrize("published", [0, 1, 3, 7])
def test_an_engine_that_restarted_while_away_is_read_anew(published: int) -> None:
    """Whether it has told fewer messages than the old one or more."""
    engine = Engine()
    sequence = following(engine)
    for _ in range(4):
        sequence.live(*engine.publish())
    taken(sequence)
    sequence.disconnect()
    other = Engine("f")
    for _ in range(published):
        other.publish()
    sequence.connect()
    serve(sequence, other)
    sequence.live(*other.publish())
    assert taken(sequence) == [OTHER, WHOLE, *(payload(n, "f") for n in range(published + 1))]
    assert sequence.counts["restart"] == 1


def test_reconnection_without_replay_voids_the_blocks() -> None:
    sequence = Sequencer(replayable=False)
    sequence.connect()
    sequence.live(0, payload(0))
    sequence.disconnect()
    sequence.connect()
    assert not sequence.settled
    assert taken(sequence) == [WHOLE, payload(0), PART]


def test_a_hole_in_an_answer_is_asked_for_again() -> None:
    """ROUTER sockets drop what does not fit into their queue."""
    engine = Engine()
    for _ in range(5):
        engine.publish()
    sequence = Sequencer(replayable=True)
    sequence.connect()
    sequence.replay_from = None
    for number in (0, 1, 3, 4):
        sequence.replayed(number, payload(number))
    sequence.replayed(END, b"")
    assert sequence.replay_from == 2
    serve(sequence, engine)
    assert taken(sequence) == [WHOLE, *map(payload, range(5))]


def test_an_answer_without_its_end_is_asked_for_again() -> None:
    engine = Engine()
    for _ in range(3):
        engine.publish()
    sequence = Sequencer(replayable=True)
    sequence.connect()
    sequence.replay_from = None
    sequence.replayed(0, payload(0))
    sequence.replay_failed()
    assert sequence.replay_from == 1
    serve(sequence, engine)
    assert taken(sequence) == [WHOLE, *map(payload, range(3))]


def test_no_answer_at_all_leaves_what_comes_live() -> None:
    sequence = Sequencer(replayable=True)
    sequence.connect()
    sequence.live(5, payload(5))
    sequence.replay_from = None
    sequence.replay_failed()
    sequence.live(6, payload(6))
    assert taken(sequence) == [PART, payload(5), payload(6)]
    assert sequence.settled


def test_failed_replay_does_not_prove_a_restart() -> None:
    """Its caches may all be there: what is known of other sources stays."""
    engine = Engine()
    sequence = following(engine)
    sequence.live(*engine.publish())
    taken(sequence)
    sequence.disconnect()
    sequence.connect()
    sequence.replay_from = None
    sequence.replay_failed()
    assert taken(sequence) == [PART]


def test_a_replay_that_never_brings_what_is_missing_is_given_up() -> None:
    engine = Engine()
    sequence = following(engine)
    sequence.live(*engine.publish())
    taken(sequence)
    sequence.live(5, payload(5))
    asked = 0
    while sequence.replay_from is not None:
        asked += 1
        sequence.replay_from = None
        sequence.replayed(END, b"")
    assert asked <= MAX_FRUITLESS
    assert taken(sequence) == [PART, payload(5)]


def test_what_does_not_fit_while_waiting_is_asked_for_afterwards() -> None:
    engine = Engine()
    sequence = following(engine)
    engine.publish()
    for _ in range(MAX_DEFERRED + 10):
        sequence.live(*engine.publish())
    start, sequence.replay_from = sequence.replay_from, None
    assert start == 0
    sequence.replayed(0, payload(0))
    sequence.replayed(END, b"")
    assert sequence.replay_from == MAX_DEFERRED + 1
    serve(sequence, engine)
    assert taken(sequence) == list(map(payload, range(MAX_DEFERRED + 11)))


@given(st.lists(st.sampled_from(["tell", "lose", "restart", "drop", "serve"]), max_size=60))
def test_the_end_is_always_that_of_the_engine_that_lives(steps: list[str]) -> None:
    """Whatever happens, after a quiet end exactly the living engine's messages stand, in order, once each."""
    engine, sequence, name = Engine("0"), Sequencer(replayable=True), 0
    sequence.connect()
    for step in steps:
        if step == "tell":
            sequence.live(*engine.publish())
        elif step == "lose":
            engine.publish()
        elif step == "restart":
            name += 1
            engine = Engine(str(name))
            sequence.disconnect()
            sequence.connect()
        elif step == "drop":
            sequence.disconnect()
            sequence.connect()
        else:
            serve(sequence, engine)
    serve(sequence, engine)
    sequence.live(*engine.publish())
    serve(sequence, engine)
    held: list[bytes] = []
    for out in taken(sequence):
        if isinstance(out, Restart):
            held.clear()
        else:
            held.append(out)
    assert held == [payload(number, engine.name) for number in range(engine.published)]
    assert sequence.settled


@given(st.lists(st.tuples(st.sampled_from(["live", "replayed"]), st.integers(0, END), st.binary(max_size=3))))
def test_no_order_of_numbers_raises_or_grows_without_limit(messages: list[tuple[str, int, bytes]]) -> None:
    sequence = Sequencer(replayable=True)
    sequence.connect()
    for kind, number, told in messages:
        (sequence.live if kind == "live" else sequence.replayed)(number, told)
    assert len(sequence.out) <= 3 * len(messages) + 3
