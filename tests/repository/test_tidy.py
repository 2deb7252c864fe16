"""House rules that no linter knows."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleet import names

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.untraced

MAX_FUNCTION_LINES = 70
MAX_ATTRIBUTES = 27
"""That the methods of one class set on `self`. It is what the largest class has, and falls with it."""
MAX_PARAMETERS = 10
"""Of one function, without `self` and `cls`."""
SERVICES = ("fleet", "xds_server", "ext_proc")
OUR_NAME = re.compile(r"x-(?:warmroute|gateway-destination)-[a-z-]*[a-z]|\bwarmroute_[a-z_]*[a-z]")


@pytest.fixture(autouse=True)
def no_collection_while_parsing() -> Iterator[None]:
    """Python 3.11's parser fails where a collected object's end is logged, with a traceback, in its midst."""
    gc.disable()
    yield
    gc.enable()


def of_services(modules: list[Path], root: Path) -> list[Path]:
    return [path for path in modules if path.relative_to(root).parts[0] in SERVICES]


def docstrings(tree: ast.AST) -> set[int]:
    """Ids of the constants that are docstrings, or strings that stand alone below an attribute."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each string in a module that is no docstring."""
    tree = ast.parse(path.read_text())
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def shared_names() -> set[str]:
    """Every name and header of fleet/names.py."""
    shared: set[str] = set()
    for value in vars(names).values():
        if isinstance(value, str):
            shared.add(value)
        elif isinstance(value, tuple | dict):
            shared.update(value)
    return shared


def test_functions_are_short(modules: list[Path]) -> None:
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == []


def attributes(body: ast.ClassDef) -> set[str]:
    """Names that a class's methods set on `self`."""
    return {
        node.attr
        for node in ast.walk(body)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def test_classes_have_one_job(modules: list[Path]) -> None:
    """Few attributes: many are two classes in one, however short the file is."""
    largest = {
        f"{path}:{node.lineno} {node.name}": len(attributes(node))
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert {name: count for name, count in largest.items() if count > MAX_ATTRIBUTES} == {}
    assert max(largest.values()) == MAX_ATTRIBUTES, "the largest class has fewer now: lower MAX_ATTRIBUTES"


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_functions_take_few_parameters(modules: list[Path]) -> None:
    """Many parameters are one value that has no name yet."""
    most = {
        f"{path}:{node.lineno} {node.name}": parameters(node)
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: count for name, count in most.items() if count > MAX_PARAMETERS} == {}
    assert max(most.values()) == MAX_PARAMETERS, "the longest list is shorter now: lower MAX_PARAMETERS"


def test_nothing_is_left_to_do(texts: dict[Path, str]) -> None:
    """Open ends live in the issue tracker."""
    marks = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b(?!-)")
    offenders = [str(path) for path, text in texts.items() if marks.search(text)]
    assert offenders == []


def test_services_log_and_do_not_print(modules: list[Path], root: Path) -> None:
    offenders = [
        f"{path}:{node.lineno}"
        for path in of_services(modules, root)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert offenders == []


def test_every_public_module_says_what_it_is(modules: list[Path]) -> None:
    silent = [
        str(path)
        for path in modules
        if (path.stem == "__init__" or not path.stem.startswith("_"))
        and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_every_dependency_has_its_reason(project: dict[str, Any], root: Path) -> None:
    groups = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    packages = {re.split(r"[\s\[<>=!~;]", entry, maxsplit=1)[0] for group in groups for entry in group}
    text = (root / "docs" / "dependencies.md").read_text()
    reasons = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, flags=re.MULTILINE))
    assert set(reasons) == packages
    assert all(reason.strip() for reason in reasons.values())


def test_import_contracts_hold(root: Path) -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_names_shared_with_envoy_are_spelt_in_one_place(modules: list[Path], root: Path) -> None:
    offenders = [
        f"{path}:{line} {text!r}"
        for path in of_services(modules, root)
        if path.relative_to(root) != Path("fleet/names.py")
        for line, text in literals(path)
        if re.search(r"x-warmroute-|x-gateway-destination", text.lower())
    ]
    assert offenders == []


def test_the_rule_about_names_sees_a_second_spelling(tmp_path: Path) -> None:
    """Docstrings may speak of a header; code may not spell it."""
    module = tmp_path / "module.py"
    module.write_text('"""x-warmroute-endpoint."""\nHEADER = "x-warmroute-endpoint"\n')
    assert list(literals(module)) == [(2, "x-warmroute-endpoint")]


def test_example_configuration_uses_only_shared_names(root: Path) -> None:
    shared = shared_names()
    used = {
        name
        for folder in ("envoy", "compose")
        for path in sorted((root / "deploy" / folder).glob("*.yaml"))
        for name in OUR_NAME.findall(path.read_text())
    }
    assert names.ADS_CLUSTER in used
    assert used - shared == set()
