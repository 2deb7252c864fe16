"""Collects the Envoy messages that Warmroute uses, from the wheel of xds-protos, into `envoy.binpb`.

`python proto/envoy/collect.py xds_protos-1.85.0-py3-none-any.whl`

The wheel holds generated code only, and in it every file's descriptor, which is read here without
importing it. The set has the messages of the files in `ROOTS` and all that they refer to, field by field as
Envoy has them. Left out are other messages of those files, and options (validation, versions, languages),
which no Python class needs. Files are named as their modules are, below `fleet/envoy_api`; packages and
messages keep Envoy's names, by which the wire knows them.
"""

from __future__ import annotations

import ast
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from google.protobuf import any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MessageOptions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SET: Final = Path(__file__).parent.parent.parent / "fleet" / "envoy_api" / "envoy.binpb"
PLACE: Final = "fleet/envoy_api/"
ROOTS: Final = (
    "envoy/config/bootstrap/v3/bootstrap.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/extensions/filters/http/buffer/v3/buffer.proto",
    "envoy/extensions/filters/http/ext_proc/v3/ext_proc.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/load_balancing_policies/override_host/v3/override_host.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
    "envoy/service/accesslog/v3/als.proto",
    "envoy/service/auth/v3/external_auth.proto",
    "envoy/service/discovery/v3/ads.proto",
    "envoy/service/ext_proc/v3/external_processor.proto",
    "envoy/service/status/v3/csds.proto",
)
WELL_KNOWN: Final = (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)


def serialised(module: str) -> bytes | None:
    """Return the file descriptor in the text of a generated module."""
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            (first, *_) = [*node.args, None]
            if node.func.attr == "AddSerializedFile" and isinstance(first, ast.Constant):
                return bytes(first.value)
    return None


def files_of(wheel: Path) -> dict[str, FileDescriptorProto]:
    """Return every file in the wheel by its name, and protobuf's own."""
    with zipfile.ZipFile(wheel) as archive:
        descriptors = [
            serialised(archive.read(name).decode())
            for name in archive.namelist()
            if name.endswith("_pb2.py") and name.startswith(("envoy/", "xds/", "google/rpc/"))
        ]
    files = [FileDescriptorProto.FromString(content) for content in descriptors if content is not None]
    files += [FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) for module in WELL_KNOWN]
    return {file.name: file for file in files}


def strip_enum(enum: EnumDescriptorProto) -> None:
    """Leave out what no Python class needs."""
    enum.ClearField("options")
    enum.ClearField("reserved_range")
    enum.ClearField("reserved_name")
    for value in enum.value:
        value.ClearField("options")


def strip(message: DescriptorProto) -> None:
    """Leave out what no Python class needs."""
    is_map = message.options.map_entry
    message.ClearField("options")
    if is_map:
        message.options.CopyFrom(MessageOptions(map_entry=True))
    message.ClearField("reserved_range")
    message.ClearField("reserved_name")
    for field in message.field:
        unpacked = field.options.HasField("packed") and not field.options.packed
        field.ClearField("options")
        if unpacked:
            field.options.packed = False
    for oneof in message.oneof_decl:
        oneof.ClearField("options")
    for enum in message.enum_type:
        strip_enum(enum)
    for nested in message.nested_type:
        strip(nested)


def references(message: DescriptorProto) -> Iterator[str]:
    """Full names of the types of all fields, of nested messages as well."""
    yield from (field.type_name for field in message.field if field.type_name)
    for nested in message.nested_type:
        yield from references(nested)


class Collection:
    """What is kept, and where each name is defined."""

    def __init__(self, files: dict[str, FileDescriptorProto]) -> None:
        self._files = files
        self._defined: dict[str, tuple[str, DescriptorProto | EnumDescriptorProto]] = {}
        for file in files.values():
            for each in (*file.message_type, *file.enum_type):
                self._defined[f".{file.package}.{each.name}"] = (file.name, each)
        self._kept: set[str] = set()
        self._used: dict[str, set[str]] = {}
        """Files that each file of the set depends on."""

    def keep_all_of(self, name: str) -> None:
        """Keep each message and service of a file, and all that they refer to."""
        file = self._files[name]
        self._used.setdefault(name, set())
        names = [f".{file.package}.{each.name}" for each in (*file.message_type, *file.enum_type)]
        for service in file.service:
            service.ClearField("options")
            for method in service.method:
                method.ClearField("options")
                names += [method.input_type, method.output_type]
        self._keep(names, name)

    def _keep(self, names: Iterable[str], user: str) -> None:
        stack = [(name, user) for name in names]
        while stack:
            name, user = stack.pop()
            while name not in self._defined:  # A nested type: its outermost message is kept whole.
                name = name.rpartition(".")[0]
            file, definition = self._defined[name]
            if file != user:
                self._used[user].add(file)
            if name in self._kept:
                continue
            self._kept.add(name)
            self._used.setdefault(file, set())
            if isinstance(definition, DescriptorProto):
                stack += [(reference, file) for reference in references(definition)]

    def result(self) -> FileDescriptorSet:
        """Return the set, each file after those it depends on."""
        ordered: dict[str, FileDescriptorProto] = {}

        def add(name: str) -> None:
            if name not in ordered:
                for dependency in sorted(self._used[name]):
                    add(dependency)
                ordered[name] = self._file(name)

        for name in sorted(self._used):
            add(name)
        return FileDescriptorSet(file=ordered.values())

    def _file(self, name: str) -> FileDescriptorProto:
        file = self._files[name]
        made = FileDescriptorProto(name=placed(name), package=file.package, syntax=file.syntax)
        made.dependency.extend(placed(dependency) for dependency in sorted(self._used[name]))
        for message in file.message_type:
            if f".{file.package}.{message.name}" in self._kept:
                strip(message)
                made.message_type.append(message)
        for enum in file.enum_type:
            if f".{file.package}.{enum.name}" in self._kept:
                strip_enum(enum)
                made.enum_type.append(enum)
        if name in ROOTS:
            made.service.extend(file.service)
        return made


def placed(name: str) -> str:
    """Return the name of a file where its module lies."""
    return PLACE + name.removeprefix("envoy/")


def main() -> None:
    """Write the set."""
    collection = Collection(files_of(Path(sys.argv[1])))
    for root in ROOTS:
        collection.keep_all_of(root)
    result = collection.result()
    content = result.SerializeToString(deterministic=True)
    SET.write_bytes(content)
    sys.stdout.write(f"{len(result.file)} files, {len(content)} bytes\n")


if __name__ == "__main__":
    main()
