"""The choice between a listener's pools as Envoy configuration: docs/decisions/0031 has the reasons.

Two filters in front write the model in the header, or in path or query, to the metadata key `pool`, and let
Envoy choose the route again. ext_proc replaces the value by its own choice. The routes of each pool match on
that key, and those of the default pool come last, without a condition.
"""

from __future__ import annotations

import json
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
    OrMatcher,
    RegexMatchAndSubstitute,
    RegexMatcher,
    StringMatcher,
    ValueMatcher,
)

from fleet.models import has_aliases
from fleet.names import LEADING_FILTER, METADATA_LENGTH, METADATA_NAMESPACE, METADATA_POOL, POOL_MARK
from xds_server.envoy.extension import metadata, overwriting, packed
from xds_server.envoy.upgrades import untouched

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    mark = ValueMatcher(string_match=StringMatcher(exact=f"{POOL_MARK}{pool}"))
    return _matching(Route.parse(bytes(route)), mark, LEADING_FILTER, METADATA_NAMESPACE, METADATA_POOL)


def limited_to(route: Route, pool: str, table: ModelTable) -> Route:
    """Let a route match only requests for the models of a pool."""
    mark, *names = [ValueMatcher(string_match=match) for match in _spellings(pool, table)]
    # Envoy refuses an alternative without another one, as of a pool whose models are unknown yet.
    value = ValueMatcher(or_match=OrMatcher(value_matchers=[mark, *names])) if names else mark
    return _matching(route, value, METADATA_NAMESPACE, METADATA_POOL)


def _matching(route: Route, value: ValueMatcher, name: str, *keys: str) -> Route:
    assert route.match is not None
    path = [MetadataMatcherPathSegment(key=key) for key in keys]
    route.match.dynamic_metadata = [MetadataMatcher(filter=name, path=path, value=value)]
    return route


def _spellings(pool: str, table: ModelTable) -> Iterator[StringMatcher]:
    """Yield the pool's mark, and its names as headers, paths and queries spell them."""
    yield StringMatcher(exact=f"{POOL_MARK}{pool}")
    for name in table.names[pool]:
        for spelt in dict.fromkeys(
            (name, quote(name, safe=""), quote(name, safe=":"), quote(name, safe="/"))
        ):
            yield StringMatcher(exact=spelt)
            # Triton and Azure name an action behind the model, if that does not make the name of another one.
            for end in "/:":
                if not any(other.startswith(f"{name}{end}") for other in table.places):
                    yield StringMatcher(prefix=f"{spelt}{end}")


def list_route(table: ModelTable) -> list[Route]:
    """The answer to GET /v1/models: all names. Without any, the default pool answers."""
    if len(table.pools) == 1 or not table.places:
        return []
    entries = [
        {"id": name, "object": "model", "created": 0, "owned_by": place.pool}
        for name, place in table.places.items()
    ]
    return [
        Route(
            name="models",
            match=RouteMatch(
                path="/v1/models",
                headers=[HeaderMatcher(name=":method", string_match=StringMatcher(exact="GET"))],
            ),
            direct_response=DirectResponseAction(
                status=200,
                body=DataSource(inline_string=json.dumps({"object": "list", "data": entries})),
            ),
            response_headers_to_add=[overwriting("content-type", "application/json")],
            typed_per_filter_config=untouched(),
        )
    ]
