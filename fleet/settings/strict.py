"""The base of all models: unknown fields are refused, values are not converted, and models are frozen."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]
LABELS = r"([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
"""The pattern of a DNS name."""
METRIC = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
"""The pattern of a metric's name."""
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]{0,256}"'
METRIC_LABELS = rf"\{{{_LABEL}(,{_LABEL})*\}}"
"""The pattern of its labels."""
FilePath = Annotated[str, Field(pattern=r"^/[^\x00]*$", max_length=4096)]
OptionalFilePath = Annotated[str, Field(pattern=r"^(/[^\x00]*)?$", max_length=4096)]
"""Empty: none."""
UrlPath = Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$", max_length=2048)]
HttpUrl = Annotated[str, Field(pattern=r"^https?://[^\s]+$")]
Port = Annotated[int, Field(ge=1, le=65_535)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
FieldPath = tuple[int | str, ...]
"""Names and indices from the root of the settings to a field."""


def _unique(entries: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(entries)) < len(entries):
        raise ValueError("allowed: each entry once")
    return entries


Unique = AfterValidator(_unique)
"""Of a list's entries."""


class Strict(BaseModel):
    """Base of every model of settings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
