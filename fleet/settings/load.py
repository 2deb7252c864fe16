"""From a YAML file to settings, or to errors that name the field, its value and the allowed values."""

from __future__ import annotations

import json
import os
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, get_args

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from fleet.cause import cause_of
from fleet.errors import SettingsError
from fleet.settings.check import contradictions, repeated
from fleet.settings.model import Settings
from fleet.settings.pools import EndpointSettings
from fleet.settings.words import entries_in_words, in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

ENVIRONMENT: Final[Mapping[str, tuple[str, ...]]] = {
    "WARMROUTE_XDS_ADDRESS": ("xds", "address"),
    "WARMROUTE_EXT_PROC_ADDRESS": ("ext_proc", "address"),
    "WARMROUTE_EXT_PROC_WORKERS": ("ext_proc", "workers"),
    "WARMROUTE_EXT_PROC_SHARED_URL": ("ext_proc", "shared", "url"),
    "WARMROUTE_CONTROL_ADDRESS": ("control", "address"),
    "WARMROUTE_ADMIN_ADDRESS": ("admin", "address"),
    "WARMROUTE_ADMIN_EXT_PROC_ADDRESS": ("admin", "ext_proc_address"),
    "WARMROUTE_TRACES": ("telemetry", "traces"),
}
"""The settings that environment variables may override: those that a container may need to."""

_NUMBERS: Final = frozenset({("ext_proc", "workers")})
SECRET: Final[frozenset[tuple[int | str, ...]]] = frozenset(
    {("ext_proc", "shared", "url"), ("ext_proc", "idempotency", "url")}
)
"""Fields whose values errors must not show."""
_ENDPOINTS: Final = TypeAdapter(tuple[EndpointSettings, ...])
_EXAMPLES: Final = "; docs/quickstart.md and docs/settings.md have one to begin with"
_MAX_FILE_BYTES: Final = 16 * 1024 * 1024
_PLAIN: Final = "text, numbers, true, false, null, lists and mappings, without YAML's tags"
_MAX_SHOWN_VALUE: Final = 80
_FIELD: Final = re.compile(r"(?P<path>(?P<section>[a-z_]+)(?:\.[a-z_]+|\[\d{1,9}\])*): ", re.ASCII)
_STEP: Final = re.compile(r"([a-z_]+)|\[(\d+)\]", re.ASCII)


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys and aliases, and leaves dates as text."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001
        keys: set[str] = set()
        for key_node, _ in node.value:
            key = str(self.construct_object(key_node, deep=True))
            if key in keys:
                problem = f"duplicate key {key!r}: each key is allowed once"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_settings(path: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """Read and check a settings file.

    Raises:
        SettingsError: one line for each problem.
    """
    return parse_settings(_text(path, _EXAMPLES), str(path), os.environ if environ is None else environ)


def load_endpoints(path: Path) -> tuple[EndpointSettings, ...]:
    """Read and check a file that is a list of endpoints, with the fields of `pools.endpoints`.

    Raises:
        SettingsError: one line for each problem.
    """
    origin = str(path)
    raw, root = _parsed(_text(path), origin)
    if not isinstance(raw, list):
        raise SettingsError([f"{origin}: {_shown(raw)}; allowed: a list of endpoints, [] for none"])
    try:
        endpoints = _ENDPOINTS.validate_json(json.dumps(raw, allow_nan=True))
    except ValidationError as error:
        lines = [_line(origin, root, problem, EndpointSettings) for problem in _causes(error)]
        raise SettingsError(lines) from error
    except (TypeError, ValueError) as error:
        raise SettingsError([f"{origin}: a key or value of another kind; allowed: {_PLAIN}"]) from error
    problems = [
        f"{_place(origin, root, (i, 'address'))}: {endpoints[i].address!r}; allowed: each address once"
        for i in repeated(endpoint.address for endpoint in endpoints)
    ]
    if problems:
        raise SettingsError(problems)
    return endpoints


def parse_settings(text: str, origin: str = "settings", environ: Mapping[str, str] | None = None) -> Settings:
    """Check settings in a text; `environ` may override the settings that `ENVIRONMENT` lists.

    Raises:
        SettingsError: one line for each problem.
    """
    raw, root = _parsed(text, origin)
    if not isinstance(raw, dict):
        shown = "it is empty" if raw is None else _shown(raw)
        raise SettingsError([f"{origin}: {shown}; allowed: a mapping with pools and listeners"])
    _override(raw, environ or {})
    try:
        settings = Settings.model_validate_json(json.dumps(raw, allow_nan=True))
    except ValidationError as error:
        lines = [_line(origin, root, problem) for problem in _causes(error)]
        raise SettingsError(lines) from error
    except (TypeError, ValueError) as error:
        raise SettingsError([f"{origin}: a key or value of another kind; allowed: {_PLAIN}"]) from error
    if problems := contradictions(settings):
        raise SettingsError([f"{_place(origin, root, path)}: {text}" for path, text in problems])
    return settings


def located(path: Path, error: SettingsError) -> SettingsError:
    """Add file and line to the problems of an error that was raised while settings were applied.

    Problems that do not begin with a field's path stay as they are. All do if the file is gone.
    """
    try:
        root = _parsed(_text(path), str(path))[1]
    except SettingsError:
        return error
    return SettingsError([_located(str(path), root, problem) for problem in error.problems])


def _located(origin: str, root: yaml.Node | None, problem: str) -> str:
    field = _FIELD.match(problem)
    if field is None or field["section"] not in Settings.model_fields:
        return problem
    steps = _STEP.findall(field["path"])
    location = tuple(int(number) if number else name for name, number in steps)
    return _place(origin, root, location) + problem[field.end("path") :]


def _causes(error: ValidationError) -> list[ErrorDetails]:
    """Return the problems that do not merely follow from another one inside the same field."""
    problems = error.errors(include_url=False)
    deeper = {problem["loc"][:length] for problem in problems for length in range(len(problem["loc"]))}
    return [problem for problem in problems if problem["loc"] not in deeper]


def _text(path: Path, if_missing: str = "") -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise SettingsError([f"{path}: too large; allowed: {_MAX_FILE_BYTES:,} bytes"])
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SettingsError([f"{path}: there is no such file{if_missing}"]) from error
    except OSError as error:
        raise SettingsError([f"{cause_of(error)}; allowed: a text file that this user may read"]) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SettingsError([f"{path}:{line}: {cause_of(error)}; allowed: a text file in UTF-8"]) from error


def _parsed(text: str, origin: str) -> tuple[Any, yaml.Node | None]:
    try:
        return _read(text, origin)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"the character U+{error.character:04X}; allowed: text without control characters"
        raise SettingsError([f"{origin}:{line}: {problem}"]) from error
    except yaml.MarkedYAMLError as error:
        problem = " ".join(filter(None, (error.context, error.problem)))
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        raise SettingsError([f"{origin}:{line}: {problem}; allowed: YAML of {_PLAIN}"]) from error
    except RecursionError as error:
        raise SettingsError([f"{origin}: nested too deeply; allowed: YAML of {_PLAIN}"]) from error
    except ValueError as error:
        raise SettingsError([f"{origin}: a number that cannot be read; allowed: {_PLAIN}"]) from error


def _read(text: str, origin: str) -> tuple[Any, yaml.Node | None]:
    loader = _Loader(text)
    loader.name = origin
    try:
        root = loader.get_single_node()
        raw = loader.construct_document(root) if root is not None else None
    finally:
        loader.dispose()
    return raw, root


def _override(raw: dict[str, Any], environ: Mapping[str, str]) -> None:
    for variable, path in ENVIRONMENT.items():
        if variable not in environ:
            continue
        section: Any = raw
        for name in path[:-1]:
            section = section.setdefault(name, {}) if isinstance(section, dict) else None
        if isinstance(section, dict):
            text = environ[variable]
            section[path[-1]] = int(text) if path in _NUMBERS and text.isascii() and text.isdigit() else text


def _line(
    origin: str, root: yaml.Node | None, problem: ErrorDetails, model: type[BaseModel] = Settings
) -> str:
    location = problem["loc"]
    place = _place(origin, root, location)
    section = _section(location[:-1], model)
    if problem["type"] == "extra_forbidden":
        names = sorted(field.alias or name for name, field in section.model_fields.items())
        suggestion = "".join(
            f"did you mean {name}? " for name in get_close_matches(str(location[-1]), names, 1)
        )
        text = _shown(problem["input"])
        allowed = f"{suggestion}allowed: {', '.join(names)}; otherwise delete the line"
        return f"{place}: unknown field, value {text}; {allowed}"
    if problem["type"] == "missing":
        return f"{place}: missing; it has no default"
    words = in_words(problem)
    field = section.model_fields.get(str(location[-1])) if location else None
    if problem["type"] == "literal_error" and field is not None and not field.is_required():
        words += "; or delete the line for the default"
    if problem["type"] in ("tuple_type", "list_type") and field is not None:
        words += entries_in_words(field)
    text = "not shown" if location in SECRET else _shown(problem["input"])
    if not location:  # The value is the whole file, which may hold a secret.
        text = "a value that cannot be read"
    return f"{place}: {text}; allowed: {words}"


def _place(origin: str, root: yaml.Node | None, location: tuple[int | str, ...]) -> str:
    line, node = None, root
    for step in location:
        mark, node = _child(node, step)
        if mark is None:
            break
        line = mark.line + 1
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".")
    return ": ".join(part for part in (f"{origin}:{line}" if line else origin, path) if part)


def _child(node: yaml.Node | None, step: int | str) -> tuple[yaml.Mark | None, yaml.Node | None]:
    """Return where a field's name or an item begins, and its value; None for both if it is absent."""
    if isinstance(node, yaml.MappingNode):
        matches = ((key.start_mark, value) for key, value in node.value if key.value == str(step))
        return next(matches, (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        child: yaml.Node = node.value[step]
        return child.start_mark, child
    return None, None


def _section(location: tuple[int | str, ...], model: type[BaseModel]) -> type[BaseModel]:
    """Return the model of the section at a place."""
    for step in location:
        if isinstance(step, str) and step in model.model_fields:
            model = next(_models(model.model_fields[step].annotation), model)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_VALUE else text[: _MAX_SHOWN_VALUE - 3] + "..."
