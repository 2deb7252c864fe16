"""The reader of cut bodies next to pydantic_core's parser for partial JSON: CPU and memory of one body.

Each body lacks its last fiftieth. The parser only builds its tree: what reads model, salt, adapter and text
from the tree would come on top. Memory is the most that Python objects took at once, without the body.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from bench.body_families import FAMILIES, chat
from ext_proc.prompt.decode import BodyReader
from fleet.settings.limits import LimitSettings
from warmroute.demo import report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KIB: Final = 1024
SIZES: Final = {"4k": 4 * KIB, "48k": 48 * KIB, "220k": 220 * KIB, "1m": KIB * KIB}
MOST_MS: Final = 5.0
"""The target of `bench.bodies`."""
_WORDS: Final = 'the quick, brown fox jumps over a lazy dog and says "no" to {it}\n'


def _responses(size: int) -> bytes:
    part = {"type": "input_text", "text": _WORDS * 10}
    items = [{"role": "user", "content": [part]}] * max(1, size // 800)
    return json.dumps({"model": "m", "instructions": _WORDS, "input": items}).encode()


def _messages(size: int) -> bytes:
    body = json.loads(chat(size))
    return json.dumps(
        {"model": "m", "max_tokens": 9, "system": _WORDS, "messages": body["messages"]}
    ).encode()


def _completion(size: int) -> bytes:
    return json.dumps({"model": "m", "prompt": _WORDS * max(1, size // len(_WORDS))}).encode()


ORDINARY: Final[dict[str, Callable[[int], bytes]]] = {
    "chat": chat,
    "agent": FAMILIES["agent"],
    "responses": _responses,
    "messages": _messages,
    "completion": _completion,
    "token_ids": FAMILIES["token_ids"],
    "tools": FAMILIES["tools"],
}


def cost_of(work: Callable[[], object], repeats: int) -> dict[str, float]:
    """Return the shortest processor time of some tries, and the most memory of one."""
    best = float("inf")
    for _ in range(repeats):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"us": round(best * 1e6, 1), "kb": round(most / 1e3, 1)}


def compared(body: bytes, repeats: int) -> dict[str, dict[str, float]]:
    """Return the cost of both readers for a body of which the end is missing."""
    reader = BodyReader()
    part = body[: -len(body) // 50 or -1]

    def tree() -> object:
        try:
            return from_json(part, allow_partial="trailing-strings", cache_strings="none")
        except ValueError:
            return None

    return {
        "own": cost_of(lambda: reader.read(part, complete=False), repeats),
        "from_json": cost_of(tree, repeats),
    }


def measured() -> tuple[dict[str, Any], list[report.Target]]:
    """Compare ordinary bodies by size, and the worst of all families at the default limit of a body."""
    ordinary = {
        f"{name}_{label}": compared(make(size), 60 if size < 100 * KIB else 12)
        for name, make in ORDINARY.items()
        for label, size in SIZES.items()
    }
    limit = LimitSettings().body_bytes
    families = {name: compared(make(limit), 6) for name, make in FAMILIES.items()}
    worst = {
        reader: {
            "ms": max(family[reader]["us"] for family in families.values()) / 1e3,
            "mb": max(family[reader]["kb"] for family in families.values()) / 1e3,
        }
        for reader in ("own", "from_json")
    }
    result = {"ordinary": ordinary, "families": families, "worst": worst}
    return result, [report.at_most("own_worst_ms", worst["own"]["ms"], MOST_MS)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.partial_json", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(arguments)
    result, targets = measured()
    for name, cost in result["ordinary"].items():
        report.progress(f"{name:16} own {cost['own']}  from_json {cost['from_json']}")
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
