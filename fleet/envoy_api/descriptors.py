"""Envoy's messages, from `envoy.binpb`, in a descriptor pool of their own.

protobuf's default pool takes each name once, and another program of the same process may have put its copy
of Envoy's API there (xds-protos). A module's messages, and those they refer to, are loaded when the module
is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.builder import BuildTopDescriptorsAndMessages

POOL: Final = DescriptorPool()
"""What resolves an Any in JSON (`json_format.ParseDict(..., descriptor_pool=POOL)`)."""
_SET: Final = FileDescriptorSet.FromString(Path(__file__).with_name("envoy.binpb").read_bytes())
_NOT_LOADED: Final = {file.name: file for file in _SET.file}


def define(module: str, namespace: dict[str, Any]) -> None:
    """Put the classes of a generated module into its namespace."""
    name = f"{module.replace('.', '/').removesuffix('_pb2')}.proto"
    _load(name)
    namespace["DESCRIPTOR"] = POOL.FindFileByName(name)
    BuildTopDescriptorsAndMessages(namespace["DESCRIPTOR"], module, namespace)


def _load(name: str) -> None:
    file = _NOT_LOADED.pop(name, None)
    if file is not None:
        for dependency in file.dependency:
            _load(dependency)
        POOL.AddSerializedFile(file.SerializeToString())
