"""The leading bytes of an answer: Envoy sends copies of them in observability mode. I/O-free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ext_proc.prompt.encoding import decode
from ext_proc.prompt.stored import HEAD_BYTES, name_in_answer
from ext_proc.prompt.unreadable import Unreadable
from fleet.names import EXT_PROC_FILTER

if TYPE_CHECKING:
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

_GOOD: Final = range(200, 300)


class AnswerHead:
    """Reads the name that an answer gives to what its engine has stored."""

    __slots__ = ("_encoding", "_head", "_looked_at", "_status", "address", "done", "name")

    def __init__(self) -> None:
        self._head = b""
        self._encoding = ""
        self._status = self._looked_at = 0
        self.address = ""
        """The endpoint that answers."""
        self.name = ""
        """Empty: none so far."""
        self.done = False
        """Whether further bytes change nothing."""

    def take(self, message: pb.ProcessingRequest) -> None:
        """Take a copy of a part of the body; attributes come with the first one."""
        if self.done or message.WhichOneof("request") != "response_body":
            return
        if EXT_PROC_FILTER in message.attributes:
            fields = message.attributes[EXT_PROC_FILTER].fields
            self.address = fields["upstream.address"].string_value
            self._status = int(fields["response.code"].number_value)
            self._encoding = fields["response.headers['content-encoding']"].string_value
        part = message.response_body
        self._head += part.body[: HEAD_BYTES - len(self._head)]
        if self._status not in _GOOD or not self.address:
            self.done = True
            return
        ends = part.end_of_stream or len(self._head) >= HEAD_BYTES
        if not ends and len(self._head) < 2 * self._looked_at:
            return  # Many small parts cost a few looks.
        self._looked_at = len(self._head)
        name = self._read()
        self.done = ends or name is not None
        self.name = name or ""
        if self.done:
            self._head = b""

    def _read(self) -> str | None:
        if not self._encoding:
            return name_in_answer(self._head)
        decoded = decode(self._head, self._encoding, HEAD_BYTES, complete=False)
        return "" if isinstance(decoded, Unreadable) else name_in_answer(decoded.body)
