"""What patterns of settings ask for, in words: an operator need not read regular expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_ABSOLUTE: Final = "an absolute path, which begins with /"
_DNS: Final = (
    "a DNS name: letters, digits, - and _ in labels of at most 63 characters, with dots between them"
)
_LABELS: Final = (
    r"^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
)

PATTERNS: Final[Mapping[str, str]] = {
    r"^/[^\x00]*$": _ABSOLUTE,
    r"^(/[^\x00]*)?$": f'{_ABSOLUTE}, or ""',
    rf"{_LABELS}$": _DNS,
    rf"{_LABELS}\.?$": _DNS,
    r"^https?://[^\s]+$": "an http:// or https:// URL without spaces",
    r"^https?://[^\s/?#]+\S*$": "an http:// or https:// URL without spaces",
    r"^/[\x21-\x7e]*$": "a path of a URL: / and then printable ASCII without spaces",
    r"^[^\s/]*$": "a name without spaces and slashes",
    r"^(\d{1,4}|(GPU|MIG)-[A-Za-z0-9-]+(/\d{1,4}){0,2})$": "a GPU's index, or its UUID (GPU-... or MIG-...)",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": "letters, digits, _, . and -, with a letter or digit at the front",
    r"^[A-Za-z0-9][A-Za-z0-9_.:{}-]*$": "letters, digits and _.:{}-, with a letter or digit at the front",
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
}
"""The kinds of value by pydantic's kinds of error, in YAML's words."""


def in_words(pattern: str) -> str:
    """Return what a pattern allows; the pattern itself where nobody has put it in words."""
    return PATTERNS.get(pattern, f"what matches {pattern}")
