"""A retry after what may have been a 4xx is no fault of the engine; every other retry is one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.names import METADATA_RETRY_ON
from fleet.settings import Settings, parse_settings
from fleet.settings.sla_policy import KEYED
from xds_server.access_log.finished import Finished
from xds_server.signals.passive.retry_blame import retry_blame_of

SLA = {"first_token_p95_seconds": 2.0, "base_round_trip_seconds": 0.001, "tolerated_error_ratio": 0.05}


def settings(**sections: Any) -> Settings:
    pool = {"name": "p", "endpoints": [{"address": "10.0.0.1:80"}], **sections.pop("pool", {})}
    listener = {"name": "l", "address": "127.0.0.1:80", "pool": "p"}
    return parse_settings(json.dumps({"pools": [pool], "listeners": [listener], **sections}))


def retried(**fields: Any) -> Finished:
    values = {"handshake": False, "metadata": {}, "cluster": "p", **fields}
    return Finished(
        "10.0.0.2:80", "10.0.0.1:80", values.pop("cluster"), "", 0.0, 0.1, 0.2, 200, (), 2, **values
    )


ORDINARY, HANDSHAKE = retried(), retried(handshake=True)
WITH_KEY = retried(metadata={METADATA_RETRY_ON: KEYED})


@pytest.mark.parametrize(
    ("sections", "blameless"),
    [
        ({}, (False, False, True)),
        ({"upgrades": {"retry_statuses": [501]}}, (False, False, False)),
        ({"upgrades": {"retry_statuses": []}}, (False, False, False)),
        ({"pool": {"retry_on": "5xx"}}, (False, False, True)),
        ({"pool": {"retry_on": "5xx,retriable-4xx"}}, (True, True, True)),
        ({"pool": {"retry_statuses": [429, 503]}}, (True, True, True)),
        ({"pool": {"sla": SLA}}, (False, False, True)),
        (
            {"pool": {"sla": {**SLA, "repeats": "keyed"}}, "ext_proc": {"idempotency": {"enabled": True}}},
            (False, False, True),
        ),
        (
            {
                "pool": {"sla": {**SLA, "repeats": "keyed"}},
                "ext_proc": {"idempotency": {"enabled": True, "streaming": True}},
            },
            (False, True, True),
        ),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_retries_after_a_4xx_blame_no_engine(sections: dict[str, Any], blameless: Any) -> None:
    """An ordinary request, one with a key, and a handshake."""
    retry_blame = retry_blame_of(settings(**sections))
    blamed = [retry_blame.blames_engine(request) for request in (ORDINARY, WITH_KEY, HANDSHAKE)]
    assert blamed == [not free for free in blameless]
    assert retry_blame.blames_engine(retried(cluster="other", metadata={METADATA_RETRY_ON: KEYED}))
