"""Makes the OTLP exporter's protobuf modules the right ones.

xds-protos ships an old copy of `opentelemetry/proto` over the one of opentelemetry-proto, and which of
the two is left depends on the order of installation. With the old one the exporter cannot be imported.
`fleet/wire/otlp.binpb` holds the file descriptors of opentelemetry-proto 1.45.2 (Apache-2.0); they stand
in, in a descriptor pool of their own, where the installed modules are too old.
"""

from __future__ import annotations

import importlib
import sys
from importlib.resources import files
from types import ModuleType
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor


def repair_otlp_modules() -> bool:
    """Put the right modules in place if the installed ones are too old; returns whether it did."""
    installed = importlib.import_module("opentelemetry.proto.common.v1.common_pb2")
    if hasattr(installed, "InstrumentationScope"):
        return False
    described = descriptor_pb2.FileDescriptorSet.FromString(
        files("fleet.wire").joinpath("otlp.binpb").read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    for entry in described.file:
        file = pool.AddSerializedFile(entry.SerializeToString())
        module = _module_of(file)
        sys.modules[module.__name__] = module
        parent, _, child = module.__name__.rpartition(".")
        setattr(importlib.import_module(parent), child, module)
    return True


def _module_of(file: FileDescriptor) -> ModuleType:
    name = file.name.removesuffix(".proto").replace("/", ".") + "_pb2"
    module = ModuleType(name, f"Built from {file.name}.")
    module.__dict__["DESCRIPTOR"] = file
    for message in file.message_types_by_name.values():
        module.__dict__[message.name] = message_factory.GetMessageClass(message)
    for enum in file.enum_types_by_name.values():
        module.__dict__[enum.name] = enum_type_wrapper.EnumTypeWrapper(enum)
        module.__dict__.update({value.name: value.number for value in enum.values})
    return module
