"""Memory and speed of a full prefix index, compared with a plain dict of Python sets.

Run as `python -m bench.index --blocks 10000000 --json`. Conversations of two turns go to random endpoints, a
tenth of them to a second one as well. All begin with one system prompt, so that every endpoint caches it.
Each endpoint's limit is its share of `--blocks`, and the bench sends more than fits. Both sides run in
processes of their own. Bytes a block are growth of resident memory over blocks; times are CPU time of the
thread.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ext_proc.prefix.index import DepthColumn, PrefixIndex
from warmroute.demo import report
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SYSTEM_BLOCKS: Final = 8
PROMPT_BLOCKS: Final = 32
CHURN: Final = 1.1
"""What is sent, over what fits."""
PAGE_BYTES: Final = 4096


def resident_bytes() -> int:
    """Return this process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def conversations(blocks: int, endpoints: int) -> Iterator[tuple[str, list[int]]]:
    """Yield what is sent where: the prompts of both turns, until `blocks` blocks were new somewhere."""
    rng, draw = np.random.default_rng(1), random.Random(1)
    system = rng.integers(2, 2**63, SYSTEM_BLOCKS, dtype=np.uint64).tolist()
    for number in range(endpoints):
        yield f"e{number}", system
    new = PROMPT_BLOCKS - SYSTEM_BLOCKS
    sent = 0
    while sent < blocks:
        for own in rng.integers(2, 2**64 - 1, (1000, new), dtype=np.uint64).tolist():
            prompt = [*system, *own]
            for address in draw.sample(range(endpoints), 2 if draw.random() < 0.1 else 1):
                yield f"e{address}", prompt[: PROMPT_BLOCKS * 5 // 8]
                yield f"e{address}", prompt
                sent += new


class Sets:
    """The plain way: each endpoint's set of blocks. It knows no order of use, so nothing is evicted."""

    def __init__(self) -> None:
        self._blocks: dict[str, set[int]] = {}

    def record(self, address: str, blocks: Sequence[int]) -> None:
        """Note that an endpoint holds blocks."""
        self._blocks.setdefault(address, set()).update(blocks)

    def matched(self, blocks: Sequence[int]) -> dict[str, int]:
        """Return how many leading blocks each endpoint holds."""
        depths: dict[str, int] = {}
        for address, recorded in self._blocks.items():
            depth = 0
            for block in blocks:
                if block not in recorded:
                    break
                depth += 1
            if depth:
                depths[address] = depth
        return depths

    def block_count(self) -> int:
        """Return the number of blocks of all endpoints."""
        return sum(map(len, self._blocks.values()))


class Questions:
    """Prompts of a few shapes over the recorded blocks; their own blocks are recorded first."""

    def __init__(self, record: Callable[[str, list[int]], object], endpoints: int) -> None:
        draw = random.Random(2)
        self._draw = draw
        self.few = [self._fresh(512) for _ in range(50)]
        """512 blocks; three endpoints hold the first 512, 400 and 100."""
        self.hot = self._fresh(512)
        """512 blocks, whose first 64 every endpoint holds and one holds all."""
        self.steps = self._fresh(512)
        """512 blocks; every endpoint holds a different number: the worst case, answered less exactly."""
        self.small = [self._fresh(8) for _ in range(50)]
        """8 blocks; two endpoints hold the first 8 and 4."""
        self.unknown = [self._fresh(512) for _ in range(50)]
        for prompt in self.few:
            for depth in (512, 400, 100):
                record(f"e{draw.randrange(endpoints)}", prompt[:depth])
        for prompt in self.small:
            for depth in (8, 4):
                record(f"e{draw.randrange(endpoints)}", prompt[:depth])
        for number in range(endpoints):
            record(f"e{number}", self.hot[:64])
            record(f"e{number}", self.steps[: draw.randrange(1, 512)])
        record("e0", self.hot)

    def figures(self, matched: Callable[[list[int]], object], rounds: int) -> dict[str, float]:
        """Return microseconds a look-up, by shape."""
        shapes = {
            "few_512_us": self.few,
            "hot_512_us": [self.hot],
            "steps_512_us": [self.steps],
            "small_8_us": self.small,
            "unknown_512_us": self.unknown,
        }
        return {name: self._microseconds(matched, prompts, rounds) for name, prompts in shapes.items()}

    def _fresh(self, count: int) -> list[int]:
        return [self._draw.getrandbits(64) for _ in range(count)]

    def _microseconds(
        self, ask: Callable[[list[int]], object], prompts: list[list[int]], rounds: int
    ) -> float:
        taken: list[float] = []
        for _ in range(rounds):
            before = time.thread_time()
            for prompt in prompts:
                ask(prompt)
            taken.append((time.thread_time() - before) / len(prompts))
        return round(median(taken) * 1e6, 2)


def ours(blocks: int, endpoints: int) -> dict[str, Any]:
    """Measure the index."""
    before = resident_bytes()
    limit = max(2 * 512, blocks // endpoints)
    index = PrefixIndex(limit)
    times: list[float] = []
    for number, (address, prompt) in enumerate(conversations(int(blocks * CHURN), endpoints)):
        if number % 8:
            index.record(address, prompt)
            continue
        begin = time.thread_time()
        index.record(address, prompt)
        times.append(time.thread_time() - begin)
    block_count = sum(index.block_count(f"e{number}") for number in range(endpoints))
    resident = resident_bytes() - before - 8 * len(times) * 4
    times.sort()
    figures: dict[str, Any] = {
        "blocks_held": block_count,
        "bytes_per_block": round(resident / block_count, 1),
        "array_bytes_per_block": round(index.nbytes / block_count, 1),
        "record_p50_us": round(times[len(times) // 2] * 1e6, 1),
        "record_p99_us": round(times[int(len(times) * 0.99)] * 1e6, 1),
        "record_p9999_us": round(times[int(len(times) * 0.9999)] * 1e6, 1),
    }
    questions = Questions(index.record, endpoints)
    figures |= questions.figures(index.matched, 30)
    column = DepthColumn(index, [f"e{number}" for number in range(endpoints)])
    figures |= {f"column_{name}": value for name, value in questions.figures(column.matched, 30).items()}
    figures["one_block_prompts_bytes_per_block"] = one_block_prompts(max(blocks // 10, 1000), endpoints)
    return figures


def one_block_prompts(blocks: int, endpoints: int) -> float:
    """Return array bytes a block where every prompt is one unique block: the worst case."""
    index = PrefixIndex(blocks)
    few = max(1, endpoints // 10)
    for number, block in enumerate(np.random.default_rng(3).integers(2, 2**64 - 1, blocks, dtype=np.uint64)):
        index.record(f"e{number % few}", [int(block)])
    return round(index.nbytes / blocks, 1)


def plain(blocks: int, endpoints: int) -> dict[str, Any]:
    """Measure the sets."""
    before = resident_bytes()
    sets = Sets()
    for address, prompt in conversations(blocks, endpoints):
        sets.record(address, prompt)
    block_count = sets.block_count()
    figures: dict[str, Any] = {
        "blocks_held": block_count,
        "bytes_per_block": round((resident_bytes() - before) / block_count, 1),
    }
    return figures | Questions(sets.record, endpoints).figures(sets.matched, 3)


SIDES: Final = {"ours": ours, "plain": plain}


def apart(side: str, blocks: int, endpoints: int) -> dict[str, Any]:
    """Measure one side in a process of its own."""
    report.progress(f"{side}: {blocks} blocks on {endpoints} endpoints")
    arguments = ["--side", side, "--blocks", str(blocks), "--endpoints", str(endpoints)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.index", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"{side} did not come to its end")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def targets_of(mine: dict[str, Any], theirs: dict[str, Any]) -> list[report.Target]:
    """What the index must reach."""
    return [
        report.at_most("bytes per block", mine["bytes_per_block"], 40),
        report.at_most(
            "bytes per block, over a plain dict's",
            report.ratio(mine["bytes_per_block"], theirs["bytes_per_block"]),
            0.6,
        ),
        report.at_most("look-up of 512 blocks with few holders, us", mine["few_512_us"], 100),
        report.at_most("look-up of 512 blocks that all hold some of, us", mine["column_hot_512_us"], 100),
        report.at_most("look-up of 8 blocks, us", mine["small_8_us"], 10),
        report.at_most("record, 99th percentile, us", mine["record_p99_us"], 1000),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both, one after the other, and judge ours."""
    parser = argparse.ArgumentParser(prog="python -m bench.index", description=__doc__)
    parser.add_argument("--blocks", type=int, default=1_000_000, help="in total (default 1,000,000)")
    parser.add_argument("--endpoints", type=int, default=1000)
    parser.add_argument("--side", choices=sorted(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    if args.side:
        print(json.dumps(SIDES[args.side](args.blocks, args.endpoints)))
        return 0
    mine, theirs = (apart(side, args.blocks, args.endpoints) for side in ("ours", "plain"))
    mine["lookups_per_second"] = round(1e6 / mine["few_512_us"])
    theirs["lookups_per_second"] = round(1e6 / theirs["few_512_us"])
    result = {"blocks": args.blocks, "endpoints": args.endpoints, "ours": mine, "plain_dict": theirs}
    return report.finish(result, targets_of(mine, theirs), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
