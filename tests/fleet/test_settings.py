"""The settings file: what is good is taken, what is not is named with its path, value and allowance."""

import socket
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from fleet.errors import SettingsError
from fleet.settings import Settings, load_settings, parse_settings
from fleet.settings.membership import membership

GOOD = """\
pools:
  - name: chat
    models: [smol]
    endpoints:
      - address: 127.0.0.1:8001
      - address: 127.0.0.1:8002
        models: [other]
        metrics_url: http://127.0.0.1:9002/m
        locality: {zone: a}
listeners:
  - name: main
    address: 127.0.0.1:10000
    pool: chat
"""


def problems(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, "f.yaml", environ)
    return caught.value.problems


def test_defaults_come_from_the_pool_and_the_address() -> None:
    first, second = membership(parse_settings(GOOD)).endpoints
    assert first.metrics_url == "http://127.0.0.1:8001/metrics"
    assert first.models == ("smol",)
    assert second.models == ("other",)
    assert second.metrics_url == "http://127.0.0.1:9002/m"
    assert second.locality.zone == "a"
    assert (second.host, second.port) == ("127.0.0.1", 8002)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            ("pool: chat", "pool: chat\n    pol: chat"),
            "f.yaml:14: listeners[0].pol: unknown field, value 'chat'; did you mean pool? allowed: address, ",
        ),
        (("pool: chat", "pool: cat"), "f.yaml:13: listeners[0].pool: 'cat'; allowed: chat"),
        (
            (":8002", ":8001"),
            "f.yaml:6: pools[0].endpoints[1].address: '127.0.0.1:8001'; allowed: each address once",
        ),
        (
            (":8002", ":80020"),
            "f.yaml:6: pools[0].endpoints[1].address: '127.0.0.1:80020'; allowed: host:port",
        ),
        (("127.0.0.1:8002", "gpu-2:8002"), "'gpu-2:8002'; allowed: ip:port"),
        (("[smol]", "smol"), "f.yaml:3: pools[0].models: 'smol'; allowed: a list"),
        (("[smol]", "[1]"), "f.yaml:3: pools[0].models[0]: 1; allowed: a string"),
        (("name: chat", "name: warmroute_xds"), "do not begin with warmroute_"),
        (("pools:", "xds: {tick_seconds: 0}\npools:"), "xds.tick_seconds: 0; allowed: greater than 0"),
        (("pools:", "xds: {tick_seconds: '1'}\npools:"), "xds.tick_seconds: '1'; allowed: a number"),
        (("pools:", "xds: {tick_seconds: .nan}\npools:"), "xds.tick_seconds: nan; allowed: a finite number"),
        (("pools:", "weights: {strategy: best}\npools:"), "weights.strategy: 'best'; allowed: 'headroom'"),
        (("pools:", "admin: {address: '0.0.0.0:1'}\npools:"), "allowed: a Unix socket or loopback"),
        (
            ("pools:", "xds: {address: 'unix:x'}\npools:"),
            "xds.address: 'unix:x'; allowed: unix: and an absolute path",
        ),
        (
            ("pools:", "xds: {address: '/run/x.sock'}\npools:"),
            "allowed: unix: and an absolute path, or host:port; did you mean 'unix:/run/x.sock'?",
        ),
        (
            ("pools:", "xds: {address: 'x'}\npools:"),
            "xds.address: 'x'; allowed: unix: and an absolute path, or host:port with a port",
        ),
        (
            ("pools:", "pool:\n  - name: a\npools:"),
            "f.yaml:1: pool: unknown field, value [{'name': 'a'}]; did you mean pools? allowed: admin, ",
        ),
        (("pools:", "limits: 1\npools:"), "f.yaml:1: limits: 1; allowed: a mapping"),
        (("pools:", "allow_plaintext: 'yes'\npools:"), "allow_plaintext: 'yes'; allowed: true or false"),
        (("pools:", "limits: {endpoints: 1.5}\npools:"), "limits.endpoints: 1.5; allowed: a whole number"),
        (
            ("pools:", "signals: {stale_after_seconds: 1.5}\npools:"),
            "signals.stale_after_seconds: 1.5; allowed: at least twice",
        ),
        (
            ("pools:", "limits: {endpoints: 1}\npools:"),
            "pools: 2 endpoints; allowed: at most limits.endpoints = 1",
        ),
    ],
)
def test_each_problem_names_path_value_and_what_is_allowed(change: tuple[str, str], line: str) -> None:
    errors = problems(GOOD.replace(*change))
    assert any(line in text for text in errors), errors


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "x",
        "pools: [",
        GOOD + "pools: []\n",
        "a: &a 1\nb: *a\n",
        "[" * 5000,
        "pools: {2020-01-01: 1}",
    ],
)
def test_settings_that_are_no_mapping_are_refused(text: str) -> None:
    assert problems(text)[0].startswith("f.yaml")


def test_consequences_of_a_problem_are_left_out() -> None:
    assert len(problems(GOOD.replace(":8002", ":0"))) == 1


def test_all_problems_are_reported_together() -> None:
    errors = problems(GOOD.replace(":8002", ":0").replace("pool: chat", "pool: chat\n    x: 1"))
    assert len([line for line in errors if "address" in line]) >= 1
    assert any("listeners[0].x" in line for line in errors)


@pytest.mark.parametrize("listener", ["127.0.0.1:8002", "0.0.0.0:8002"])
def test_listener_on_the_port_of_an_endpoint_is_refused(listener: str) -> None:
    text = GOOD.replace("127.0.0.1:10000", listener)
    (problem,) = problems(text)
    assert "listeners[0].address: " in problem
    assert "allowed: another port, as an endpoint of pool 'chat' has this one" in problem
    parse_settings(text.replace("- address: 127.0.0.1:8002", "- address: 10.0.0.7:8002"))


@pytest.mark.parametrize(
    ("listener", "more", "field"),
    [
        ("127.0.0.1:19000", "", "admin.address"),
        ("0.0.0.0:19001", "", "admin.ext_proc_address"),
        ('"[::]:19000"', "", "admin.address"),
        ("127.0.0.1:5000", "xds: {address: 'localhost:5000'}", "xds.address"),
        ("127.0.0.1:5000", "ext_proc: {address: '0.0.0.0:5000'}\nallow_plaintext: true", "ext_proc.address"),
        ("127.0.0.1:5000", "control: {address: '127.0.0.1:5000'}", "control.address"),
    ],
)
def test_a_listener_on_a_port_of_ours_is_refused(listener: str, more: str, field: str) -> None:
    (problem,) = problems(GOOD.replace("127.0.0.1:10000", listener) + more)
    assert "f.yaml:12: listeners[0].address: " in problem
    assert f"allowed: another port, as {field} = " in problem


@pytest.mark.parametrize(
    ("listener", "more"),
    [
        ("127.0.0.2:19000", ""),
        ("127.0.0.1:19000", "admin: {address: ''}"),
        ("127.0.0.1:19002", ""),
    ],
)
def test_listener_on_another_port_is_accepted(listener: str, more: str) -> None:
    parse_settings(GOOD.replace("127.0.0.1:10000", listener) + more)


def test_two_services_on_one_port_are_refused() -> None:
    text = GOOD + "xds: {address: 'localhost:5000'}\ncontrol: {address: '127.0.0.1:5000'}\n"
    (problem,) = problems(text)
    assert "control.address: '127.0.0.1:5000'; allowed: an address of its own for each service" in problem


def test_empty_file_is_named_as_such() -> None:
    assert problems("# nothing yet\n") == ["f.yaml: it is empty; allowed: a mapping with pools and listeners"]


def test_an_engine_may_be_written_in_capitals() -> None:
    pool = parse_settings(GOOD.replace("name: chat", "name: chat\n    engine: vLLM", 1)).pools[0]
    assert pool.engine == "vllm"
    with pytest.raises(SettingsError, match="allowed: 'auto', 'vllm'"):
        parse_settings(GOOD.replace("name: chat", "name: chat\n    engine: vLM", 1))


def test_exposed_admin_server_error_names_all_it_lacks() -> None:
    (problem,) = problems(GOOD + "admin: {address: '0.0.0.0:1'}\n")
    assert "tls.admin" in problem
    assert "admin.token_file" in problem


def test_environment_overrides_the_few_and_is_checked_the_same() -> None:
    settings = parse_settings(GOOD, environ={"WARMROUTE_XDS_ADDRESS": "127.0.0.1:5"})
    assert settings.xds.address == "127.0.0.1:5"
    assert "xds.address: 'nowhere'" in problems(GOOD, {"WARMROUTE_XDS_ADDRESS": "nowhere"})[0]


def test_a_missing_file_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such file"):
        load_settings(tmp_path / "none.yaml")


def test_settings_cannot_be_changed_in_place() -> None:
    settings = parse_settings(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        settings.allow_plaintext = True


def _fields(model: type[BaseModel], prefix: str = "") -> list[str]:
    names = []
    for key, field in model.model_fields.items():
        name = field.alias or key
        inner = field.annotation
        nested = [
            a
            for a in (inner, *getattr(inner, "__args__", ()))
            if isinstance(a, type) and issubclass(a, BaseModel)
        ]
        names += _fields(nested[0], f"{prefix}{name}.") if nested else [f"{prefix}{name}"]
    return names


def test_every_setting_is_documented() -> None:
    """docs/settings.md names each field; a new one cannot be forgotten."""
    text = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    missing = [name for name in _fields(Settings) if f"`{name}`" not in text]
    assert missing == []


def test_the_documented_example_is_good() -> None:
    text = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    example = text.split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(example)
    parse_settings(example)


def test_addresses_are_spelt_as_envoy_spells_them() -> None:
    """They are compared as text: with Envoy's own in a pick, with each other as identities."""
    text = GOOD.replace("address: 127.0.0.1:8001", 'address: "[0:0::0001]:08001"')
    assert parse_settings(text).pools[0].endpoints[0].address == "[::1]:8001"
    mapped = GOOD.replace("address: 127.0.0.1:8001", 'address: "[::FFFF:102:304]:8001"')
    assert parse_settings(mapped).pools[0].endpoints[0].address == "[::ffff:1.2.3.4]:8001"
    for given in (
        "::1",
        "::102:304",
        "::1:0",
        "::ffff:0:0",
        "64:ff9b::1.2.3.4",
        "1:0:2:0:0:3:0:0",
        "FE80::1",
    ):
        expected = socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, given))
        text = GOOD.replace("address: 127.0.0.1:8001", f'address: "[{given}]:8001"')
        assert parse_settings(text).pools[0].endpoints[0].address == f"[{expected}]:8001"
    (twice,) = problems(GOOD.replace("127.0.0.1:8001", "127.0.0.1:08002"))
    assert "allowed: each address once" in twice
    scoped = problems(GOOD.replace("127.0.0.1:8001", '"[fe80::1%eth0]:8001"'))[0]
    assert "allowed: addresses without a scope" in scoped
