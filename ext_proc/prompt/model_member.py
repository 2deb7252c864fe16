"""The place of a body's top-level `model` among its bytes, so that only the name is replaced."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import numpy as np

from ext_proc.prompt.text import ABSENT, QUOTE


class ModelMember(NamedTuple):
    """The value of `model`."""

    name: str
    start: int
    stop: int

    def replaced(self, body: bytes, name: str) -> bytes:
        """Return the body with another name in its place; every other byte stays."""
        return b"".join((body[: self.start], msgspec.json.encode(name), body[self.stop :]))


class _Body(msgspec.Struct, gc=False):
    model: msgspec.Raw = ABSENT


_DECODER: Final = msgspec.json.Decoder(_Body)


def model_member(body: bytes) -> ModelMember | None:
    """Find the value in a whole body; the last one, as engines do, if the key comes twice.

    None: there is no string of this name, or the body is no JSON object. Never raises.
    """
    try:
        raw = _DECODER.decode(body).model
        view = memoryview(raw)
        if not view or view[0] != QUOTE:
            return None
        # The decoder's raw value is a view of the body, so their addresses differ by its position.
        start = _address(view) - _address(body)
        return ModelMember(msgspec.json.decode(raw, type=str), start, start + len(view))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _address(data: bytes | memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)
