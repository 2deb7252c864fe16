"""The step between reading and picking: the pool, the name there, and what Envoy gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ext_proc.model_choice import ModelChoice
from ext_proc.prompt.decode import BodyReader
from ext_proc.protocol.attributes import LISTENER
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import parse_settings
from fleet.store import FleetStore, FleetView
from tests.ext_proc.worlds import chat, http_request

SETTINGS = """
pools:
  - {name: a, models: [m], endpoints: [{address: "10.0.0.1:80"}]}
  - {name: b, models: [n], aliases: {gpt: n}, endpoints: [{address: "10.0.0.2:80"}]}
listeners:
  - {name: l, address: "127.0.0.1:9000", pools: [a, b]}
  - {name: strict, address: "127.0.0.1:9001", pools: [a, b], unknown_models: refuse}
  - {name: one, address: "127.0.0.1:9002", pool: a}
"""
VIEW = FleetView(
    Membership(
        (Pool("a", (Endpoint("10.0.0.1:80", "a", ("m",)),)), Pool("b", (Endpoint("10.0.0.2:80", "b"),)))
    )
)


def chosen(
    body: bytes,
    listener: str = "l",
    cluster: str = "a",
    *,
    cut: int | None = None,
    whole: bool = True,
    stored: str = "",
    **more: Any,
) -> Any:
    store = FleetStore()
    store.publish(VIEW)
    headers = {LISTENER: listener, **more.pop("headers", {})}
    request = http_request(body, cluster=cluster, headers=headers, **more)
    parsed = BodyReader().read(body[:cut], complete=cut is None, path=more.get("path", ""))
    choice = ModelChoice(store, parse_settings(SETTINGS, environ={}))
    return choice.choose(request, parsed, body if whole else None, stored)


def test_model_of_the_body_moves_the_request() -> None:
    made = chosen(chat("x", "n"))
    assert (made.request.cluster, made.metadata, made.body) == ("b", {"pool": "b"}, None)
    assert chosen(chat("x", "n"), cluster="b").metadata == {}
    assert chosen(chat("x", "m"), cluster="b").metadata == {"pool": "a"}


def test_alias_becomes_the_models_name() -> None:
    body = chat("gpt", "gpt")
    made = chosen(body)
    assert made.parsed.prompt.model == "n"
    assert json.loads(made.body) == {**json.loads(body), "model": "n"}
    assert made.metadata == {"pool": "b", "length": str(len(made.body))}


def test_alias_of_a_compressed_body_stays() -> None:
    made = chosen(chat("x", "gpt"), content_encoding="gzip")
    assert (made.body, made.metadata) == (None, {"pool": "b"})


def test_model_behind_the_leading_part_counts() -> None:
    body = b'{"messages":[{"role":"user","content":"' + b"x" * 5000 + b'"}],"model":"gpt"}'
    made = chosen(body, cut=1000)
    assert made.request.cluster == "b"
    assert made.body.endswith(b'"model":"n"}')


def test_leading_part_chooses_and_is_never_replaced() -> None:
    made = chosen(chat("x " * 5000, "gpt"), cut=1000, whole=False)
    assert (made.request.cluster, made.metadata, made.body) == ("b", {"pool": "b"}, None)
    assert made.parsed.prompt.model == "n"
    behind = b'{"messages":[{"role":"user","content":"' + b"x" * 5000 + b'"}],"model":"n"}'
    for cluster in ("a", "b"):
        made = chosen(behind, cluster=cluster, cut=1000, whole=False)
        assert (made.request.cluster, made.metadata) == (cluster, {})


def test_header_names_the_model_of_a_pick_where_no_body_does() -> None:
    """As for an adapter that some engines of the pool have."""
    behind = b'{"messages":[{"role":"user","content":"' + b"x" * 5000 + b'"}],"model":"n"}'
    for cluster, header, model in (("b", "gpt", "n"), ("a", "gpt", None), ("b", "nobody", None)):
        made = chosen(behind, cluster=cluster, cut=1000, whole=False, headers={"x-model": header})
        assert (made.request.cluster, made.parsed.prompt.model, made.metadata) == (cluster, model, {})


def test_stored_names_choose_their_endpoints_pool() -> None:
    for cluster in ("a", "b"):
        made = chosen(b"", cluster=cluster, stored="10.0.0.2:80", headers_only=True)
        assert (made.request.cluster, made.metadata) == ("b", {} if cluster == "b" else {"pool": "b"})
        for gone in ("", "10.0.0.9:80"):
            made = chosen(b"", cluster=cluster, stored=gone, headers_only=True)
            assert (made.request.cluster, made.metadata) == (cluster, {})


@pytest.mark.parametrize(
    "body", [b"audio", b'{"model":["n"]}', b'{"model":"a","model":"n","prompt":"x"}', b"[1]"]
)
def test_envoys_choice_stays_without_a_readable_model(body: bytes) -> None:
    for cluster in ("a", "b"):
        made = chosen(body, cluster=cluster)
        assert (made.request.cluster, made.metadata, made.body) == (cluster, {}, None)


def test_model_counts_without_a_prompt() -> None:
    assert chosen(b'{"model":"gpt","query":"x","documents":["y"]}', path="/v1/rerank").metadata["pool"] == "b"


def test_settings_refuse_models_of_no_pool() -> None:
    refused = chosen(chat("x", "nobody"), "strict").refusal
    assert refused is not None
    assert refused.status == 404
    assert chosen(chat("x", None), "strict").refusal is None
    assert chosen(chat("x", None), "strict", headers={"x-model": "m"}).refusal is None
    assert chosen(chat("x", None), "strict", headers={"x-model": "nobody"}).refusal is not None
    assert chosen(chat("x", "nobody")).refusal is None


def test_other_listeners_are_left_alone() -> None:
    made = chosen(chat("x", "n"), "one")
    assert (made.request.cluster, made.parsed.prompt.model, made.metadata) == ("a", "n", {})
