from fleet.envoy_api.type.matcher.v3 import string_pb2 as _string_pb2
from fleet.envoy_api.google.protobuf import any_pb2 as _any_pb2
from fleet.envoy_api.google.protobuf import wrappers_pb2 as _wrappers_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatsSink(_message.Message):
    __slots__ = ("name", "typed_config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPED_CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    typed_config: _any_pb2.Any
    def __init__(self, name: _Optional[str] = ..., typed_config: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class StatsConfig(_message.Message):
    __slots__ = ("stats_tags", "use_all_default_tags", "stats_matcher", "histogram_bucket_settings")
    STATS_TAGS_FIELD_NUMBER: _ClassVar[int]
    USE_ALL_DEFAULT_TAGS_FIELD_NUMBER: _ClassVar[int]
    STATS_MATCHER_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_BUCKET_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    stats_tags: _containers.RepeatedCompositeFieldContainer[TagSpecifier]
    use_all_default_tags: _wrappers_pb2.BoolValue
    stats_matcher: StatsMatcher
    histogram_bucket_settings: _containers.RepeatedCompositeFieldContainer[HistogramBucketSettings]
    def __init__(self, stats_tags: _Optional[_Iterable[_Union[TagSpecifier, _Mapping]]] = ..., use_all_default_tags: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ..., stats_matcher: _Optional[_Union[StatsMatcher, _Mapping]] = ..., histogram_bucket_settings: _Optional[_Iterable[_Union[HistogramBucketSettings, _Mapping]]] = ...) -> None: ...

class StatsMatcher(_message.Message):
    __slots__ = ("reject_all", "exclusion_list", "inclusion_list")
    REJECT_ALL_FIELD_NUMBER: _ClassVar[int]
    EXCLUSION_LIST_FIELD_NUMBER: _ClassVar[int]
    INCLUSION_LIST_FIELD_NUMBER: _ClassVar[int]
    reject_all: bool
    exclusion_list: _string_pb2.ListStringMatcher
    inclusion_list: _string_pb2.ListStringMatcher
    def __init__(self, reject_all: _Optional[bool] = ..., exclusion_list: _Optional[_Union[_string_pb2.ListStringMatcher, _Mapping]] = ..., inclusion_list: _Optional[_Union[_string_pb2.ListStringMatcher, _Mapping]] = ...) -> None: ...

class TagSpecifier(_message.Message):
    __slots__ = ("tag_name", "regex", "fixed_value")
    TAG_NAME_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    FIXED_VALUE_FIELD_NUMBER: _ClassVar[int]
    tag_name: str
    regex: str
    fixed_value: str
    def __init__(self, tag_name: _Optional[str] = ..., regex: _Optional[str] = ..., fixed_value: _Optional[str] = ...) -> None: ...

class HistogramBucketSettings(_message.Message):
    __slots__ = ("match", "buckets", "bins")
    MATCH_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    match: _string_pb2.StringMatcher
    buckets: _containers.RepeatedScalarFieldContainer[float]
    bins: _wrappers_pb2.UInt32Value
    def __init__(self, match: _Optional[_Union[_string_pb2.StringMatcher, _Mapping]] = ..., buckets: _Optional[_Iterable[float]] = ..., bins: _Optional[_Union[_wrappers_pb2.UInt32Value, _Mapping]] = ...) -> None: ...
