"""Routes that close engines' paths of administration: 403 in OpenAI's form, without ext_proc or an engine.

Engines decode a path before they match it, so `/%73leep` is `/sleep` to them. With the listener's
`normalize_path` Envoy first decodes letters and digits and removes dot segments (RFC 3986, 6.2.2). The
expressions here accept what that leaves: repeated and encoded slashes, a slash at the end, and either case.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.core.v3 import DataSource
from envoy_data_plane.envoy.config.route.v3 import DirectResponseAction, Route, RouteMatch
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher

from fleet.engine_paths import ALL_ADMIN_PATHS, EVERY_PATH
from xds_server.envoy.extension import overwriting
from xds_server.envoy.upgrades import untouched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleet.settings import ListenerSettings

_FORBIDDEN: Final = 403
_ANSWER: Final = json.dumps(
    {
        "error": {
            "message": "This path of the engines is closed here; listeners.open_paths opens it.",
            "type": "invalid_request_error",
            "param": None,
            "code": "path_closed",
        }
    }
)
_SLASH: Final = "(?:/|%2[fF])+"
_SEGMENT: Final = "[!-.0-~]+"
_BELOW: Final = rf"(?:{_SLASH}\C*)?"
_END: Final = ""
_STEPS: Final = {_SLASH: 7, _SEGMENT: 3, _BELOW: 11, _END: 1}
"""Instructions of each part of an expression; a letter is one."""
_MOST_STEPS: Final = 92
"""Envoy refuses programs of more than 100 instructions, and some stand around the tree."""


def closed(listener: ListenerSettings) -> tuple[str, ...]:
    """The paths that are closed at a listener."""
    if EVERY_PATH in listener.open_paths:
        return ()
    return tuple(path for path in ALL_ADMIN_PATHS if path not in listener.open_paths)


def closed_routes(listener: ListenerSettings) -> list[Route]:
    """The routes that stand before all others."""
    return [
        Route(
            name="closed",
            match=RouteMatch(safe_regex=RegexMatcher(regex=regex)),
            direct_response=DirectResponseAction(status=_FORBIDDEN, body=DataSource(inline_string=_ANSWER)),
            response_headers_to_add=[overwriting("content-type", "application/json")],
            typed_per_filter_config=untouched(),
        )
        for regex in regexes(closed(listener))
    ]


def regexes(paths: Iterable[str]) -> Iterator[str]:
    """Yield as few expressions as fit into Envoy's limit; one of them matches each spelling of a path."""
    batch: list[tuple[str, ...]] = []
    # In order, so that paths which begin alike share the instructions for that.
    for path in sorted(_spelt(path) for path in paths):
        if batch and _steps(_tree([*batch, path])) > _MOST_STEPS:
            yield _joined(batch)
            batch = []
        batch.append(path)
    if batch:
        yield _joined(batch)


def _joined(spelt: list[tuple[str, ...]]) -> str:
    return f"{_SLASH}{_alternatives(_tree(spelt))}(?:{_SLASH})?"


def _spelt(path: str) -> tuple[str, ...]:
    """Return the parts of a path's expression, without its outer slashes.

    Classes of two letters in the place of `(?i)`: that also accepts letters beyond ASCII, at a high price.
    """
    parts: list[str] = []
    for segment in path.strip("/").split("/"):
        parts += [_SLASH] if parts else []
        if segment == "*":
            parts.append(_SEGMENT)
        else:
            parts += [f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in segment]
    return (*parts, _BELOW) if path.endswith("/") else tuple(parts)


_Tree = dict[str, "_Tree"]


def _tree(spelt: list[tuple[str, ...]]) -> _Tree:
    root: _Tree = {}
    for parts in spelt:
        node = root
        for part in (*parts, _END):
            node = node.setdefault(part, {})
    return root


def _alternatives(node: _Tree) -> str:
    branches = [part + (_alternatives(child) if child else "") for part, child in node.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _steps(node: _Tree) -> int:
    """Return an upper bound of the instructions that RE2 makes of a tree."""
    return (
        len(node)
        - 1
        + sum(_STEPS.get(part, 1) + (_steps(child) if child else 0) for part, child in node.items())
    )
