"""Retries that may have been for a 4xx blame nobody, and no others are forgiven."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.names import METADATA_RETRY_ON
from fleet.settings import Settings, parse_settings
from fleet.settings.sla_policy import KEYED
from xds_server.access_log.finished import Finished
from xds_server.signals.passive.lenient import lenient_of

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
    ("sections", "forgiven"),
    [
        ({}, (False, False, True)),
        ({"upgrades": {"retry_statuses": [501]}}, (False, False, False)),
        ({"upgrades": {"retry_statuses": []}}, (False, False, False)),
        ({"pool": {"retry_on": "5xx"}}, (False, False, True)),
        ({"pool": {"retry_on": "5xx,retriable-status-codes"}}, (True, True, True)),
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
def test_only_what_envoy_repeats_for_a_4xx_is_forgiven(sections: dict[str, Any], forgiven: Any) -> None:
    """An ordinary request, one with a key, and a handshake."""
    lenient = lenient_of(settings(**sections))
    assert tuple(lenient.forgives(request) for request in (ORDINARY, WITH_KEY, HANDSHAKE)) == forgiven
    assert not lenient.forgives(retried(cluster="other", metadata={METADATA_RETRY_ON: KEYED}))
