"""What the wheel installs: our four packages, typed, and nothing by a name that others could have."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = {"fleet", "xds_server", "ext_proc", "warmroute"}
DATA = {
    "fleet/envoy_api/NOTICE",
    "fleet/envoy_api/envoy.binpb",
    "warmroute/replay/data/NOTICE",
    "warmroute/replay/data/mooncake_conversation.jsonl.xz",
    "warmroute/demo/data/NOTICE",
    "warmroute/demo/data/conversation_excerpt.jsonl",
    "warmroute/simulator/data/NOTICE",
    "warmroute/simulator/data/fits.json",
}


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this tree, built with the backend of the environment."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def installed(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_wheel_installs_only_our_packages(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/", 1)[0] for name in installed(wheel)} == PACKAGES


def test_wheel_holds_every_module(wheel: zipfile.ZipFile, modules: list[Path], root: Path) -> None:
    missing = {str(path.relative_to(root)) for path in modules} - installed(wheel)
    assert missing == set()


def test_wheel_says_that_it_is_typed(wheel: zipfile.ZipFile) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= installed(wheel)


def test_wheel_holds_no_other_data(wheel: zipfile.ZipFile) -> None:
    """No page, cache or leftover came along."""
    assert {name for name in installed(wheel) if not name.endswith((".py", ".pyi", "/py.typed"))} == DATA


def test_wheel_names_what_it_is(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    fields = Parser().parsestr(wheel.read(name).decode(), headersonly=True)
    assert "Typing :: Typed" in fields.get_all("Classifier", [])
    assert fields["License-Expression"] == "Apache-2.0"
    assert {"demo", "kv-events", "plot", "redis"} == set(fields.get_all("Provides-Extra", []))
