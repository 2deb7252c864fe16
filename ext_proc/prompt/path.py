"""The model in a request's path: Triton and Azure name it there, and so do OpenAI's realtime sockets."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

MAX_MODEL_CHARS: Final = 512
_MODEL: Final = re.compile(r"/(?:deployments|models)/([^/?#]+?)(?:/|:[A-Za-z]+(?:[?#]|$))|[?&]model=([^&#]+)")


_SHORT_CHARS: Final = 128
_search_short: Final = lru_cache(1024)(_MODEL.search)


def _search(path: str) -> re.Match[str] | None:
    return _search_short(path) if len(path) <= _SHORT_CHARS else _MODEL.search(path)


def model_in_path(path: str) -> str:
    """Read the model from a path (`/deployments/M/...`, `/models/M/...`, `/models/M:verb`) or `?model=M`.

    Empty when the path names none.
    """
    match = _search(path)
    return "" if match is None else unquote(match[1] or match[2])[:MAX_MODEL_CHARS]


def model_of(path: str, body_model: str | None) -> str | None:
    """Return a request's model: of the path's segments, otherwise of its body, otherwise of the query."""
    match = _search(path) if path else None
    if match is None or (match[1] is None and body_model is not None):
        return body_model
    return unquote(match[1] or match[2])[:MAX_MODEL_CHARS]
