"""Mutation tests of the cores: change one operator or constant, and see whether a test notices.

A sample by seed over `CORES`, without their modules that do I/O. The pure tests run once under
`bench.lines_of_tests`, which writes the lines that each of them runs. Each mutant is written into a copy of
the tree, where the tests that run its line are run until one fails. Prints one line a mutant, and the share
that was killed of each core and of all; the exit status is 1 below `--at-least`. A survivor is a missing
test, or equal to the original: `EQUAL` lists those with their reasons.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, zip_longest
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
COPIED = (
    "fleet",
    "xds_server",
    "ext_proc",
    "warmroute",
    "testing",
    "bench",
    "tests",
    "proto",
    "docs",
    "deploy",
    "pyproject.toml",
)
CORES = (
    "ext_proc/pick",
    "ext_proc/prefix",
    "ext_proc/prompt",
    "ext_proc/protocol",
    "ext_proc/director",
    "ext_proc/model_choice.py",
    "fleet/lane",
    "fleet/models.py",
    "xds_server/weights",
    "xds_server/signals",
    "xds_server/discovery",
    "xds_server/endpoints",
    "xds_server/envoy",
    "warmroute/doctor",
)
IO = re.compile(r"^(?:import|from) (?:asyncio|aiohttp|grpc)\b", re.MULTILINE)
"""In a module outside the core: only tests with I/O check it, which take too long to run for each mutant. The
verdict `io` is for modules without this that no pure test runs either; they do not count."""
HANGING = 3.0
"""A mutant hangs, and so is killed, when its tests take this many times as long as they took traced."""
MOST_SECONDS = 15.0
"""Of tests for one mutant, traced. What fails, mostly fails in a fast one, and a survivor meets them all."""
START = 30.0
"""Seconds for the start of pytest."""

EQUAL: dict[str, str] = {
    "ext_proc/pick/explanation.py  len(order) < EXPLAINED  ->  (len(order) <= EXPLAINED)": (
        "EXPLAINED positions, followed by others and cut to EXPLAINED, are the same positions"
    ),
    "ext_proc/pick/candidates.py  1.0  ->  (2.0)": (
        "without any weight all candidates have the same one, and only ratios of weights count"
    ),
    "fleet/lane/connection.py  at < stop  ->  (at <= stop)": (
        "to read no bytes changes neither a window nor a message"
    ),
    "ext_proc/prefix/table.py  waiting.size > _FEW  ->  (waiting.size >= _FEW)": (
        "few keys have the same slots one by one and together"
    ),
    "ext_proc/prefix/recency.py  2 * room  ->  (2 / room)": (
        "the order moves to a new array each time, with the same content"
    ),
    "xds_server/weights/stabiliser.py  100.0  ->  (101.0)": (
        "the smallest share that a weight can express, 1e-4, times either power of e is far above 1"
    ),
}
"""Mutants that compute the same as the original, each with its reason."""

T = TypeVar("T")

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module: the text from `start` to `end` (offsets in UTF-8 bytes) becomes `text`."""

    path: Path
    line: int
    last_line: int
    start: int
    end: int
    before: str
    text: str

    def apply(self, source: bytes) -> bytes:
        """Return the module with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    @property
    def change(self) -> str:
        """Before and after, on one line however long the expression is."""
        before, after = (" ".join(text.split())[:70] for text in (self.before, self.text))
        return f"{before}  ->  {after}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.change}"


def changes(node: ast.AST) -> Iterator[ast.expr]:
    """Yield each other expression that may stand in the place of this one."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in COMPARISONS:
            yield ast.Compare(left, [COMPARISONS[type(operator)]()], [right])
        case ast.BinOp(left, operator, right) if type(operator) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.And() if isinstance(operator, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Call(ast.Name("min" | "max" as name), arguments, keywords):
            yield ast.Call(ast.Name("max" if name == "min" else "min"), arguments, keywords)
        case _:
            return


@cache
def words_of_tests() -> frozenset[str]:
    """Return all names in the tests."""
    texts = (path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def runs(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is computed: no annotation, no decorator, nothing that only the type checker reads.

    And no number that a test takes from the module by name: it is a choice, which the test follows.
    """
    match node:
        case ast.AnnAssign(ast.Name(name), _, ast.Constant() | ast.BinOp()) if name.isupper():
            if name in words_of_tests():
                return
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from runs(child)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every change of a module, `path` being relative to the root."""
    source = (ROOT / path).read_bytes()
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for node in runs(ast.parse(source)):
        for changed in changes(node):
            assert isinstance(node, ast.expr)
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start = offsets[node.lineno - 1] + node.col_offset
            end = offsets[node.end_lineno - 1] + node.end_col_offset
            # Parentheses hold together what the place of the expression needs.
            yield Mutant(
                path,
                node.lineno,
                node.end_lineno,
                start,
                end,
                source[start:end].decode(),
                f"({ast.unparse(changed)})",
            )


def tests_of(core: str) -> str:
    """Return the folder with the tests of a core."""
    package, _, name = core.partition("/")
    return f"tests/{name if package == 'warmroute' else package}"


def sample(count: int, seed: int, only: Sequence[str]) -> list[tuple[str, Mutant]]:
    """Return mutants with their cores, as many of one core as of another."""
    chance = random.Random(seed)
    drawn = []
    for core in CORES:
        if only and not any(core.startswith(name) for name in only):
            continue
        folder = ROOT / core
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]
        pure = [file.relative_to(ROOT) for file in files if not IO.search(file.read_text())]
        listed = [mutant for file in pure for mutant in mutants_of(file)]
        chance.shuffle(listed)
        drawn.append([(core, mutant) for mutant in listed])
    rounds = zip_longest(*drawn)
    return [entry for entries in rounds for entry in entries if entry is not None][:count]


def copy_tree(folder: Path) -> None:
    """Lay a copy of what the tests need."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)


def pytest(folder: Path, arguments: Sequence[str], limit: float | None = None) -> str | None:
    """Return what pytest says last where a pure test fails in the copy, or takes too long; otherwise None."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--part", "pure"]
    try:
        ran = subprocess.run(
            [*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return "no end in time"
    return "\n".join(ran.stdout.splitlines()[-20:]) if ran.returncode else None


class TestLines:
    """The test functions that run each line of the product, and their time in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._tests: dict[tuple[str, int], set[str]] = {}
        self._tests_of_module: dict[str, set[str]] = {}

    def add(self, written: Mapping[str, Any]) -> None:
        """Add what a run under `bench.lines_of_tests` wrote."""
        self.seconds |= written["seconds"]
        names = list(written["seconds"])
        for module, lines in written["lines"].items():
            for line, numbers in lines.items():
                tests = {names[number] for number in numbers}
                self._tests.setdefault((module, int(line)), set()).update(tests)
                self._tests_of_module.setdefault(module, set()).update(tests)

    def of(self, mutant: Mutant) -> list[list[str]]:
        """Return the fastest tests that run its lines: from files with its name, then from others.

        Together they take `MOST_SECONDS` and the last one's time. Lines that only an import runs have the
        tests of their whole module.
        """
        module = str(mutant.path)
        lines = range(mutant.line, mutant.last_line + 1)
        tests = {test for line in lines for test in self._tests.get((module, line), ())}
        if not tests:
            tests = self._tests_of_module.get(module, tests)
        ordered = sorted(tests, key=self.seconds.__getitem__)
        before = accumulate((self.seconds[test] for test in ordered), initial=0.0)
        fast = [test for test, seconds in zip(ordered, before, strict=False) if seconds < MOST_SECONDS]
        own = [test for test in fast if mutant.path.stem in test.partition("::")[0]]
        return [part for part in (own, [test for test in fast if test not in own]) if part]


def measured(folder: Path, tests: str) -> Mapping[str, Any]:
    """Return what `bench.lines_of_tests` writes of the pure tests in a folder.

    Raises:
        SystemExit: tests fail without a mutant.
    """
    written = folder / "lines.json"
    failure = pytest(folder, ["-p", "bench.lines_of_tests", "--lines-of-tests", str(written), tests])
    if failure is not None:
        raise SystemExit(f"{failure}\ntests fail without a mutant: mend them first")
    lines: Mapping[str, Any] = json.loads(written.read_text())
    return lines


def verdict_of(folder: Path, mutant: Mutant, lines: TestLines) -> str:
    """Return "killed" if a test fails or hangs with this change."""
    parts = lines.of(mutant)
    if not parts:
        return "io"
    target = folder / mutant.path
    source = target.read_bytes()
    target.write_bytes(mutant.apply(source))
    names = folder / "tests.txt"
    try:
        for tests in parts:
            names.write_text("\n".join(tests))
            limit = START + HANGING * sum(lines.seconds[test] for test in tests)
            if pytest(folder, [f"@{names}"], limit) is not None:
                return "killed"
    finally:
        target.write_bytes(source)
    return "equal" if f"{mutant.path}  {mutant.change}" in EQUAL else "SURVIVED"


def judged(drawn: Sequence[tuple[str, Mutant]]) -> Iterator[str]:
    """Yield the verdict on each mutant: on as many at a time as there are processors, in order.

    Raises:
        SystemExit: tests fail without a mutant.
    """
    workers = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(workers) as pool:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            copy_tree(Path(name, str(number)))
            folders.put(Path(name, str(number)))

        def in_a_copy(check: Callable[..., T], *of: Any) -> T:
            folder = folders.get()
            try:
                return check(folder, *of)
            finally:
                folders.put(folder)

        lines = TestLines()
        tested = dict.fromkeys(tests_of(core) for core, _ in drawn)
        for written in pool.map(partial(in_a_copy, measured), tested):
            lines.add(written)
        yield from pool.map(lambda entry: in_a_copy(verdict_of, entry[1], lines), drawn)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sample, and return 0 if enough of it was killed."""
    parser = argparse.ArgumentParser(prog="python -m bench.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="mutants in the sample (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another sample (default 0)")
    parser.add_argument("--only", nargs="*", default=[], help="cores, such as ext_proc/pick (default all)")
    parser.add_argument("--at-least", type=float, default=0.9, help="share that must be killed (default 0.9)")
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    options = parser.parse_args(arguments)
    drawn = sample(options.count, options.seed, options.only)
    if options.list:
        print(*(mutant for _, mutant in drawn), sep="\n")
        return 0
    verdicts: dict[str, Counter[str]] = {}
    for (core, mutant), verdict in zip(drawn, judged(drawn), strict=True):
        verdicts.setdefault(core, Counter())[verdict] += 1
        print(f"{verdict:8}  {mutant}", flush=True)
    total = sum(verdicts.values(), Counter())
    for name, counts in (*verdicts.items(), ("all", total)):
        counted = counts["killed"] + counts["SURVIVED"]
        share = counts["killed"] / counted if counted else 1.0
        print(f"{name}: {counts['killed']} of {counted} killed ({share:.0%}), {counts['equal']} equal")
    return 0 if share >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
