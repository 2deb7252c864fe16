"""Where engines have their metrics pages, and names of metrics that no kind of engine has."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleet.settings.strict import METRIC, METRIC_LABELS, Port, Strict, UrlPath

SampleName = Annotated[str, Field(pattern=rf"^{METRIC}({METRIC_LABELS})?$", max_length=1024)]
"""A sample's name, suffix included, with or without labels that it must have."""


def _no_suffix(name: str) -> str:
    for suffix in ("_bucket", "_sum", "_count"):
        if name.endswith(suffix):
            raise ValueError(f"allowed: the histogram's name without {suffix}: {name.removesuffix(suffix)}")
    return name


HistogramName = Annotated[str, Field(pattern=rf"^{METRIC}$", max_length=256), AfterValidator(_no_suffix)]
"""A histogram's name, without a suffix."""


class PageSettings(Strict):
    """Place of the engines' metrics pages, on each engine's own host."""

    port: Port | None = None
    """None: the engine's own."""
    path: UrlPath = "/metrics"
    scheme: Literal["http", "https"] | None = None
    """None: at the engine's own port as requests, at another port `http`."""


class MetricNames(Strict):
    """Samples of a page by what they measure; they take precedence over those of the engine's kind."""

    queue_depth: SampleName | None = None
    running: SampleName | None = None
    memory_used_ratio: SampleName | None = None
    """From 0 to 1."""
    kv_capacity_tokens: SampleName | None = None
    batch_limit: SampleName | None = None
    prompt_tokens_total: SampleName | None = None
    generation_tokens_total: SampleName | None = None
    requests_total: SampleName | None = None
    first_token_seconds: HistogramName | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("allowed: one name or more")
        return self
