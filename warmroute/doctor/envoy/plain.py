"""Reads Envoy's configuration as plain data, in the JSON form of its messages.

A field that is missing, unknown or of the wrong type counts as absent: the doctor must be able to read the
configuration of other versions and other authors.
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
    """One message and its path."""

    data: Mapping[str, Any]
    where: str = ""

    def raw(self, name: str) -> Any:
        """The field's raw value, by either spelling of the JSON form; None when it is absent."""
        if name in self.data:
            return self.data[name]
        return self.data.get(camel(name))

    def has(self, name: str) -> bool:
        """Whether the field is present, even if it is empty."""
        return self.raw(name) is not None

    def child(self, *names: str) -> Node:
        """The message under a path of fields; an empty one when it is absent."""
        node = self
        for name in names:
            value = node.raw(name)
            node = Node(value if isinstance(value, Mapping) else {}, _join(node.where, name))
        return node

    def items(self, name: str) -> Iterator[Node]:
        """The messages of a repeated field, labelled by name, otherwise by position."""
        for number, value in enumerate(self.each(name)):
            if isinstance(value, Mapping):
                label = value.get("name")
                name_or_number = label if isinstance(label, str) and label else str(number)
                yield Node(value, f"{_join(self.where, name)}[{name_or_number}]")

    def each(self, name: str) -> Sequence[Any]:
        """The values of a repeated field."""
        value = self.raw(name)
        return value if isinstance(value, list | tuple) else ()

    def entries(self, name: str) -> Iterator[tuple[str, Node]]:
        """The messages of a map by their keys."""
        for key, value in self.child(name).data.items():
            if isinstance(value, Mapping):
                yield str(key), Node(value, f"{_join(self.where, name)}[{key}]")

    def text(self, name: str) -> str:
        """A string or an enum's name; "" when it is absent."""
        value = self.raw(name)
        return value if isinstance(value, str) else ""

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(value for value in self.each(name) if isinstance(value, str))

    def enum(self, name: str, values: Sequence[str]) -> str:
        """An enum's value by name or number; the first is the default."""
        value = self.raw(name)
        if isinstance(value, str) and value in values:
            return value
        if isinstance(value, int) and 0 <= value < len(values):
            return values[value]
        return values[0]

    def flag(self, name: str) -> bool | None:
        """A boolean, plain or wrapped."""
        value = self.raw(name)
        return value if isinstance(value, bool) else None

    def whole(self, name: str) -> int | None:
        """A whole number that is not negative; 64-bit ones are strings in JSON."""
        value = self.raw(name)
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
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
        value = self.raw(name)
        if isinstance(value, str) and (read := _DURATION.fullmatch(value)):
            return float(read[1])
        return None

    @property
    def kind(self) -> str:
        """The message's type, as `extensions.filters.http.router.v3.Router`; "" if unknown."""
        type_url = self.data.get("@type")
        full = type_url.rpartition("/")[2] if isinstance(type_url, str) else ""
        return full.removeprefix("envoy.")

    def extension(self) -> Node:
        """The configuration in an extension's `typed_config`, unwrapped from a `TypedStruct`."""
        config = self.child("typed_config")
        if config.kind.endswith("TypedStruct"):
            inner = config.child("value")
            return Node({"@type": config.text("type_url"), **inner.data}, inner.where)
        return config


@lru_cache(maxsize=1024)
def camel(name: str) -> str:
    """`max_requests` as `maxRequests`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
