"""Answers of Envoy's own, such as `no healthy upstream`, in the form of OpenAI's interface for JSON clients.

Only failures that Envoy flags are changed, and only their bodies: ext_proc's refusals have the form already,
and gRPC and other clients get what Envoy gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLogFilter,
    AndFilter,
    ComparisonFilter,
    ComparisonFilterOp,
    HeaderFilter,
    OrFilter,
    ResponseFlagFilter,
    StatusCodeFilter,
)
from envoy_data_plane.envoy.config.core.v3 import RuntimeUInt32, SubstitutionFormatString
from envoy_data_plane.envoy.config.route.v3 import HeaderMatcher
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher
from envoy_data_plane.google.protobuf import NullValue, Struct, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

_JSON: Final = r"(?i)(.*,\s*)?application/json\s*([;,].*)?"
_NO_HOST: Final = ("UH", "NC")
_FAILURES: Final = (
    "UH",
    "NC",
    "UF",
    "UC",
    "UR",
    "LR",
    "UO",
    "UT",
    "URX",
    "UPE",
    "NR",
    "OM",
    "DT",
    "SI",
    "DPE",
)
"""Envoy's flags of answers without an engine's: https://www.envoyproxy.io/docs, access logging."""
_LEAST_SERVER_ERROR: Final = 500


def local_replies() -> LocalReplyConfig:
    """The form of Envoy's own answers; the first mapper that matches is used."""
    any_status = _status_from(0)
    return LocalReplyConfig(
        mappers=[
            _mapper(_NO_HOST, any_status, "server_error", "no_endpoint_ready"),
            _mapper(_FAILURES, _status_from(_LEAST_SERVER_ERROR), "server_error", "no_answer"),
            _mapper(_FAILURES, any_status, "invalid_request_error", "refused"),
        ]
    )


def _mapper(flags: Sequence[str], status: AccessLogFilter, kind: str, code: str) -> ResponseMapper:
    flagged = AccessLogFilter(response_flag_filter=ResponseFlagFilter(flags=list(flags)))
    asks_for_json = AccessLogFilter(
        or_filter=OrFilter(filters=[_has_json("content-type"), _has_json("accept")])
    )
    error = {
        "message": Value(string_value="%LOCAL_REPLY_BODY%"),
        "type": Value(string_value=kind),
        "param": Value(null_value=NullValue.NULL_VALUE),
        "code": Value(string_value=code),
    }
    form = Struct(fields={"error": Value(struct_value=Struct(fields=error))})
    return ResponseMapper(
        filter=AccessLogFilter(and_filter=AndFilter(filters=[flagged, asks_for_json, status])),
        body_format_override=SubstitutionFormatString(json_format=form),
    )


def _has_json(header: str) -> AccessLogFilter:
    regex = StringMatcher(safe_regex=RegexMatcher(regex=_JSON))
    return AccessLogFilter(header_filter=HeaderFilter(header=HeaderMatcher(name=header, string_match=regex)))


def _status_from(status: int) -> AccessLogFilter:
    value = RuntimeUInt32(default_value=status, runtime_key="warmroute.unused")
    comparison = ComparisonFilter(op=ComparisonFilterOp.GE, value=value)
    return AccessLogFilter(status_code_filter=StatusCodeFilter(comparison=comparison))
