"""Bodies with one dense value: a lead, a salt, an adapter, or a prompt that is an object.

They are legal, except those with a byte that is not UTF-8 in a value that is passed on unchanged.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from bench.body_maker import Made
from ext_proc.prompt.envelope import ADAPTERS, LEADS

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARE: Final = 0.05
_NAMES: Final = (*sorted({*LEADS} - {"prompt", "system", "instructions"}), "extra_key", "lora", "lora_path")
_ELEMENTS: Final[Sequence[Any]] = (0, 1e9, "", "a,[", None, [], [1], {}, {"b": [1], "a": 1}, {"url": "x"})
_COUNTS: Final = (0, 1, 9, 40, 400, 6000)
BAD_SHARE: Final = 0.03
_BAD: Final = (b"\xff", b"\xe9", b"\x80", b"\xed\xa0\x80", b"\xf0\x9f", b"\xc0\xaf")
_FEW: Final = (0, 1, 9, 255, 257, 400, 1300)
"""Beside `_COUNTS`, what is on both sides of where JSON is sorted no more and where it is a long name."""


def dense(seed: int, number: int) -> Made | None:
    """Return body `number` of `seed` where it is one of these, else None."""
    rng = random.Random(f"{seed}:{number}:dense")
    if rng.random() >= SHARE:
        return None
    elements = rng.choices(rng.sample(_ELEMENTS, rng.randrange(1, 4)), k=rng.choice(_COUNTS))
    body: dict[str, Any]
    if rng.random() < 0.3:
        body = {"prompt": {"prompt_string": "x", "multimodal_data": elements}}
    else:
        value = {"x": elements} if rng.random() < 0.2 else elements
        body = {rng.choice(_NAMES): value, "text_input": "x"}
    separators = rng.choice(((",", ":"), (" ,\n", "\t: ")))
    spelled = json.dumps(body, separators=separators).encode()
    # An object as a prompt is legal as far as its values are read: `play` cannot judge it.
    return Made(spelled, "", "", "prompt" not in body, spelled)


def bad_bytes(seed: int, number: int) -> Made | None:
    """Return body `number` of `seed` where it is one with bad bytes inside a value or a key, else None."""
    rng = random.Random(f"{seed}:{number}:bad")
    if rng.random() >= BAD_SHARE:
        return None
    name = rng.choice((*_NAMES, *ADAPTERS, "cache_salt", "model", "metadata", "tool_calls"))
    bad = b'"%b"' % rng.choice(_BAD)
    elements = [rng.choice((b"0", b'"a"', b"{}"))] * rng.choice(_FEW)
    elements.insert(rng.randrange(len(elements) + 1), rng.choice((bad, b"{%b:1}" % bad, b"[%b]" % bad)))
    value = b"[%b]" % b",".join(elements)
    value = rng.choice((value, value, b'{"x":%b}' % value, bad))
    member = b'"%b":%b' % (name.encode(), value)
    if rng.random() < 0.2:
        member = b'"parameters":{"adapter_id":%b}' % value
    body = b'{"model":"m",%b,"prompt":"x"}' % member
    if rng.random() < 0.3:
        body = b'{"messages":[{"role":"user","content":"x",%b}]}' % member
    return Made(body, "", "", legal=False, plain=body)
