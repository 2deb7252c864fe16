"""Envoy's messages: on the wire as Envoy's own, compiled, and apart from other copies in the process."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.internal import api_implementation

from fleet import envoy_api
from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from fleet.envoy_api.config.listener.v3 import listener_pb2
from fleet.envoy_api.descriptors import POOL
from fleet.envoy_api.google.protobuf import any_pb2
from fleet.envoy_api.service.discovery.v3 import discovery_pb2

FOLDER = Path(envoy_api.__file__).parent
OURS = """
from fleet.envoy_api.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
"""
OTHERS = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
file = descriptor_pb2.FileDescriptorProto(
    name="envoy/service/discovery/v3/discovery.proto", package="envoy.service.discovery.v3", syntax="proto3"
)
field = file.message_type.add(name="DiscoveryRequest").field.add(name="other", number=1)
field.type, field.label = field.TYPE_STRING, field.LABEL_OPTIONAL
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
other = message_factory.GetMessageClass(
    descriptor_pool.Default().FindMessageTypeByName("envoy.service.discovery.v3.DiscoveryRequest")
)
"""
USE = """
assert other(other="1").SerializeToString() == b"\\n\\x011"
ours = discovery_pb2.DiscoveryRequest(version_info="1")
ours.node.metadata["k"] = "v"
assert discovery_pb2.DiscoveryRequest.FromString(ours.SerializeToString()) == ours
assert other.FromString(ours.SerializeToString()).other == "1"
"""


def test_messages_are_compiled() -> None:
    """The hot paths rest on upb: pure Python takes fifty times as long."""
    assert api_implementation.Type() == "upb"
    assert type(endpoint_pb2.ClusterLoadAssignment).__module__ == "google._upb._message"


def test_names_on_the_wire_are_envoys() -> None:
    response = discovery_pb2.DiscoveryResponse()
    response.resources.add().Pack(endpoint_pb2.ClusterLoadAssignment(cluster_name="llm"))
    (packed,) = response.resources
    assert packed.type_url == "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    assert packed.value == b"\n\x03llm"
    assert isinstance(packed, any_pb2.Any)


def test_every_generated_module_has_its_messages_in_the_own_pool() -> None:
    modules = sorted(path.relative_to(FOLDER) for path in FOLDER.rglob("*_pb2.py"))
    assert modules
    for path in modules:
        module = importlib.import_module(".".join((envoy_api.__name__, *path.with_suffix("").parts)))
        file = module.DESCRIPTOR
        assert file.pool is POOL
        for name, message in file.message_types_by_name.items():
            assert getattr(module, name).DESCRIPTOR is message


def test_nothing_is_put_into_the_default_pool() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName(listener_pb2.Listener.DESCRIPTOR.full_name)


@pytest.mark.parametrize("code", [OURS + OTHERS, OTHERS + OURS], ids=["ours first", "theirs first"])
def test_another_copy_of_envoys_api_may_be_loaded(code: str) -> None:
    """With other contents, in the default pool, as another program of the same process does it."""
    subprocess.run([sys.executable, "-W", "error", "-c", code + USE], check=True)
