"""An address that cannot be bound: the command names its setting, the value, the cause and the next step.

Nothing else is started before that: no line of the log says that a part listens.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet.errors import SettingsError
from fleet.service import binding
from warmroute.cli.main import main
from warmroute.demo.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65_534
COMMAND = (sys.executable, "-m", "warmroute.cli.main")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "pools": [{"name": "chat", "endpoints": [{"address": "127.0.0.1:9"}]}],
        "listeners": [{"name": "llm", "address": "127.0.0.1:10000", "pool": "chat"}],
        "xds": {"address": f"unix:{tmp_path}/run/xds.sock"},
        "ext_proc": {"address": f"unix:{tmp_path}/run/ext_proc.sock"},
        "control": {"address": f"unix:{tmp_path}/run/control.sock"},
        "admin": {"address": "", "ext_proc_address": ""},
    }


@pytest.fixture
def taken() -> Iterator[str]:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", free_port()))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


Ended = Callable[..., str]


@pytest.fixture
def ended(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Ended:
    """Runs a verb that must end by itself with 2; returns what it says, its log included."""
    caplog.set_level(logging.INFO)

    def run(*arguments: str) -> str:
        assert main(arguments) == 2
        output = capsys.readouterr().err + caplog.text
        assert "Errno" not in output
        return output

    return run


def written(directory: Path, settings: dict[str, Any]) -> str:
    path = directory / "warmroute.yaml"
    path.write_text(yaml.safe_dump(settings))
    return str(path)


@pytest.mark.parametrize(
    ("verb", "field"),
    [
        ("serve", "xds.address"),
        ("serve", "ext_proc.address"),
        ("serve", "admin.address"),
        ("xds", "control.address"),
        ("ext-proc", "admin.ext_proc_address"),
    ],
)
def test_a_taken_port_names_its_setting_before_anything_listens(
    ended: Ended, tmp_path: Path, settings: dict[str, Any], taken: str, verb: str, field: str
) -> None:
    section, _, name = field.partition(".")
    settings[section][name] = taken
    output = ended(verb, written(tmp_path, settings))
    assert f"{field}: '{taken}': another process listens there; stop it, or set another {field}" in output
    assert str(tmp_path / "warmroute.yaml") in output
    assert "listens on" not in output


def test_the_parent_of_several_workers_names_its_admin_address(
    ended: Ended, tmp_path: Path, settings: dict[str, Any], taken: str
) -> None:
    settings["ext_proc"]["workers"] = 2
    settings["admin"]["ext_proc_address"] = taken
    output = ended("ext-proc", written(tmp_path, settings))
    assert f"admin.ext_proc_address: '{taken}': another process listens there" in output
    assert "worker 0" not in output


@pytest.mark.parametrize(
    ("verb", "option"), [("engine", "--address"), ("gpu-agent", "--listen")], ids=["engine", "gpu-agent"]
)
def test_a_taken_port_names_the_option(ended: Ended, taken: str, verb: str, option: str) -> None:
    output = ended(verb, option, taken)
    assert f"warmroute {verb}: {option}: '{taken}': another process listens there; stop it" in output


def test_an_address_of_another_host_is_named_as_such(
    ended: Ended, tmp_path: Path, settings: dict[str, Any]
) -> None:
    settings |= {"allow_plaintext": True}
    settings["xds"]["address"] = "192.0.2.1:18000"
    output = ended("serve", written(tmp_path, settings))
    assert "xds.address: '192.0.2.1:18000': this host has no such address; set another xds.address" in output


def test_a_file_in_a_sockets_place_is_named(ended: Ended, tmp_path: Path, settings: dict[str, Any]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "xds.sock").write_text("precious")
    output = ended("serve", written(tmp_path, settings))
    assert f"{tmp_path}/run/xds.sock exists and is not a socket" in output
    assert (tmp_path / "run" / "xds.sock").read_text() == "precious"


@pytest.mark.parametrize("form", ["serve", "xds", "ext-proc"])
def test_check_tries_what_a_form_would_bind_and_makes_nothing(
    tmp_path: Path, settings: dict[str, Any], capsys: pytest.CaptureFixture[str], taken: str, form: str
) -> None:
    """What is taken passes, for the service itself may run."""
    own = {"serve": "ext_proc", "xds": "control", "ext-proc": "ext_proc"}[form]
    settings["admin"] = {"address": taken, "ext_proc_address": taken}
    command = ("check", "--form", form, written(tmp_path, settings))
    assert main(command) == 0
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").write_text("no directory")
    assert main(command) == 2
    output = capsys.readouterr().err
    assert f"{own}.address: 'unix:{tmp_path}/run/{own}.sock': " in output
    assert f"{tmp_path}/run is not a directory" in output
    settings |= {"allow_plaintext": True}
    settings[own]["address"] = "192.0.2.1:18000"
    assert main(("check", "--form", form, written(tmp_path, settings))) == 2
    assert "this host has no such address" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
@pytest.mark.parametrize("verb", [("serve",), ("check", "--form", "serve")], ids=["serve", "check"])
@pytest.mark.parametrize("there", ["no directory", "directory", "socket"])
def test_a_directory_of_another_user_names_setting_and_path(
    tmp_path: Path, settings: dict[str, Any], there: str, verb: tuple[str, ...]
) -> None:
    """As root without what lets root pass: as another user, Python itself may be out of reach."""
    run = tmp_path / "run"
    path = written(tmp_path, settings)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        if there != "no directory":
            run.mkdir(mode=0o755)
        if there == "socket":
            listener.bind(str(run / "xds.sock"))
            listener.listen()
            os.chown(run / "xds.sock", NOBODY, NOBODY)
            (run / "xds.sock").chmod(0o600)
        else:
            tmp_path.chmod(0o755)
            os.chown(run if run.exists() else tmp_path, NOBODY, NOBODY)
        done = subprocess.run(
            [*("setpriv", "--bounding-set=-dac_override,-dac_read_search"), *COMMAND, *verb, path],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    output = done.stderr
    assert done.returncode == 2, output
    assert "Errno" not in output
    assert f"xds.address: 'unix:{run}/xds.sock': " in output
    assert "permission denied" in output
    assert "set another xds.address" in output
    assert ("another user's socket" if there == "socket" else f"{run}: permission denied") in output


def test_an_unresolvable_name_is_not_a_taken_address(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        binding.check("xds.address", "nowhere.invalid:18000")
    assert str(caught.value) == (
        "xds.address: 'nowhere.invalid:18000': no such host name is known here; mend the name, or set an"
        " address of this host"
    )
