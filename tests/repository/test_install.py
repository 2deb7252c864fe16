"""Installing Warmroute leaves the other packages of the environment whole."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections import defaultdict
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPORTERS = """
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
"""
THEIRS = """
from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2 as theirs
from fleet.envoy_api.service.discovery.v3 import ads_pb2_grpc as their_service
"""
OURS = """
import ext_proc.server, xds_server.app
from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2 as ours
from fleet.envoy_api.service.discovery.v3 import ads_pb2_grpc as our_service
"""
BOTH = """
for made, read in ((ours, theirs), (theirs, ours)):
    message = made.ClusterLoadAssignment(cluster_name="llm")
    message.endpoints.add().lb_endpoints.add().load_balancing_weight.value = 7
    again = read.ClusterLoadAssignment.FromString(message.SerializeToString())
    assert again.endpoints[0].lb_endpoints[0].load_balancing_weight.value == 7
    assert again.DESCRIPTOR.full_name == "envoy.config.endpoint.v3.ClusterLoadAssignment"
"""


def required(name: str) -> Iterator[Distribution]:
    """Yield an installed distribution and all it requires, by extras too, as far as that is installed."""
    names, visited = [name], set[str]()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name not in visited:
            visited.add(name)
            with contextlib.suppress(PackageNotFoundError):  # Of an extra or a marker that is not ours.
                installed = distribution(name)
                yield installed
                names += [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in installed.requires or ()]


def test_no_package_that_comes_along_overwrites_files_of_another() -> None:
    owners: defaultdict[Path, set[str]] = defaultdict(set)
    for package in required("warmroute"):
        for file in package.files or ():
            if "__pycache__" not in file.parts:
                owners[Path(file.locate()).resolve()].add(package.name)
    assert len(set.union(*owners.values())) > 50
    assert {str(path): names for path, names in owners.items() if len(names) > 1} == {}


def test_both_otlp_exporters_can_be_imported_beside_warmroute() -> None:
    subprocess.run([sys.executable, "-c", OURS + EXPORTERS], check=True)


@pytest.mark.slow
def test_a_fresh_environment_with_the_wheel(root: Path, tmp_path: Path) -> None:
    """Both exporters work next to Warmroute, and Warmroute next to xds-protos."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]

    def run(code: str) -> None:
        subprocess.run([python, "-c", code], cwd=tmp_path, check=True)

    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, root], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "opentelemetry-exporter-otlp-proto-http"], check=True)
    subprocess.run([*pip, "install", wheel], check=True)
    run(EXPORTERS)
    run(OURS + EXPORTERS)
    run("import importlib.util as util; assert util.find_spec('envoy') is None")
    subprocess.run([*pip, "install", "xds-protos"], check=True)
    run(OURS + THEIRS + BOTH)
    run(THEIRS + OURS + BOTH)
