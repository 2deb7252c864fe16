"""The bytes of a body's model: found whatever the spelling, replaced without a change of any other byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.prompt.model_member import model_member


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{"model":"a"}', b'{"model":"b"}'),
        (b' {"messages": [{"model": "a"}], "n": 1.0e3, "model" :\t"a" }\n', None),
        (b'{"mod\\u0065l":"\\u0061", "x": 1.00}', b'{"mod\\u0065l":"b", "x": 1.00}'),
        (b'{"model":"c","model":"a"}', b'{"model":"c","model":"b"}'),
        ('{"user":"ä€😀","model":"a"}'.encode(), '{"user":"ä€😀","model":"b"}'.encode()),
    ],
)
def test_only_the_value_changes(body: bytes, wanted: bytes | None) -> None:
    member = model_member(body)
    assert member is not None
    assert member.name == "a"
    at = body.rindex(b'"a"') if wanted is None else 0
    assert member.replaced(body, "b") == (body[:at] + b'"b"' + body[at + 3 :] if wanted is None else wanted)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"model":3}', b'{"model":null}', b"{}", b'{"model":"a"', b"\xff"]
)
def test_no_name_is_no_member(body: bytes) -> None:
    assert model_member(body) is None


def test_deep_bodies_are_no_fault() -> None:
    assert model_member(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"model":"a"}') is None


@given(
    st.dictionaries(
        st.text(), st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.lists(st.integers())
    ),
    st.text(),
)
def test_what_engines_read_changes_only_there(fields: dict[str, object], name: str) -> None:
    body = json.dumps({**fields, "model": "alias"}, ensure_ascii=False).encode("utf-8", "replace")
    member = model_member(body)
    assert member is not None
    replaced = member.replaced(body, name.encode("utf-8", "replace").decode())
    before, after = json.loads(body), json.loads(replaced)
    assert after.pop("model") == name.encode("utf-8", "replace").decode()
    assert before.pop("model") == "alias"
    assert before == after
