"""Generated code is committed; it must be what `make proto` makes of the .proto files today."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def recipe(makefile: str) -> list[str]:
    """Return the arguments of protoc in the Makefile's verb `proto`."""
    found = re.search(
        r"^proto:.*\n\t\$\(BIN\)/python (-m grpc_tools\.protoc .*)$", makefile, flags=re.MULTILINE
    )
    assert found, "the verb proto runs grpc_tools.protoc"
    return shlex.split(found[1])


def test_generated_code_is_current(root: Path, tmp_path: Path) -> None:
    arguments = [
        re.sub(r"^(--\w+_out)=\.$", rf"\1={tmp_path}", argument)
        for argument in recipe((root / "Makefile").read_text())
    ]
    subprocess.run([sys.executable, *arguments], cwd=root, check=True)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.py*")}
    held = {
        path.relative_to(root): path.read_bytes() for path in (root / "fleet" / "wire").glob("*_pb2*.py*")
    }
    assert made.keys() == held.keys()
    assert [str(path) for path, content in made.items() if held[path] != content] == []


def test_every_proto_file_is_generated(root: Path) -> None:
    named = {argument.rpartition("/")[2] for argument in recipe((root / "Makefile").read_text())}
    assert {path.name for path in (root / "proto").rglob("*.proto")} <= named
