"""Reads Envoy's configuration as plain data, in the JSON form of its messages.

What is missing, unknown or of another type than it should be counts as not given: a doctor must be able to
read what other versions and other people wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

_DURATION: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)s", re.ASCII)
_WHOLE: Final = re.compile(r"\d{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Node:
    """One message, and where it stands."""

    data: Mapping[str, Any]
    where: str = ""

    def raw(self, name: str) -> Any:
        """The field as it stands, by either spelling that the JSON form allows; None when it is not given."""
        if name in self.data:
            return self.data[name]
        return self.data.get(camel(name))

    def has(self, name: str) -> bool:
        """Whether the field is given, even if it is empty."""
        return self.raw(name) is not None

    def child(self, *names: str) -> Node:
        """The message in a field, or in a field of that; an empty one when it is not given."""
        node = self
        for name in names:
            held = node.raw(name)
            node = Node(held if isinstance(held, Mapping) else {}, _join(node.where, name))
        return node

    def items(self, name: str) -> Iterator[Node]:
        """The messages of a repeated field, by their name where they have one, else by their number."""
        for number, held in enumerate(self.each(name)):
            if isinstance(held, Mapping):
                label = held.get("name")
                shown = label if isinstance(label, str) and label else str(number)
                yield Node(held, f"{_join(self.where, name)}[{shown}]")

    def each(self, name: str) -> Sequence[Any]:
        """The values of a repeated field."""
        held = self.raw(name)
        return held if isinstance(held, list | tuple) else ()

    def entries(self, name: str) -> Iterator[tuple[str, Node]]:
        """The messages of a map by their keys."""
        for key, held in self.child(name).data.items():
            if isinstance(held, Mapping):
                yield str(key), Node(held, f"{_join(self.where, name)}[{key}]")

    def text(self, name: str) -> str:
        """A string or an enum's name; "" when it is not given."""
        held = self.raw(name)
        return held if isinstance(held, str) else ""

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(held for held in self.each(name) if isinstance(held, str))

    def enum(self, name: str, values: Sequence[str]) -> str:
        """An enum's value by name or number; the first is the default."""
        held = self.raw(name)
        if isinstance(held, str) and held in values:
            return held
        if isinstance(held, int) and 0 <= held < len(values):
            return values[held]
        return values[0]

    def flag(self, name: str) -> bool | None:
        """A boolean, plain or wrapped."""
        held = self.raw(name)
        return held if isinstance(held, bool) else None

    def whole(self, name: str) -> int | None:
        """A whole number that is not negative; 64-bit ones are strings in JSON."""
        held = self.raw(name)
        if isinstance(held, str) and _WHOLE.fullmatch(held):
            return int(held)
        if isinstance(held, int) and not isinstance(held, bool) and held >= 0:
            return held
        return None

    def percent(self, name: str) -> float | None:
        """A `Percent` message."""
        if not isinstance(self.raw(name), Mapping):
            return None
        value = self.child(name).raw("value")
        if value is None:
            return 0.0
        return float(value) if isinstance(value, int | float) and 0 <= value <= 100 else None

    def seconds(self, name: str) -> float | None:
        """A duration, such as "0.25s"."""
        held = self.raw(name)
        if isinstance(held, str) and (read := _DURATION.fullmatch(held)):
            return float(read[1])
        return None

    @property
    def kind(self) -> str:
        """The message's type, as `extensions.filters.http.router.v3.Router`; "" if unknown."""
        held = self.data.get("@type")
        full = held.rpartition("/")[2] if isinstance(held, str) else ""
        return full.removeprefix("envoy.")

    def extension(self) -> Node:
        """The configuration in an extension's `typed_config`, unwrapped from a `TypedStruct`."""
        held = self.child("typed_config")
        if held.kind.endswith("TypedStruct"):
            inner = held.child("value")
            return Node({"@type": held.text("type_url"), **inner.data}, inner.where)
        return held


@lru_cache(maxsize=1024)
def camel(name: str) -> str:
    """`max_requests` as `maxRequests`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
