"""`make` and CI install what pyproject.toml asks for, and check the hash of each file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from pathlib import Path

LOCK = "requirements/dev.txt"


class Locked:
    """One entry of the lock: a version, for the environments of its marker."""

    def __init__(self, text: str) -> None:
        first, *lines = text.splitlines()
        self.requirement = Requirement(first.rstrip("\\ "))
        self.name = canonicalize_name(self.requirement.name)
        self.hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", text)
        self.direct = any("(pyproject.toml" in line for line in lines)

    @property
    def version(self) -> str:
        """The one version."""
        (only,) = self.requirement.specifier
        assert only.operator == "=="
        return only.version


@pytest.fixture(scope="module")
def lock(root: Path) -> str:
    return (root / LOCK).read_text()


@pytest.fixture(scope="module")
def entries(lock: str) -> list[Locked]:
    text = "".join(line for line in lock.splitlines(keepends=True) if not line.startswith("#"))
    return [Locked(entry) for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE) if entry]


@pytest.fixture(scope="module")
def requirements(project: dict[str, Any]) -> dict[str, Requirement]:
    """All that pyproject.toml names: dependencies, extras and groups."""
    listed = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    made = [Requirement(text) for entries in listed for text in entries]
    return {canonicalize_name(requirement.name): requirement for requirement in made}


def test_lock_names_what_pyproject_names(entries: list[Locked], requirements: dict[str, Requirement]) -> None:
    """If this fails: run `make lock` and commit the result."""
    assert {entry.name for entry in entries if entry.direct} == set(requirements)


def test_locked_versions_fit_pyproject(entries: list[Locked], requirements: dict[str, Requirement]) -> None:
    """If this fails: run `make lock` and commit the result."""
    unfit = [
        f"{entry.name} {entry.version}, not {requirements[entry.name].specifier}"
        for entry in entries
        if entry.name in requirements and not requirements[entry.name].specifier.contains(entry.version)
    ]
    assert unfit == []


def test_every_entry_is_one_version_with_hashes(entries: list[Locked]) -> None:
    assert len(entries) > 50
    assert [entry.name for entry in entries if not entry.version or not entry.hashes] == []


def test_lock_names_no_package_index(lock: str) -> None:
    """Anybody installs from the index of their own settings."""
    assert re.findall(r"://|^-", lock, flags=re.MULTILINE) == []


def test_build_uses_the_locked_backend(project: dict[str, Any], requirements: dict[str, Requirement]) -> None:
    """`make` builds without isolation, so the group has what `[build-system]` asks for."""
    for text in project["build-system"]["requires"]:
        requirement = Requirement(text)
        assert requirements[canonicalize_name(requirement.name)].specifier == requirement.specifier
