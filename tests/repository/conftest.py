"""Where the repository is, and what of it is ours to read."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEXT_SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".proto", ""}


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="session")
def packages(project: dict[str, Any]) -> list[str]:
    """The packages that are shipped."""
    names: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return names


@pytest.fixture(scope="session")
def modules(packages: list[str]) -> list[Path]:
    """Every module written by hand."""
    return [
        path
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
    ]


@pytest.fixture(scope="session")
def texts() -> dict[Path, str]:
    """Every text file of the repository, as git sees it (tracked or about to be), else as it lies there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.splitlines() if listed.returncode == 0 else []
    # An unpacked source distribution has no git.
    paths = [ROOT / name for name in names] or [
        path for path in ROOT.rglob("*") if not {part for part in path.parts if part.startswith(".")}
    ]
    return {
        path.relative_to(ROOT): path.read_text(errors="replace")
        for path in paths
        if path.is_file() and path.suffix in TEXT_SUFFIXES
    }
