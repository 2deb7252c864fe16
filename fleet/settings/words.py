"""Allowed values in words: an operator need not read regular expressions or pydantic's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, get_args, get_origin

from fleet.settings.strict import LABELS, METRIC, METRIC_LABELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

_ABSOLUTE: Final = "an absolute path, which begins with /"
_DNS: Final = (
    "a DNS name: letters, digits, - and _ in labels of at most 63 characters, with dots between them"
)
PATTERNS: Final[Mapping[str, str]] = {
    r"^/[^\x00]*$": _ABSOLUTE,
    r"^(/[^\x00]*)?$": f'{_ABSOLUTE}, or ""',
    rf"^{LABELS}$": _DNS,
    rf"^{LABELS}\.?$": _DNS,
    rf"^((\*\.)?{LABELS}|[a-z][a-z0-9+.-]*://[!-)+-~]+(/\*)?)$": (
        "a DNS name, or *. and one, or a URI such as spiffe://example.org/envoy, also with /* at its end"
    ),
    r"^https?://[^\s]+$": "an http:// or https:// URL without spaces",
    r"^https?://[^\s/?#]+\S*$": "an http:// or https:// URL without spaces",
    r"^/[\x21-\x7e]*$": "a path of a URL: / and then printable ASCII without spaces",
    rf"^{METRIC}$": "a metric's name",
    rf"^{METRIC}({METRIC_LABELS})?$": 'a metric\'s name, or one with labels such as name{label="value"}',
    r"^[^\s/]*$": "a name without spaces and slashes",
    r"^(\d{1,4}|(GPU|MIG)-[A-Za-z0-9-]+(/\d{1,4}){0,2})$": "a GPU's index, or its UUID (GPU-... or MIG-...)",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": "letters, digits, _, . and -, with a letter or digit at the front",
    r"^[A-Za-z0-9][A-Za-z0-9_.:{}-]*$": "letters, digits and _.:{}-, with a letter or digit at the front",
    r"^[!#-\[\]-~][ !#-\[\]-~]*$": "printable ASCII without quotes, backslashes and a space at the front",
    r"^[a-z0-9,-]*$": "Envoy's words, small, with commas and no spaces between them",
}

TYPES: Final[Mapping[str, str]] = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "string_too_short": "a string of {min_length} or more characters",
    "string_too_long": "a string of at most {max_length} characters",
    "too_short": "a list of {min_length} or more entries",
    "too_long": "a list of at most {max_length} entries",
    "int_parsing_size": "a whole number of fewer digits",
    "json_invalid": "text in UTF-8, and numbers that a computer can hold",
}
"""Pydantic's kind of error to the allowed value, in YAML's words, with the limits of the field."""


def in_words(problem: ErrorDetails) -> str:
    """Return the allowed values of a field whose value pydantic refuses."""
    kind, limits = problem["type"], problem.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(limits["pattern"], f"what matches {limits['pattern']}")
    if kind in TYPES:
        return TYPES[kind].format_map(limits)
    message = problem["msg"].removeprefix("Value error, ")
    return message.removeprefix("allowed: ").removeprefix("Input should be ")


def entries_in_words(field: FieldInfo) -> str:
    """Return what the entries of a list are, and how to write an empty list; empty: nothing to add."""
    if get_origin(field.annotation) is not tuple:
        return ""
    entry = get_args(field.annotation)[0]
    descriptions = [PATTERNS[pattern] for pattern in _patterns(entry) if pattern in PATTERNS]
    none = ", [] for none" if field.default == () else ""
    return f"{none}; an entry is {descriptions[0]}" if descriptions else none


def _patterns(entry: Any) -> Iterator[str]:
    if get_origin(entry) is not Annotated:
        return
    for part in get_args(entry)[1:]:
        for limit in getattr(part, "metadata", ()):
            pattern = getattr(limit, "pattern", None)
            if pattern is not None:
                yield pattern
