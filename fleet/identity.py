"""Results that depend on large frozen values, remembered without hashing or comparing these."""

from __future__ import annotations

from collections import deque
from functools import wraps
from operator import is_
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def cached_by_identity(function: Callable[P, T]) -> Callable[P, T]:
    """Remember the results for the two newest lists of arguments, which are positional and frozen.

    Threads may call it at the same time.
    """
    newest: deque[tuple[tuple[object, ...], T]] = deque(maxlen=2)

    @wraps(function)
    def cached(*args: P.args, **kwargs: P.kwargs) -> T:
        for arguments, result in tuple(newest):
            if all(map(is_, arguments, args)):
                return result
        result = function(*args, **kwargs)
        newest.append((args, result))
        return result

    return cached
