"""Names of stored state: in paths, in bodies, and at the head of answers."""

from __future__ import annotations

import gzip
import json

import pytest

from ext_proc.prompt.decode import BodyReader
from ext_proc.prompt.stored import HEAD_BYTES, files_in_body, name_in_answer, name_in_path, names_in_body
from ext_proc.protocol.answer import AnswerHead
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import EXT_PROC_FILTER

EVENT = b"event: response.created\ndata: "


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/responses/resp_12", "resp_12"),
        ("/v1/responses/resp_12/cancel?x=1", "resp_12"),
        ("/openai/v1/conversations/conv_1/items/msg_2", "conv_1"),
        ("/v1/files/file-3/content", "file-3"),
        ("/v1/responses/compact", ""),
        ("/v1/responses", ""),
        ("/v1/chat/completions?next=/v1/files/file-3", ""),
    ],
)
def test_names_in_paths(path: str, name: str) -> None:
    assert name_in_path(path) == name


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'{"id":"resp_1","output":[]}', "resp_1"),
        (b' {"object": "response", "id": "resp_1", "outp', "resp_1"),
        (b'{"id":"resp_', None),
        (b'{"o', None),
        (b'{"error":{"id":"x1"}}', ""),
        (b'{"error":{"id":"x1"', None),
        (b'{"id":5}', ""),
        (EVENT + b'{"response":{"id":"resp_2","outp', "resp_2"),
        (EVENT + b'{"response":{"id":"resp_2","tool":{"id":"x"}},"type":"y"}\n\nevent: z', "resp_2"),
        (b'data: {"type":"response.created","response":{"object":"response","id":"resp_2"', "resp_2"),
        (EVENT[:9], None),
        (b": ping\n\n" + EVENT + b'{"response":{"id":"resp_2"}}\n\n', "resp_2"),
        (b'data: "id"\n\n', ""),
        (b"", None),
    ],
)
def test_names_at_the_head_of_answers(head: bytes, name: str | None) -> None:
    """None: it may follow; empty: there is none."""
    assert name_in_answer(head) == name


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"previous_response_id": "resp_1"}, ["resp_1"]),
        ({"previous_response_id": None, "conversation": "conv_1"}, ["conv_1"]),
        ({"conversation": {"id": "conv_1"}}, ["conv_1"]),
        ({"conversation": {"id": None}}, []),
        ({"previous_response_id": 7, "conversation": [1]}, []),
        ({"metadata": {"previous_response_id": "resp_1"}}, []),
    ],
)
def test_names_in_bodies(body: dict[str, object], names: list[str]) -> None:
    parsed = BodyReader().read(json.dumps({"input": "x", **body}).encode(), complete=True)
    assert parsed.envelope is not None
    assert names_in_body(parsed.envelope) == names


def test_files_are_members_and_no_text() -> None:
    parts = [
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_text", "text": json.dumps({"file_id": "file-2"})},
        {"type": "file", "file": {"file_id": "file-3"}},
    ]
    assert files_in_body(json.dumps({"input": parts, "input_file_id": "file-4"}).encode()) == [
        "file-1",
        "file-3",
        "file-4",
    ]


def copy(
    body: bytes, *, first: bool, status: int = 200, end: bool = False, coding: str = ""
) -> pb.ProcessingRequest:
    message = pb.ProcessingRequest(observability_mode=True)
    message.response_body.body, message.response_body.end_of_stream = body, end
    if first:
        fields = message.attributes[EXT_PROC_FILTER].fields
        fields["upstream.address"].string_value = "10.0.0.1:80"
        fields["response.code"].number_value = status
        if coding:
            fields["response.headers['content-encoding']"].string_value = coding
    return message


def read(*parts: bytes, ends: bool = True, **more: object) -> AnswerHead:
    head = AnswerHead()
    for number, part in enumerate(parts):
        head.take(copy(part, first=not number, end=ends and number == len(parts) - 1, **more))  # type: ignore[arg-type]
    return head


def test_an_answer_may_come_in_pieces_and_compressed() -> None:
    whole = b'{"id":"resp_1","output":[]}'
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    for head in (read(*pieces, ends=False), read(gzip.compress(whole), coding="gzip")):
        assert (head.name, head.address, head.done) == ("resp_1", "10.0.0.1:80", True)


@pytest.mark.parametrize(
    "head",
    [
        read(b'{"id":"resp_1"}', status=404),
        read(b'{"id":"resp_1"}', coding="unknown"),
        read(b"no JSON"),
        read(b'{"text":"' + b"x" * HEAD_BYTES, b'","id":"resp_1"}', ends=False),
    ],
    ids=["refused", "coding", "text", "late"],
)
def test_answers_without_a_name_end_the_look(head: AnswerHead) -> None:
    assert (head.name, head.done) == ("", True)


def test_name_of_broken_bytes_is_none() -> None:
    assert name_in_answer(b'{"id": "resp_\xff1"}') == ""
