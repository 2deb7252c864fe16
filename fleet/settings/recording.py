"""Recording of requests, for `warmroute replay`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleet.settings.strict import OptionalFilePath, Strict


class RecordingSettings(Strict):
    """Where xds_server writes finished requests: times, sizes and prefixes, no text."""

    directory: OptionalFilePath = ""
    """Empty: nothing is recorded."""
    pool_bytes: Annotated[int, Field(ge=65_536, le=1_099_511_627_776)] = 268_435_456
    """Of all files of a pool. A request takes some 500 bytes."""
