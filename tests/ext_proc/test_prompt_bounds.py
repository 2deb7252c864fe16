"""What leads a prompt, keeps prompts apart or stands beside one is decoded up to a number of values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ext_proc.prompt import cut, envelope, prompts, text
from ext_proc.prompt.decode import Prompt, Unreadable
from ext_proc.prompt.envelope import LEADS
from ext_proc.prompt.outline import MAX_VALUES
from tests.ext_proc.worlds import read_prompt

MANY = 3 * MAX_VALUES
NAMES = sorted({*LEADS} - {"prompt"})


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return what is decoded or written anew, as it comes."""
    inputs: list[bytes] = []
    for module in (cut, envelope, prompts):
        for name in ("canonical", "elements_of", "members_of"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, _recorded(getattr(text, name), inputs))
    return inputs


def _recorded(work: Any, inputs: list[bytes]) -> Any:
    def record(raw: Any) -> Any:
        inputs.append(bytes(raw))
        return work(raw)

    return record


def _read(body: dict[str, Any]) -> Prompt | Unreadable:
    return read_prompt(json.dumps(body).encode(), complete=True)


def _commas(decoded: list[bytes]) -> int:
    return max((raw.count(b",") for raw in decoded), default=0)


@pytest.mark.parametrize("name", NAMES)
def test_lead_with_many_values_counts_whole_decoded_in_part(name: str, decoded: list[bytes]) -> None:
    one, same, other = (_read({"text_input": "x", name: [0] * MANY + [last]}) for last in (1, 1, 2))

    assert isinstance(one, Prompt)
    assert isinstance(other, Prompt)
    assert one == same
    assert one.text != other.text
    assert len(one.text) > MANY
    assert 0 < _commas(decoded) <= MAX_VALUES


def test_prompt_object_with_many_values_is_wrong_shape(decoded: list[bytes]) -> None:
    prompt = {"prompt_string": "x", "multimodal_data": [0] * MANY}

    assert _read({"prompt": prompt}) is Unreadable.WRONG_SHAPE
    assert decoded == []


def test_images_fill_at_most_half_of_the_hashed_text() -> None:
    read = _read({"prompt": {"prompt_string": "x", "multimodal_data": ["a"] * 4000}})

    assert isinstance(read, Prompt)
    assert read.text.endswith(b"x")
    assert 100 * text.MEDIA_BYTES < len(read.text) < text.MAX_MEDIA * text.MEDIA_BYTES


@pytest.mark.parametrize(("name", "field"), [("extra_key", "salt"), ("lora", "adapter")])
@pytest.mark.parametrize("shape", [lambda last: [0] * MANY + [last], lambda last: "a" * MANY + str(last)])
def test_long_salt_and_adapter_count_as_digests(
    name: str, field: str, shape: Any, decoded: list[bytes]
) -> None:
    one, same, other = (_read({"prompt": "x", name: shape(last)}) for last in (1, 1, 2))

    assert getattr(one, field) == getattr(same, field) != getattr(other, field)
    assert len(getattr(one, field)) < 100
    assert decoded == []
