"""What counts in an engine's list of models."""

from __future__ import annotations

import json

import pytest

from xds_server.endpoints.model_list import models_of


@pytest.mark.parametrize(
    ("length", "tokens"), [(4096, 4096), (1, 1), (0, None), (-1, None), ("4096", None), (True, None)]
)
def test_only_positive_whole_numbers_are_lengths(length: object, tokens: int | None) -> None:
    models = models_of(json.dumps({"data": [{"id": "m", "max_model_len": length}, {"id": 3}, {}]}).encode())
    assert models is not None
    assert [(model.id, model.context_tokens) for model in models] == [("m", tokens)]
