"""The command: verbs are found, good settings pass, bad ones end with what to mend and status 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.certificates import Authority
from warmroute.cli.main import VERBS, main

pytestmark = pytest.mark.io

GOOD = """\
pools: [{name: chat, endpoints: [{address: "127.0.0.1:1"}]}]
listeners: [{name: main, address: "127.0.0.1:10000", pool: chat}]
"""


def test_check_says_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "warmroute.yaml"
    path.write_text(GOOD)
    assert main(["check", str(path)]) == 0
    assert "good, 1 pool(s), 1 endpoint(s), 1 listener(s)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "forms", "problem"),
    [
        (
            "ext_proc: {workers: 4}",
            "`serve`",
            ":3: ext_proc.workers: 4; allowed: 1, as `serve`",
        ),
        (
            "admin: {token_file: /none/token}",
            "`serve`, `xds`, `ext-proc`",
            ":3: admin.token_file: /none/token: no such file",
        ),
        (
            "tls: {admin: {certificate_file: /none/tls.crt, key_file: /none/tls.key}}",
            "`serve`, `xds`, `ext-proc`",
            ":3: tls.admin.certificate_file: '/none/tls.crt' cannot be read",
        ),
    ],
)
def test_check_tells_what_would_not_start_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, forms: str, problem: str
) -> None:
    path = tmp_path / "warmroute.yaml"
    path.write_text(f"{GOOD}{more}\n")
    assert main(["check", str(path)]) == 0
    output = capsys.readouterr()
    assert "good, " in output.out
    assert f"{forms} would not start on this host: {path}{problem}" in output.err
    assert main(["check", "--form", "serve", str(path)]) == 2
    output = capsys.readouterr()
    assert not output.out
    assert f"warmroute check: {path}{problem}" in output.err


@pytest.mark.parametrize("verb", ["check", "serve", "xds", "ext-proc"])
def test_bad_settings_end_every_verb_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    path = tmp_path / "warmroute.yaml"
    path.write_text(GOOD.replace('127.0.0.1:1"', '127.0.0.1:0"'))
    assert main([verb, str(path)]) == 2
    errors = capsys.readouterr().err
    assert f"{path}:1: pools[0].endpoints[0].address: '127.0.0.1:0'; allowed: host:port" in errors


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    assert left.value.code == 0
    assert f"warmroute {verb}" in capsys.readouterr().out


def test_an_unknown_verb_is_refused() -> None:
    with pytest.raises(SystemExit) as left:
        main(["nonsense"])
    assert left.value.code == 2


def test_bootstrap_for_grpc_is_json_that_names_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "warmroute.yaml"
    path.write_text(GOOD + 'xds: {address: "127.0.0.1:7"}\n')
    assert main(["bootstrap", str(path), "--grpc", "--node-id", "me", "--zone", "z"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["xds_servers"][0]["server_uri"] == "127.0.0.1:7"
    assert (document["node"]["id"], document["node"]["locality"]["zone"]) == ("me", "z")


def test_unknown_options_are_reported_with_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """`doctor` asks Envoy's admin server, which has other options than ours."""
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--admin-ca", "ca.crt"])
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert "usage: warmroute doctor " in errors
    assert "doctor has no --admin-ca ca.crt; allowed: what `warmroute doctor --help` lists" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--listen", "nowhere"], "--listen: 'nowhere'; allowed: host:port"),
        (["--control", "nowhere"], "--control: 'nowhere'; allowed: host:port"),
        (["--control-name", "10.0.0.1"], "--control-name: '10.0.0.1'; allowed: a DNS name"),
        (
            ["--control-key", "{}/none"],
            "--control-key: '{}/none' cannot be read: no such file or directory; put",
        ),
        (
            ["--control-ca", "{}/c.key"],
            "--control-ca: '{}/c.key' holds no certificates in PEM; allowed: a file",
        ),
        (
            ["--control-key", "{}/d.key"],
            "--control-key: '{}/d.key' is not the key of the first certificate in '{}/c",
        ),
    ],
)
def test_the_gpu_agent_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    authority = Authority(tmp_path)
    for name in ("c", "d"):
        authority.issue(name)
    at = str(tmp_path)
    good = [
        f"--control-certificate={at}/c.crt",
        f"--control-key={at}/c.key",
        f"--control-ca={authority.file}",
    ]
    assert main(["gpu-agent", *good, *(word.format(at) for word in words)]) == 2
    assert f"warmroute gpu-agent: {message.format(at, at)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("top", "--interval", "x"), "--interval: 'x'; allowed: 0.1 to 3600 seconds"),
        (("gpu-agent", "--interval", "0"), "--interval: '0'; allowed: 0.1 to 3600 seconds"),
        (("doctor", "--p99-seconds", "-"), "--p99-seconds: '-'; allowed: a number of seconds above 0"),
        (("doctor", "--longest-prompt-bytes", "0"), "'0'; allowed: a whole number from 1 to "),
        (("engine", "--jitter", "3"), "--jitter: 3; allowed: 0 or more, and below 1"),
        (("engine", "--address", "x"), "--address: 'x'; allowed: host:port"),
        (("top", "--once", "--admin", "127.0.0.1:1"), "connection refused; start Warmroute there, or name"),
        (
            ("doctor", "--admin", "127.0.0.1:1"),
            "connection refused; start Envoy, or name",
        ),
        (("top", "--admin", "http://"), "no URL; allowed: host:port"),
        (
            ("top", "--token-file", "/none"),
            "/none: no such file or directory; allowed: a file",
        ),
        (("top", "--admin-key", "x"), "allowed: both, or neither"),
        (("check", "/"), "/: is a directory; allowed: a text file"),
    ],
)
def test_errors_name_what_is_allowed(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        raise SystemExit(main(words))
    assert problem in capsys.readouterr().err


def test_broken_yaml_has_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "warmroute.yaml"
    path.write_text("pools:\n  ]\n")
    assert main(["check", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warmroute check: {path}:2: ")
    assert "allowed: YAML of " in line


def test_numpy_of_a_service_has_no_threads(tmp_path: Path) -> None:
    path = tmp_path / "warmroute.yaml"
    path.write_text(GOOD)
    code = (
        "import os, sys\nfrom warmroute.cli.main import main\n"
        "main(['check', sys.argv[1]])\nimport numpy\n"
        "sys.exit(len(os.listdir('/proc/self/task')) - 1)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 0


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    path = tmp_path / "warmroute.yaml"
    path.write_text(GOOD)
    code = "import sys\nfrom warmroute.cli.main import main\nsys.exit(main(['check', sys.argv[1]]))"
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=False, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
