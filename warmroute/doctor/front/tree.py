"""YAML and TOML as plain data that remembers lines, and typed access to it.

A field that is missing, unknown or of the wrong type counts as absent: the doctor must be able to read the
configuration of other versions and other authors.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from warmroute.doctor.rule import DoctorError

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser where there is one: a megabyte takes the other ten seconds."""
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|µs|ms|s|m|h)", re.ASCII)
_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\N{MICRO SIGN}s": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}


_MOST: Final = 1e18
"""What is larger, or no number at all, counts as absent."""


class Lined(dict[str, Any]):
    """A mapping with the line of each key; keys are text, as the proxies read them."""

    lines: Mapping[str, int]


class _Loader(_LOADER):  # type: ignore[misc]
    pass


def _mapping(loader: Any, node: yaml.MappingNode) -> Iterator[Lined]:
    mapping = Lined()
    yield mapping
    mapping.update({str(key): value for key, value in loader.construct_mapping(node).items()})
    mapping.lines = {str(loader.construct_object(key)): key.start_mark.line + 1 for key, _ in node.value}


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse(text: str, file: str) -> Any:
    """Read TOML by the file's name, otherwise YAML or JSON.

    Raises:
        DoctorError: it is neither.
    """
    try:
        if file.endswith(".toml"):
            return tomllib.loads(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506
    except (tomllib.TOMLDecodeError, yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        kind = "TOML" if file.endswith(".toml") else "YAML"
        raise DoctorError(f"{file} holds no {kind}: {error}") from error


@dataclass(frozen=True, slots=True)
class Tree:
    """One mapping of a document, its file and its place there. Names count in any case, as Traefik's do."""

    data: Mapping[str, Any]
    file: str
    path: str = ""
    line: int | None = None

    @property
    def where(self) -> str:
        """File, line if the parser has one, and path."""
        return self._place(self.line, self.path)

    def place(self, name: str) -> str:
        """Where a field is written, otherwise the mapping's own place with the field's name."""
        _, line, _ = self._field(name)
        return self._place(line if line is not None else self.line, _join(self.path, name))

    def child(self, *names: str) -> Tree:
        """The mapping under a path of fields; an empty one when it is absent."""
        tree = self
        for name in names:
            written, line, value = tree._field(name)
            inner = value if isinstance(value, Mapping) else {}
            tree = Tree(inner, tree.file, _join(tree.path, written), line)
        return tree

    def items(self, name: str) -> Iterator[Tree]:
        """The mappings of a list, labelled by name, otherwise by position."""
        written, line, value = self._field(name)
        for number, inner in enumerate(value if isinstance(value, list) else ()):
            if isinstance(inner, Mapping):
                label = inner.get("name")
                shown = label if isinstance(label, str) and label else str(number)
                first = min(getattr(inner, "lines", {}).values(), default=line)
                yield Tree(inner, self.file, f"{_join(self.path, written)}[{shown}]", first)

    def entries(self, name: str) -> Iterator[tuple[str, Tree]]:
        """The mappings of a mapping, by their keys."""
        inner = self.child(name)
        for key in inner.data:
            if isinstance(inner.data[key], Mapping):
                yield key, inner.child(key)

    def has(self, name: str) -> bool:
        """Whether the field is present."""
        return self._field(name)[2] is not None

    def shown(self, name: str) -> str:
        """A value for people."""
        return str(self._field(name)[2])

    def text(self, name: str) -> str:
        """A string; "" when it is absent."""
        value = self._field(name)[2]
        return value if isinstance(value, str) else ""

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._field(name)[2]
        return tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list) else ()

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        value = self._field(name)[2]
        return value if isinstance(value, bool) else None

    def number(self, name: str) -> float | None:
        """A number."""
        value = self._field(name)[2]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if is_number and abs(value) < _MOST else None

    def seconds(self, name: str) -> float | None:
        """Go's duration, `1m30s`, or a number of seconds."""
        text = self.text(name)
        if not text:
            return self.number(name)
        if text.isascii() and text.isdigit():
            return float(text)
        parts = _DURATION.findall(text)
        if not parts or _DURATION.sub("", text):
            return None
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)

    def _field(self, name: str) -> tuple[str, int | None, Any]:
        """Its name as it is written, its line and its value."""
        written = name
        if name not in self.data:
            lower = name.lower()
            written = next((key for key in self.data if key.lower() == lower), name)
        line = getattr(self.data, "lines", {}).get(written)
        return written, line, self.data.get(written)

    def _place(self, line: int | None, path: str) -> str:
        start = self.file if line is None else f"{self.file}:{line}"
        return f"{start} {path}" if path else start


def url_port(url: str) -> int | None:
    """The port of a URL, otherwise that of its scheme; None if it is no URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    return port or {"http": 80, "https": 443}.get(parts.scheme)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
