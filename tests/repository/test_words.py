"""Words that keep newcomers out: each may be used as often as `ALLOWED` says today, and never more.

A count that falls lowers its line in the same commit, so that it ends at zero, where a word leaves `ALLOWED`
for good. Identifiers are split into their parts, so `held_until` and `is_held` both count for `held`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.untraced

MAX_TEST_NAME = 60
LONG_TEST_NAMES = f"test names of more than {MAX_TEST_NAME} characters"

IDENTIFIERS = (
    # Past participles where a noun belongs.
    *("held", "told", "found", "known", "wanted", "seen", "given", "asked", "heard", "owed", "noted", "due"),
    # Feelings and talk where the protocol has verbs.
    *("hear", "tell", "doubt", "let_go", "hurry", "stand_in", "news"),
)
PROSE = (
    *("anew", "as it is told", "beside", "else.", "let go of", "lets go", "of which", "so many"),
    *("who has none", "whoever", "whomever"),
)

ALLOWED = {
    "identifier: held": 297,
    "identifier: told": 320,
    "identifier: found": 124,
    "identifier: known": 47,
    "identifier: wanted": 33,
    "identifier: seen": 303,
    "identifier: given": 266,
    "identifier: asked": 238,
    "identifier: heard": 81,
    "identifier: owed": 1,
    "identifier: noted": 26,
    "identifier: due": 7,
    "identifier: tell": 55,
    "identifier: doubt": 12,
    "identifier: hurry": 2,
    "identifier: stand_in": 5,
    "identifier: news": 3,
    "prose: anew": 8,
    "prose: beside": 18,
    "prose: else.": 15,
    "prose: of which": 13,
    "prose: so many": 30,
    "prose: whoever": 25,
    "prose: whomever": 1,
}

TOKENS = re.compile(
    r"""(?P<text>[bfruBFRU]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\#[^\n]*)|(?P<name>[A-Za-z_]\w*)""",
    re.DOTALL,
)
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
OWN = Path(__file__).name


def parts(identifier: str) -> str:
    """The words of an identifier, in lower case, each between two underscores."""
    return f"_{'_'.join(PART.findall(identifier)).lower()}_"


def count_identifiers(counts: Counter[str], names: Counter[str]) -> None:
    for name, times in names.items():
        split = parts(name)
        for word in IDENTIFIERS:
            if f"_{word}_" in split:
                counts[f"identifier: {word}"] += times
        if name.startswith("test_") and len(name) > MAX_TEST_NAME:
            counts[LONG_TEST_NAMES] += times


def count_prose(counts: Counter[str], prose: str) -> None:
    prose = re.sub(r"[\s#]+", " ", prose).lower()
    for phrase in PROSE:
        end = r"\b" if phrase[-1].isalpha() else ""
        counts[f"prose: {phrase}"] += len(re.findall(rf"\b{re.escape(phrase)}{end}", prose))


def usage(texts: dict[Path, str]) -> Counter[str]:
    """How often each word is used: identifiers in code; phrases in strings, comments and documents."""
    counts: Counter[str] = Counter()
    for path, text in texts.items():
        if path.suffix == ".md":
            count_prose(counts, text)
        elif path.suffix == ".py" and not path.stem.endswith(("_pb2", "_pb2_grpc")) and path.name != OWN:
            tokens = TOKENS.findall(text)
            count_identifiers(counts, Counter(name for _, name in tokens if name))
            count_prose(counts, "\n".join(string for string, _ in tokens if string))
    return +counts


def test_words_that_go_are_used_less_and_less(texts: dict[Path, str]) -> None:
    counts = usage(texts)
    more = [
        f"{word!r} is used {times} times, {ALLOWED.get(word, 0)} allowed: take the field's own word"
        for word, times in counts.items()
        if times > ALLOWED.get(word, 0)
    ]
    fewer = [word for word, times in ALLOWED.items() if counts[word] < times]
    table = "\n".join(f"    {word!r}: {counts[word]},".replace("'", '"') for word in ALLOWED if counts[word])
    if more:
        pytest.fail("\n".join(more), pytrace=False)
    if fewer:
        pytest.fail(f"Fewer than ALLOWED: {', '.join(fewer)}. Its lines are now:\n{table}", pytrace=False)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("held = 1", "identifier: held"),
        ("class HeldBack: ...", "identifier: held"),
        ("self._stand_in_for(x)", "identifier: stand_in"),
        ('"""It is set up\n    anew."""', "prose: anew"),
        ("x = 1  # HTTP/1.1 else.", "prose: else."),
        (f"def test_{'a' * MAX_TEST_NAME}(): ...", LONG_TEST_NAMES),
    ],
)
def test_use_is_counted(text: str, word: str) -> None:
    assert usage({Path("module.py"): text}) == Counter({word: 1})


@pytest.mark.parametrize("text", ["withheld = unknown", "residue = hearing", "message = 'held'", "# told"])
def test_other_words_and_other_places_are_free(text: str) -> None:
    assert usage({Path("module.py"): text}) == Counter()


def test_the_tokens_are_those_of_the_parser(texts: dict[Path, str]) -> None:
    """No quote or comment misleads the pattern: it finds the functions and classes that Python finds."""
    for path, text in list(texts.items())[::20]:
        if path.suffix == ".py":
            names = {name for _, name in TOKENS.findall(text)}
            kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            assert {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)} <= names, path
