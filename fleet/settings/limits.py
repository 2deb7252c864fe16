"""Limits over all pools, streams and requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleet.settings.strict import Seconds, Strict


class LimitSettings(Strict):
    """Over a limit, a request is still served, unrouted and counted."""

    body_bytes: Annotated[int, Field(ge=1024, le=268_435_456)] = 524_288
    """Leading bytes of a body to inspect: as many as `prompt_blocks` can use."""
    held_body_bytes: Annotated[int, Field(ge=0, le=1_099_511_627_776)] = 268_435_456
    """Incomplete bodies of all requests together, in full duplex."""
    prompt_blocks: Annotated[int, Field(ge=1, le=65_536)] = 2048
    index_blocks_per_endpoint: Annotated[int, Field(ge=16, le=100_000_000)] = 200_000
    ext_proc_streams: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    xds_streams: Annotated[int, Field(ge=1, le=100_000)] = 2000
    node_groups: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Places of Envoys with weights by distance; further Envoys get the weights without distance."""
    metrics_page_bytes: Annotated[int, Field(ge=1024, le=268_435_456)] = 1_048_576
    endpoints: Annotated[int, Field(ge=1, le=100_000)] = 5000
    decisions: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Newest picks, and newest changes of weights, that the admin server can explain."""
    drain_seconds: Seconds = 5.0
