"""Access log messages as small batches of entries, each a bounded piece of work. Pure.

Parsing a whole message at once would be unsafe: two hostile bytes make an entry, so two megabytes would
become a million objects. So a message is first split by the wire format.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from fleet.envoy_api.service.accesslog.v3 import als_pb2
from fleet.wire_fields import fields, sized
from xds_server.access_log.mend import read_or_mended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PORTION: Final = 64
"""Entries of a batch: about 2 ms."""
MAX_FIELDS: Final = 32_768
"""Of a message, entries included: some hundred with Envoy's default buffer, some thousand with 1 MiB."""
MAX_ENTRY_BYTES: Final = 256 * 1024
"""Four times Envoy's default limit of headers."""
_BATCH_BYTES: Final = 64 * 1024
_LOGS: Final = sized(als_pb2.StreamAccessLogsMessage.HTTP_LOGS_FIELD_NUMBER)
_ENTRY: Final = sized(als_pb2.StreamAccessLogsMessage.HTTPAccessLogEntries.LOG_ENTRY_FIELD_NUMBER)
_IDENTIFIER: Final = sized(als_pb2.StreamAccessLogsMessage.IDENTIFIER_FIELD_NUMBER)
_LOG_NAME: Final = sized(als_pb2.StreamAccessLogsMessage.Identifier.LOG_NAME_FIELD_NUMBER)
_BEFORE_NAME: Final = 4
"""Fields that may precede the name, on either level."""
_MAX_NAME: Final = 200


def batches_of(message: bytes, mended: Callable[[], None]) -> Iterator[list[Any]]:
    """Yield entries, None for an unreadable one; `mended` is called for each entry with bad text.

    It never raises: the rest after a length beyond the end, or after `MAX_FIELDS`, counts as one unreadable
    entry.
    """
    left = MAX_FIELDS
    runs = _runs(message)
    while True:
        try:
            begin, end, count = next(runs, (0, 0, 0))
        except DecodeError:
            yield [None]
            return
        if not count:
            return
        if count > left:
            yield [None]
            return
        left -= count
        if count == 1 and end - begin > MAX_ENTRY_BYTES:
            yield [None]
        else:
            yield from _entries(message[begin:end], mended)


def log_name(message: bytes) -> str:
    """Return the name of a message's log; empty: the message does not state one."""
    try:
        for tag, begin, end in islice(fields(message, 0, len(message)), _BEFORE_NAME):
            if tag == _IDENTIFIER:
                for inner, first, last in islice(fields(message, begin, end), _BEFORE_NAME):
                    if inner == _LOG_NAME:
                        return message[first:last][:_MAX_NAME].decode(errors="replace")
    except DecodeError:
        pass  # `batches_of` reports the unreadable part.
    return ""


def _runs(message: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and number of fields of runs of entries; of other fields empty runs.

    An entry beyond `MAX_ENTRY_BYTES` is a run of its own.

    Raises:
        DecodeError: a field cannot be read. What stands before it was yielded.
    """
    for tag, start, stop in fields(message, 0, len(message)):
        if tag != _LOGS:
            yield start, start, 1
            continue
        begin, last, count = start, start, 0
        try:
            for _, first, end in fields(message, start, stop):
                if count and end - first > MAX_ENTRY_BYTES:
                    yield begin, last, count
                    begin, count = last, 0
                last, count = end, count + 1
                if count == PORTION or end - begin > _BATCH_BYTES:
                    yield begin, end, count
                    begin, count = end, 0
        except DecodeError:
            if count:
                yield begin, last, count
            raise
        yield begin, last, max(count, 1)


def _entries(data: bytes, mended: Callable[[], None]) -> Iterator[list[Any]]:
    """Yield the entries of a run: together, or one by one where some are perhaps mended."""
    try:
        yield list(als_pb2.StreamAccessLogsMessage.HTTPAccessLogEntries.FromString(data).log_entry)
    except DecodeError:
        for tag, first, end in fields(data, 0, len(data)):
            if tag == _ENTRY:
                yield [read_or_mended(data[first:end], mended)]
