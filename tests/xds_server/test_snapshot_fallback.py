"""All names but some, as regular expressions that are small enough for Envoy."""

from __future__ import annotations

import re
import string

from hypothesis import given
from hypothesis import strategies as st

from fleet.settings import UpgradeSettings
from xds_server.envoy.fallback import all_but

NAMES = st.text(string.ascii_lowercase + string.digits + "-_.", min_size=1, max_size=12)
CLOSE = st.text("ab-", min_size=1, max_size=4)


def _matches(regexes: tuple[str, ...], name: str) -> bool:
    return any(re.fullmatch(regex, name) for regex in regexes)


@given(st.lists(NAMES | CLOSE, max_size=12, unique=True), NAMES | CLOSE)
def test_every_name_but_those_is_matched(kept: list[str], other: str) -> None:
    regexes = all_but(kept)
    assert not any(_matches(regexes, name) for name in kept)
    assert _matches(regexes, other) is (other not in kept)
    for name in kept:
        for near in (name[:-1], name + "x", "x" + name, name + name):
            assert _matches(regexes, near) is bool(near and near not in kept)


def test_pseudo_headers_stay() -> None:
    regexes = all_but(UpgradeSettings().passing("x-session-id"))
    for name in (":method", ":path", ":authority", ":scheme", ":protocol"):
        assert not _matches(regexes, name)


def test_very_long_names_cost_no_long_program() -> None:
    name = "x-" + "y" * 126
    regexes = all_but([name])
    assert max(map(len, regexes)) < 500
    assert not _matches(regexes, name)
    assert _matches(regexes, name[:30])
    assert not _matches(regexes, name[:-1]), "it begins like the one that passes"


def test_programs_are_few_and_short() -> None:
    """Each costs a look at every header; the real Envoy's limit is tested where it runs."""
    regexes = all_but(UpgradeSettings().passing("x-session-id"))
    assert len(regexes) < 50
    assert max(map(len, regexes)) < 500
