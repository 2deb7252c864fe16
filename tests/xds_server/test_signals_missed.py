"""What ext_proc hears of finished requests: those that the first of their pick did not answer well."""

from __future__ import annotations

import pytest

from fleet.store import Missed
from tests.xds_server.test_signals_refusals import A, B, answer
from xds_server.access_log.finished import Finished
from xds_server.signals.passive.missed import missed_of


@pytest.mark.parametrize(
    ("finished", "missed"),
    [
        (answer(A), None),
        (answer(A, 404), (255, A, "")),
        (answer(A, 429), (255, A, "")),
        (answer(A, 503), (255, A, "")),
        (answer(A, 503, first_byte_seconds=None, flags=("UF",)), (255, A, "")),
        (answer("", 503, picked=A, first_byte_seconds=None, attempts=2), (255, A, "")),
        (answer("", 503, picked=A, first_byte_seconds=None, flags=("UO",)), None),
        (answer("", 401, picked=A, first_byte_seconds=None), None),
        (answer(A, 413, first_byte_seconds=None), None),
        (answer(A, 429, first_byte_seconds=None, flags=("RL",)), None),
        (answer(B, 200, picked=A, attempts=2), (255, A, B)),
        (answer(B, 404, picked=A, attempts=2), (255, A, "")),
        (answer(A, 404, flags=("DC",)), None),
        (answer(A, 0, flags=("DR",)), None),
        (answer(A, 404, picked=""), None),
        (answer(A, 404, metadata={}), None),
        (answer(A, 404, metadata={"prompt": "nonsense"}), None),
        (answer(A, 404, metadata={"prompt": "0" * 16}), None),
        (answer(A, 404, metadata={"prompt": "f" * 17}), None),
        (answer(A, 404, metadata={"prompt": "-1"}), None),
    ],
    ids=lambda value: f"{value.status}{value.flags}{value.metadata}" if isinstance(value, Finished) else "",
)
def test_which_requests_are_misses(finished: Finished, missed: tuple[int, str, str] | None) -> None:
    assert missed_of(finished) == (missed and Missed(*missed))


def test_miss_has_serial_and_digest() -> None:
    metadata = {"prompt": "ff", "serial": "f" * 16, "request": "0" * 15 + "1"}
    assert missed_of(answer(A, 404, metadata=metadata)) == Missed(255, A, "", 2**64 - 1, 1)
    metadata |= {"serial": "f" * 17, "request": "nonsense"}
    assert missed_of(answer(A, 404, metadata=metadata)) == Missed(255, A, "")
