"""The bootstrap, the verb that prints it, and the files that were printed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format

from fleet.endpoint import Locality
from fleet.envoy_api.config.bootstrap.v3 import bootstrap_pb2
from fleet.envoy_api.descriptors import POOL
from fleet.envoy_api.extensions.upstreams.http.v3 import http_protocol_options_pb2
from fleet.errors import SettingsError
from fleet.names import ADS_CLUSTER
from warmroute.cli import bootstrap as verb
from xds_server.envoy.bootstrap import bootstrap

DEPLOY = Path(__file__).parents[2] / "deploy" / "envoy"
SHIPPED = {
    "sidecar": ["--node-id", "sidecar"],
    "front-proxy": ["--node-id", "front-proxy", "--delta"],
}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    code = verb.run(parser.parse_args(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("address", ["unix:/run/x.sock", "127.0.0.1:1", "[::1]:1", "xds-server:18000"])
@pytest.mark.parametrize("delta", [False, True])
def test_bootstrap_is_what_envoy_means_by_one(address: str, delta: bool) -> None:
    """Every field exists in Envoy's schema, and ADS goes through the one static cluster."""
    assert http_protocol_options_pb2.DESCRIPTOR
    made = bootstrap(
        ads_address=address,
        node_id="n",
        node_cluster="c",
        locality=Locality(zone="z"),
        delta=delta,
        admin_address="127.0.0.1:9901",
    )
    parsed = json_format.ParseDict(made, bootstrap_pb2.Bootstrap(), descriptor_pool=POOL)
    assert (parsed.node.id, parsed.node.cluster, parsed.node.locality.zone) == ("n", "c", "z")
    assert [cluster.name for cluster in parsed.static_resources.clusters] == [ADS_CLUSTER]
    ads = parsed.dynamic_resources.ads_config
    assert ads.grpc_services[0].envoy_grpc.cluster_name == ADS_CLUSTER
    assert ads.api_type == (3 if delta else 2)


def test_bootstrap_waits_for_a_late_handshake() -> None:
    """A shorter limit than Envoy's own, in every attempt, would leave a new Envoy without configuration."""
    arguments: dict[str, Any] = {"ads_address": "10.0.0.1:1", "node_id": "n", "node_cluster": "c"}
    for socket, seconds in ((None, "1s"), ({"name": "tls"}, "5s")):
        made = bootstrap(**arguments, transport_socket=socket)
        assert made["static_resources"]["clusters"][0]["connect_timeout"] == seconds


def test_admin_is_left_out_when_nobody_wants_it() -> None:
    assert "admin" not in bootstrap(ads_address="unix:/x", node_id="n", node_cluster="c")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_bootstraps_are_what_the_verb_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Drift: print them again with the command in their first line."""
    code, out, err = printed(capsys, str(DEPLOY / f"{name}.warmroute.yaml"), *SHIPPED[name])
    assert (code, err) == (0, "")
    command = f"# warmroute bootstrap deploy/envoy/{name}.warmroute.yaml {' '.join(SHIPPED[name])}\n"
    assert (DEPLOY / f"{name}.yaml").read_text() == command + out


def test_verb_prints_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (str(DEPLOY / "sidecar.warmroute.yaml"), "--node-id", "me", "--zone", "z", "--admin", "")
    code, out, _ = printed(capsys, *arguments)
    made = yaml.safe_load(out)
    assert (code, made["node"]) == (0, {"id": "me", "cluster": "warmroute", "locality": {"zone": "z"}})
    assert "admin" not in made


def test_verb_names_what_is_wrong_with_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("pools: 3\n")
    with pytest.raises(SettingsError, match=r"broken\.yaml:1: pools: 3; allowed"):
        printed(capsys, str(broken))
    assert capsys.readouterr().out == ""


def test_verb_refuses_an_admin_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        printed(capsys, "x.yaml", "--admin", "nowhere")
    assert "nowhere" in capsys.readouterr().err
