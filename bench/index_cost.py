"""Cost of reading, hashing and looking up one prompt, and memory of a recorded block.

Run as `python -m bench.index_cost`; prints one JSON object, times in microseconds, the best of five rounds.
"""

from __future__ import annotations

import json
import random
import timeit
import tracemalloc
from typing import TYPE_CHECKING

from ext_proc.prefix.index import PrefixIndex
from ext_proc.prompt.blocks import block_hashes, identity_of
from ext_proc.prompt.decode import BodyReader, Prompt

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK_BYTES = 256


def microseconds(work: Callable[[], object], runs: int) -> float:
    """Return the best mean time of one call over five rounds."""
    return round(min(timeit.repeat(work, number=runs, repeat=5)) / runs * 1e6, 2)


def chat_body(size_bytes: int) -> bytes:
    """Return a chat request of about `size_bytes`."""
    content = "Lorem ipsum \n dolor et" * 35
    roles = ["system"] + ["user", "assistant"] * (size_bytes // 1700)
    messages = [{"role": role, "content": content} for role in roles]
    return json.dumps({"messages": messages, "model": "m", "stream": True}).encode()


def pick_side() -> dict[str, float]:
    """Return the cost of reading and hashing an 8 KB body, and of reading a cut 400 KB body."""
    body, cut = chat_body(8_192), chat_body(420_000)[:400_000]
    reader = BodyReader()
    prompt = reader.read(body, complete=True).prompt
    assert isinstance(prompt, Prompt)
    identity = identity_of("m", "")
    return {
        "decode_8k_us": microseconds(lambda: reader.read(body, complete=True), 2000),
        "hash_8k_us": microseconds(
            lambda: block_hashes(prompt.text, identity=identity, block_bytes=BLOCK_BYTES, max_blocks=2048),
            2000,
        ),
        "decode_cut_400k_us": microseconds(lambda: reader.read(cut, complete=False), 20),
    }


def index_side(endpoints: int, blocks: int) -> dict[str, float]:
    """Return the cost of one look-up and one record with a prompt that every endpoint holds half of."""
    draw = random.Random(1)
    index = PrefixIndex(4 * blocks)
    shared = [draw.getrandbits(64) for _ in range(blocks)]
    cold = iter([[draw.getrandbits(64) for _ in range(blocks)] for _ in range(1100)])
    for number in range(endpoints):
        index.record(f"e{number}", shared[: blocks // 2])
    index.record("e0", shared)
    few = [draw.getrandbits(64) for _ in range(blocks)]
    for number in range(min(4, endpoints)):
        index.record(f"e{number}", few)
    return {
        "matched_few_holders_us": microseconds(lambda: index.matched(few), 200),
        "matched_all_holders_us": microseconds(lambda: index.matched(shared), 200),
        "record_warm_us": microseconds(lambda: index.record("e1", few), 200),
        "record_cold_us": microseconds(lambda: index.record("e2", next(cold)), 200),
    }


def bytes_per_own_block(endpoints: int) -> float:
    """Return the memory of one block that one endpoint holds alone."""
    draw = random.Random(1)
    tracemalloc.start()
    index = PrefixIndex(1_000_000)
    for number in range(endpoints):
        for _ in range(20_000 // endpoints // 20):
            index.record(f"e{number}", [draw.getrandbits(64) for _ in range(20)])
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return round(used / sum(index.block_count(f"e{number}") for number in range(endpoints)), 1)


def main() -> None:
    """Measure all and print it."""
    figures: dict[str, object] = dict(pick_side())
    for endpoints in (10, 1000):
        figures[f"held_block_bytes_{endpoints}_endpoints"] = bytes_per_own_block(endpoints)
        for blocks in (32, 512):
            figures[f"index_{endpoints}_endpoints_{blocks}_blocks"] = index_side(endpoints, blocks)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
