"""What the lane's core costs a request in CPU, without a socket, next to hyper-h2 on the same bytes.

The client's bytes are made once: its preface, and then for each request the headers as Envoy sends them, with
another trace in each, one message in frames of 16 KiB, and a reset behind the reply. Both sides get them in
reads of 32 KiB, assemble the message, answer it with 100 bytes, and their output is taken once a read. The
client is a recording, so it waits for no window; neither side sees more than its windows permit. Turns
alternate, and the best one of each side counts, because other work of the host only adds time.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import h2.config
import h2.connection
import h2.events
from hpack import Encoder

from fleet.lane.budget import Budget
from fleet.lane.connection import Connection, Message
from fleet.lane.limits import Limits
from testing import lane_client as wire
from warmroute.demo import report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warmroute.demo.report import Target

SIZES: Final = {"4kb": 4 * 1024, "48kb": 48 * 1024, "220kb": 220 * 1024}
REQUESTS: Final = 300
MOST_OVER_H2: Final = 0.25
"""CPU of the lane's core, divided by hyper-h2's: at least four times as cheap."""
_READ_BYTES: Final = 32 * 1024
_FRAME_BYTES: Final = 16_384
_REPLY: Final = bytes(100)
_HEADERS: Final = tuple(
    (name, "/envoy.service.ext_proc.v3.ExternalProcessor/Process" if name == ":path" else value)
    for name, value in wire.REQUEST
)
_FIRST: Final = wire.PREFACE + wire.settings() + wire.frame(wire.SETTINGS, wire.ACK)


def recorded(size: int, requests: int) -> list[list[bytes]]:
    """Return the reads of each request, with a message of `size` bytes."""
    encoder = Encoder()
    encoder.header_table_size = 0
    message = wire.grpc_message(bytes(size))
    calls = []
    for number in range(requests):
        stream = 2 * number + 1
        trace = ("traceparent", f"00-{number:032x}-{number:016x}-01")
        sent = wire.frame(wire.HEADERS, wire.END_HEADERS, stream, encoder.encode((*_HEADERS, trace)))
        for at in range(0, len(message), _FRAME_BYTES):
            sent += wire.data(stream, message[at : at + _FRAME_BYTES])
        reads = [sent[at : at + _READ_BYTES] for at in range(0, len(sent), _READ_BYTES)]
        calls.append([*reads, wire.reset(stream)])
    return calls


def on_lane(calls: list[list[bytes]]) -> int:
    """Answer all requests; return how many messages came."""
    connection = Connection(Limits(), Budget(1 << 28))
    connection.receive(_FIRST)
    connection.take()
    count = 0
    for reads in calls:
        for data in reads:
            for event in connection.receive(data):
                if isinstance(event, Message):
                    count += 1
                    connection.send(event.stream, _REPLY)
            connection.take()
    return count


def on_h2(calls: list[list[bytes]]) -> int:
    """Do the same with hyper-h2."""
    config = h2.config.H2Configuration(client_side=False, header_encoding=None)
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    connection.increment_flow_control_window(1 << 30)
    connection.receive_data(_FIRST)
    connection.data_to_send()
    count, reply = 0, wire.grpc_message(_REPLY)
    fields = ((b":status", b"200"), (b"content-type", b"application/grpc"))
    for reads in calls:
        part, size = bytearray(), 0
        for data in reads:
            for event in connection.receive_data(data):
                if not isinstance(event, h2.events.DataReceived):
                    continue
                part += event.data
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                size = size or 5 + int.from_bytes(part[1:5])
                if len(part) >= size:
                    count += bool(bytes(part[5:size]))
                    connection.send_headers(event.stream_id, fields)
                    connection.send_data(event.stream_id, reply)
            connection.data_to_send()
    return count


_SIDES: Final = {"lane": on_lane, "h2": on_h2}


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Return the CPU of a request in microseconds, by size and side."""
    costs: dict[str, dict[str, float]] = {}
    for name, size in SIZES.items():
        calls = recorded(size, REQUESTS)
        best = dict.fromkeys(_SIDES, float("inf"))
        for _ in range(rounds):
            for side, answer in _SIDES.items():
                began = time.process_time()
                count = answer(calls)
                best[side] = min(best[side], (time.process_time() - began) / REQUESTS)
                if count != REQUESTS:
                    raise RuntimeError(f"{side} read {count} of {REQUESTS} messages of {name}")
        costs[name] = {side: round(1e6 * seconds, 1) for side, seconds in best.items()}
    return costs


def targets_of(costs: dict[str, dict[str, float]]) -> Iterator[Target]:
    """Compare with the targets."""
    for size, at in costs.items():
        yield report.at_most(f"cpu_{size}_lane_over_h2", report.ratio(at["lane"], at["h2"]), MOST_OVER_H2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.lane_core",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=10, help="turns of each side; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    costs = measure(max(1, args.rounds))
    for size, at in costs.items():
        report.progress(f"{size:5} " + "  ".join(f"{side} {cost} us" for side, cost in at.items()))
    result: dict[str, Any] = {"requests": REQUESTS, "cpu_us": costs}
    return report.finish(result, list(targets_of(costs)), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
