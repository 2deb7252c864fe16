"""Legal bodies of which one value is dense: a lead, a salt, an adapter, or a prompt that is an object."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from bench.body_maker import Made
from ext_proc.prompt.envelope import LEADS

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARE: Final = 0.05
_NAMES: Final = (*sorted({*LEADS} - {"prompt", "system", "instructions"}), "extra_key", "lora", "lora_path")
_ELEMENTS: Final[Sequence[Any]] = (0, 1e9, "", "a,[", None, [], [1], {}, {"b": [1], "a": 1}, {"url": "x"})
_COUNTS: Final = (0, 1, 9, 40, 400, 6000)


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
    # An object that is a prompt is legal as far as its values are read: `play` cannot tell.
    return Made(spelled, "", "", "prompt" not in body, spelled)
