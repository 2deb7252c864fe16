"""The choice between a listener's pools as Envoy configuration: docs/decisions/0031 has the reasons.

Filters in front look up the model of header, path or query in a map, and let Envoy choose the route again.
The map is Envoy's RBAC filter in shadow mode: it permits everything, and writes the name of what its matcher
finds to its metadata. ext_proc writes its own choice to ours. Each pool has routes that match on the one and
on the other, and those of the default pool come last, without a condition.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation
from envoy_data_plane.envoy.config.core.v3 import (
    DataSource,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
    SubstitutionFormatString,
)
from envoy_data_plane.envoy.config.rbac.v3 import Action, RbacAction
from envoy_data_plane.envoy.config.route.v3 import DirectResponseAction, HeaderMatcher, Route, RouteMatch
from envoy_data_plane.envoy.extensions.filters.common.set_filter_state.v3 import FilterStateValue
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import (
    HeaderMutation as HeaderMutationFilter,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import Mutations
from envoy_data_plane.envoy.extensions.filters.http.header_to_metadata.v3 import (
    Config,
    ConfigKeyValuePair,
    ConfigRule,
)
from envoy_data_plane.envoy.extensions.filters.http.rbac.v3 import Rbac, RbacPerRoute
from envoy_data_plane.envoy.extensions.filters.http.set_filter_state.v3 import Config as SetFilterState
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.extensions.matching.common_inputs.network.v3 import FilterStateInput
from envoy_data_plane.envoy.type.matcher.v3 import (
    MetadataMatcher,
    MetadataMatcherPathSegment,
    RegexMatchAndSubstitute,
    RegexMatcher,
    StringMatcher,
    ValueMatcher,
)
from envoy_data_plane.xds.core.v3 import TypedExtensionConfig as XdsExtension
from envoy_data_plane.xds.type.matcher.v3 import MatcherOnMatch

from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.envoy_api.xds.type.matcher.v3 import matcher_pb2
from fleet.models import has_aliases
from fleet.names import LEADING_FILTER, METADATA_LENGTH, METADATA_MODEL, METADATA_NAMESPACE, METADATA_POOL
from fleet.wire_fields import field_of
from xds_server.envoy.extension import metadata, overwriting, packed
from xds_server.envoy.upgrades import untouched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.models import ModelTable
    from fleet.settings import ListenerSettings, Settings

MOST_GROWTH_BYTES: Final = 2048
"""By which a name in the place of an alias may lengthen a body."""
MOST_ANSWER_BYTES: Final = 1_048_576
_KEY: Final = "warmroute.model"
"""Of the filter state: the model as requests spell it, and `_END`."""
_END: Final = "\n"
"""No header and no path has it, so the map finds whole names as it finds beginnings."""
_MAP: Final = "warmroute.pool"
_MAP_NAMESPACE: Final = "envoy.filters.http.rbac"
_MAP_RESULT: Final = "shadow_effective_policy_id"
# Tags of length-delimited fields: field number << 3 | 2.
_RBAC: Final = b"\x12"  # RBACPerRoute.rbac
_SHADOW_MATCHER: Final = b"\x2a"  # RBAC.shadow_matcher
_IN_PATH: Final = r"^(?:[!->@-~]*/(?:models|deployments)/([!->@-~]+)\C*|\C*[?&]model=([!-%'-~]+)\C*|\C*)$"
"""All behind `/models/` or `/deployments/`, otherwise the query's `model`, otherwise nothing."""


def choosing_filters(listener: ListenerSettings) -> list[HttpFilter]:
    """In front of all others: they choose the route by the model, as far as headers show it."""
    if len(listener.pools) == 1:
        return []
    in_path = RegexMatchAndSubstitute(pattern=RegexMatcher(regex=_IN_PATH), substitution=r"\1\2")
    rules = [_rule(":path", in_path)]
    if listener.model_header:
        rules.insert(0, _rule(listener.model_header, None))
    key = FilterStateValue(
        object_key=_KEY,
        factory_key="envoy.string",
        format_string=SubstitutionFormatString(
            text_format_source=DataSource(inline_string=metadata(METADATA_MODEL) + _END),
            omit_empty_values=True,
        ),
    )
    return [
        HttpFilter(name="warmroute.model", typed_config=packed(Config(request_rules=rules))),
        HttpFilter(name="warmroute.key", typed_config=packed(SetFilterState(on_request_headers=[key]))),
        # Without rules of its own: the map is a part of the routes, because a changed listener drains.
        HttpFilter(name=_MAP, typed_config=packed(Rbac())),
        HttpFilter(name="warmroute.route", typed_config=packed(SetFilterState(clear_route_cache=True))),
    ]


def _rule(header: str, rewrite: RegexMatchAndSubstitute | None) -> ConfigRule:
    """Copy a header to the key; an empty result leaves what an earlier rule has written."""
    pair = ConfigKeyValuePair(
        metadata_namespace=METADATA_NAMESPACE, key=METADATA_MODEL, regex_value_rewrite=rewrite
    )
    return ConfigRule(header=header, on_header_present=pair)


def length_filters(listener: ListenerSettings, settings: Settings) -> list[HttpFilter]:
    """Behind the buffer: the length of a body in which ext_proc has replaced an alias."""
    if not has_aliases(listener, settings):
        return []
    option = HeaderValueOption(
        header=HeaderValue(key="content-length", value=metadata(METADATA_LENGTH)),
        append_action=HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS,
    )
    mutations = Mutations(request_mutations=[HeaderMutation(append=option)])
    return [
        HttpFilter(name="warmroute.length", typed_config=packed(HeaderMutationFilter(mutations=mutations)))
    ]


def in_leading_part(route: Route, pool: str) -> Route:
    """Return a twin of a route: for requests whose pool ext_proc has chosen by a leading part."""
    return _matching(route, LEADING_FILTER, (METADATA_NAMESPACE, METADATA_POOL), pool)


def in_body(route: Route, pool: str) -> Route:
    """Return a twin of a route: for requests whose pool ext_proc has chosen otherwise."""
    return _matching(route, METADATA_NAMESPACE, (METADATA_POOL,), pool)


def in_headers(route: Route, pool: str) -> Route:
    """Return a twin of a route: for requests whose pool the map has found."""
    return _matching(route, _MAP_NAMESPACE, (_MAP_RESULT,), pool)


def _matching(route: Route, namespace: str, keys: tuple[str, ...], pool: str) -> Route:
    twin = Route.parse(bytes(route))
    assert twin.match is not None
    twin.match.dynamic_metadata = [
        MetadataMatcher(
            filter=namespace,
            path=[MetadataMatcherPathSegment(key=key) for key in keys],
            value=ValueMatcher(string_match=StringMatcher(exact=pool)),
        )
    ]
    return twin


def with_map(config: bytes, table: ModelTable) -> bytes:
    """Add the map from the models of all pools but the default one to the routes.

    It has an entry for each spelling of a name, so it is made by protobuf's own runtime.
    """
    names, tree = sorted(table.places), matcher_pb2.Matcher.MatcherTree()
    for pool in table.pools[1:]:
        # A shadow matcher writes the name of an action and does nothing else, whatever the action is.
        action = packed(Action(name=pool, action=RbacAction.LOG))
        result = matcher_pb2.Matcher.OnMatch.FromString(
            bytes(MatcherOnMatch(action=XdsExtension(name=pool, typed_config=action)))
        )
        for name in table.names[pool]:
            for spelt in _spellings(name, names):
                tree.prefix_match_map.map[spelt].CopyFrom(result)
    if not tree.prefix_match_map.map:
        return config
    key = bytes(XdsExtension(name=_KEY, typed_config=packed(FilterStateInput(key=_KEY))))
    tree.input.ParseFromString(key)
    made = route_pb2.RouteConfiguration.FromString(config)
    filter_config = made.virtual_hosts[0].typed_per_filter_config[_MAP]
    filter_config.type_url = packed(RbacPerRoute()).type_url
    matcher = matcher_pb2.Matcher(matcher_tree=tree).SerializeToString(deterministic=True)
    filter_config.value = field_of(_RBAC, field_of(_SHADOW_MATCHER, matcher))
    return made.SerializeToString(deterministic=True)


def _spellings(name: str, names: list[str]) -> Iterator[str]:
    """Yield the beginnings of keys that mean a model, as headers, paths and queries spell it.

    `names` are those of all pools, in order.
    """
    # Triton and Azure name an action behind the model, if that does not make the name of another one.
    ends = [_END, *(end for end in "/:" if not _leads(f"{name}{end}", names))]
    spellings = {quote(name, safe=""), quote(name, safe=":"), quote(name, safe="/")}
    # A path that spells a name with an escape in it may mean another name, which has that spelling then.
    if (meant := unquote(name)) == name or not _leads(meant, names):
        spellings.add(name)
    for spelt in spellings:
        yield from (f"{spelt}{end}" for end in ends)


def _leads(prefix: str, names: list[str]) -> bool:
    at = bisect_left(names, prefix)
    return at < len(names) and names[at].startswith(prefix)


def list_route(table: ModelTable) -> list[Route]:
    """The answer to GET /v1/models: all names, up to `MOST_ANSWER_BYTES`: Envoy rejects a longer answer.

    Without any, the default pool answers.
    """
    if len(table.pools) == 1 or not table.places:
        return []
    answer, end = '{"object": "list", "data": [', "]}"
    for number, (name, place) in enumerate(table.places.items()):
        entry = {"id": name, "object": "model", "created": 0, "owned_by": place.pool}
        more = (", " if number else "") + json.dumps(entry)
        if len(answer) + len(more) + len(end) > MOST_ANSWER_BYTES:
            break
        answer += more
    return [
        Route(
            name="models",
            match=RouteMatch(
                path="/v1/models",
                headers=[HeaderMatcher(name=":method", string_match=StringMatcher(exact="GET"))],
            ),
            direct_response=DirectResponseAction(
                status=200,
                body=DataSource(inline_string=answer + end),
            ),
            response_headers_to_add=[overwriting("content-type", "application/json")],
            typed_per_filter_config=untouched(),
        )
    ]
