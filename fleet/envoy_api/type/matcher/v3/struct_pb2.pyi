from fleet.envoy_api.type.matcher.v3 import value_pb2 as _value_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StructMatcher(_message.Message):
    __slots__ = ("path", "value")
    class PathSegment(_message.Message):
        __slots__ = ("key",)
        KEY_FIELD_NUMBER: _ClassVar[int]
        key: str
        def __init__(self, key: _Optional[str] = ...) -> None: ...
    PATH_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    path: _containers.RepeatedCompositeFieldContainer[StructMatcher.PathSegment]
    value: _value_pb2.ValueMatcher
    def __init__(self, path: _Optional[_Iterable[_Union[StructMatcher.PathSegment, _Mapping]]] = ..., value: _Optional[_Union[_value_pb2.ValueMatcher, _Mapping]] = ...) -> None: ...
