from fleet.envoy_api.config.route.v3 import route_components_pb2 as _route_components_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MatchPredicate(_message.Message):
    __slots__ = ("or_match", "and_match", "not_match", "any_match", "http_request_headers_match", "http_request_trailers_match", "http_response_headers_match", "http_response_trailers_match", "http_request_generic_body_match", "http_response_generic_body_match")
    class MatchSet(_message.Message):
        __slots__ = ("rules",)
        RULES_FIELD_NUMBER: _ClassVar[int]
        rules: _containers.RepeatedCompositeFieldContainer[MatchPredicate]
        def __init__(self, rules: _Optional[_Iterable[_Union[MatchPredicate, _Mapping]]] = ...) -> None: ...
    OR_MATCH_FIELD_NUMBER: _ClassVar[int]
    AND_MATCH_FIELD_NUMBER: _ClassVar[int]
    NOT_MATCH_FIELD_NUMBER: _ClassVar[int]
    ANY_MATCH_FIELD_NUMBER: _ClassVar[int]
    HTTP_REQUEST_HEADERS_MATCH_FIELD_NUMBER: _ClassVar[int]
    HTTP_REQUEST_TRAILERS_MATCH_FIELD_NUMBER: _ClassVar[int]
    HTTP_RESPONSE_HEADERS_MATCH_FIELD_NUMBER: _ClassVar[int]
    HTTP_RESPONSE_TRAILERS_MATCH_FIELD_NUMBER: _ClassVar[int]
    HTTP_REQUEST_GENERIC_BODY_MATCH_FIELD_NUMBER: _ClassVar[int]
    HTTP_RESPONSE_GENERIC_BODY_MATCH_FIELD_NUMBER: _ClassVar[int]
    or_match: MatchPredicate.MatchSet
    and_match: MatchPredicate.MatchSet
    not_match: MatchPredicate
    any_match: bool
    http_request_headers_match: HttpHeadersMatch
    http_request_trailers_match: HttpHeadersMatch
    http_response_headers_match: HttpHeadersMatch
    http_response_trailers_match: HttpHeadersMatch
    http_request_generic_body_match: HttpGenericBodyMatch
    http_response_generic_body_match: HttpGenericBodyMatch
    def __init__(self, or_match: _Optional[_Union[MatchPredicate.MatchSet, _Mapping]] = ..., and_match: _Optional[_Union[MatchPredicate.MatchSet, _Mapping]] = ..., not_match: _Optional[_Union[MatchPredicate, _Mapping]] = ..., any_match: _Optional[bool] = ..., http_request_headers_match: _Optional[_Union[HttpHeadersMatch, _Mapping]] = ..., http_request_trailers_match: _Optional[_Union[HttpHeadersMatch, _Mapping]] = ..., http_response_headers_match: _Optional[_Union[HttpHeadersMatch, _Mapping]] = ..., http_response_trailers_match: _Optional[_Union[HttpHeadersMatch, _Mapping]] = ..., http_request_generic_body_match: _Optional[_Union[HttpGenericBodyMatch, _Mapping]] = ..., http_response_generic_body_match: _Optional[_Union[HttpGenericBodyMatch, _Mapping]] = ...) -> None: ...

class HttpHeadersMatch(_message.Message):
    __slots__ = ("headers",)
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    headers: _containers.RepeatedCompositeFieldContainer[_route_components_pb2.HeaderMatcher]
    def __init__(self, headers: _Optional[_Iterable[_Union[_route_components_pb2.HeaderMatcher, _Mapping]]] = ...) -> None: ...

class HttpGenericBodyMatch(_message.Message):
    __slots__ = ("bytes_limit", "patterns")
    class GenericTextMatch(_message.Message):
        __slots__ = ("string_match", "binary_match")
        STRING_MATCH_FIELD_NUMBER: _ClassVar[int]
        BINARY_MATCH_FIELD_NUMBER: _ClassVar[int]
        string_match: str
        binary_match: bytes
        def __init__(self, string_match: _Optional[str] = ..., binary_match: _Optional[bytes] = ...) -> None: ...
    BYTES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    bytes_limit: int
    patterns: _containers.RepeatedCompositeFieldContainer[HttpGenericBodyMatch.GenericTextMatch]
    def __init__(self, bytes_limit: _Optional[int] = ..., patterns: _Optional[_Iterable[_Union[HttpGenericBodyMatch.GenericTextMatch, _Mapping]]] = ...) -> None: ...
