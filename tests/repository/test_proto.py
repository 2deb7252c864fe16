"""Generated code is committed; it must be what `make proto` makes of the .proto files today."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path


def recipe(makefile: str) -> list[str]:
    """Return the arguments of protoc in the Makefile's verb `proto`."""
    match = re.search(
        r"^proto:.*\n\t\$\(BIN\)/python (-m grpc_tools\.protoc .*)$", makefile, flags=re.MULTILINE
    )
    assert match, "the verb proto runs grpc_tools.protoc"
    return shlex.split(match[1])


def differences(made: Path, committed: Path, by_hand: str) -> list[str]:
    """Name the modules that are in one folder only, or differ; all but one are generated."""
    first, second = (
        {
            path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*.py*")
            if path.suffix in {".py", ".pyi"}
        }
        for folder in (made, committed)
    )
    del second[Path(by_hand)]
    return sorted(str(path) for path in first.keys() | second.keys() if first.get(path) != second.get(path))


def test_generated_code_is_current(root: Path, tmp_path: Path) -> None:
    arguments = [
        re.sub(r"^(--\w+_out)=\.$", rf"\1={tmp_path}", argument)
        for argument in recipe((root / "Makefile").read_text())
    ]
    subprocess.run([sys.executable, *arguments], cwd=root, check=True)
    assert differences(tmp_path / "fleet" / "wire", root / "fleet" / "wire", "__init__.py") == []


def test_envoys_messages_are_current(root: Path, tmp_path: Path) -> None:
    """No module is left of a file that the set no longer has."""
    subprocess.run([sys.executable, root / "proto" / "envoy" / "generate.py", tmp_path], check=True)
    assert differences(tmp_path / "fleet" / "envoy_api", root / "fleet" / "envoy_api", "descriptors.py") == []


def test_every_proto_file_is_generated(root: Path) -> None:
    named = {argument.rpartition("/")[2] for argument in recipe((root / "Makefile").read_text())}
    assert {path.name for path in (root / "proto").rglob("*.proto")} <= named
