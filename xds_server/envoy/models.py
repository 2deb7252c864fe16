"""The choice between a listener's pools as Envoy configuration: docs/decisions/0031 has the reasons.

Two filters in front write the model in the header, or in path or query, to the metadata key `pool`, and let
Envoy choose the route again. ext_proc replaces the value by its own choice. The routes of each pool match on
that key, and those of the default pool come last, without a condition.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation
from envoy_data_plane.envoy.config.core.v3 import (
    DataSource,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
)
from envoy_data_plane.envoy.config.route.v3 import DirectResponseAction, HeaderMatcher, Route, RouteMatch
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import (
    HeaderMutation as HeaderMutationFilter,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import Mutations
from envoy_data_plane.envoy.extensions.filters.http.header_to_metadata.v3 import (
    Config,
    ConfigKeyValuePair,
    ConfigRule,
)
from envoy_data_plane.envoy.extensions.filters.http.set_filter_state.v3 import Config as SetFilterState
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.type.matcher.v3 import (
    MetadataMatcher,
    MetadataMatcherPathSegment,
    RegexMatchAndSubstitute,
    RegexMatcher,
    StringMatcher,
    ValueMatcher,
)

from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.envoy_api.type.matcher.v3 import metadata_pb2
from fleet.models import has_aliases
from fleet.names import LEADING_FILTER, METADATA_LENGTH, METADATA_NAMESPACE, METADATA_POOL, POOL_MARK
from xds_server.envoy.extension import metadata, overwriting, packed
from xds_server.envoy.upgrades import untouched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.models import ModelTable
    from fleet.settings import ListenerSettings, Settings

MOST_GROWTH_BYTES: Final = 2048
"""By which a name in the place of an alias may lengthen a body."""
MOST_ANSWER_BYTES: Final = 1_048_576
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
    return [
        HttpFilter(name="warmroute.model", typed_config=packed(Config(request_rules=rules))),
        # It sets nothing; header_to_metadata does not clear the route cache itself.
        HttpFilter(name="warmroute.route", typed_config=packed(SetFilterState(clear_route_cache=True))),
    ]


def _rule(header: str, rewrite: RegexMatchAndSubstitute | None) -> ConfigRule:
    """Copy a header to the key; an empty result leaves what an earlier rule has written."""
    pair = ConfigKeyValuePair(
        metadata_namespace=METADATA_NAMESPACE, key=METADATA_POOL, regex_value_rewrite=rewrite
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


def marked(route: Route, pool: str) -> Route:
    """Return a twin of a route: for requests whose pool ext_proc has chosen by a leading part."""
    twin = Route.parse(bytes(route))
    assert twin.match is not None
    twin.match.dynamic_metadata = [
        MetadataMatcher(
            filter=LEADING_FILTER,
            path=[MetadataMatcherPathSegment(key=key) for key in (METADATA_NAMESPACE, METADATA_POOL)],
            value=ValueMatcher(string_match=StringMatcher(exact=f"{POOL_MARK}{pool}")),
        )
    ]
    return twin


def limited(config: bytes, first: int, routes: Mapping[str, int], table: ModelTable) -> bytes:
    """Let routes match only requests for the models of their pool.

    `routes` has their number for each pool; they follow one another from number `first` on. A matcher is as
    long as all names, so it is made once, and copied by protobuf's own runtime.
    """
    made = route_pb2.RouteConfiguration.FromString(config)
    left = iter(made.virtual_hosts[0].routes[first:])
    names = sorted(table.places)
    for pool, number in routes.items():
        values = [{"string_match": each} for each in _spellings(pool, table, names)]
        matcher = metadata_pb2.MetadataMatcher(
            filter=METADATA_NAMESPACE,
            path=[{"key": METADATA_POOL}],
            # Envoy refuses an alternative without another one, as of a pool whose models are unknown yet.
            value={"or_match": {"value_matchers": values}} if len(values) > 1 else values[0],
        )
        for route in islice(left, number):
            route.match.dynamic_metadata.append(matcher)
    return made.SerializeToString(deterministic=True)


def _spellings(pool: str, table: ModelTable, names: list[str]) -> Iterator[dict[str, str]]:
    """Yield matchers of the pool's mark, and of its names as headers, paths and queries spell them.

    `names` are those of all pools, in order.
    """
    yield {"exact": f"{POOL_MARK}{pool}"}
    for name in table.names[pool]:
        # Triton and Azure name an action behind the model, if that does not make the name of another one.
        ends = [end for end in "/:" if not _leads(f"{name}{end}", names)]
        for spelt in dict.fromkeys(
            (name, quote(name, safe=""), quote(name, safe=":"), quote(name, safe="/"))
        ):
            yield {"exact": spelt}
            yield from ({"prefix": f"{spelt}{end}"} for end in ends)


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
