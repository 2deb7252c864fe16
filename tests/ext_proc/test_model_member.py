"""The bytes of a body's model: found whatever the spelling, replaced without a change of any other byte."""

from __future__ import annotations

import json
import random

import pytest

from ext_proc.prompt.model_member import model_member


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a"}', b'{"model":"b"}'),
        (b' {"messages": [{"model": "a"}], "n": 1.0e3, "model" :\t"a" }\n', None),
        (b'{"mod\\u0065l":"\\u0061", "x": 1.00}', b'{"mod\\u0065l":"b", "x": 1.00}'),
        (b'{"model":"c","model":"a"}', b'{"model":"c","model":"b"}'),
        ('{"user":"ä€😀","model":"a"}'.encode(), '{"user":"ä€😀","model":"b"}'.encode()),
    ],
)
def test_only_the_value_changes(body: bytes, expected: bytes | None) -> None:
    member = model_member(body)
    assert member is not None
    assert member.name == "a"
    at = body.rindex(b'"a"') if expected is None else 0
    assert member.replaced(body, "b") == (
        body[:at] + b'"b"' + body[at + 3 :] if expected is None else expected
    )


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"model":3}', b'{"model":null}', b"{}", b'{"model":"a"', b"\xff"]
)
def test_no_name_is_no_member(body: bytes) -> None:
    assert model_member(body) is None


def test_deep_bodies_are_no_fault() -> None:
    assert model_member(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"model":"a"}') is None


def test_what_engines_read_changes_only_there() -> None:
    """For members, texts and numbers of any kind in front of it and behind it."""
    draw = random.Random(7)
    texts = ["", "model", '"', "\\", "ä€😀", "\n", "{", "}", "a" * 70]
    for _ in range(500):
        fields = [
            (draw.choice(texts) + str(n), draw.choice([*texts, 1.5, [texts, {"model": 1}]])) for n in range(6)
        ]
        fields.insert(draw.randrange(7), ("model", "alias"))
        body = json.dumps(
            dict(fields), ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 2])
        ).encode()
        name = draw.choice(texts)
        member = model_member(body)
        assert member is not None
        assert json.loads(member.replaced(body, name)) == {**dict(fields), "model": name}
