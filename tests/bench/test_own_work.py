"""The messages of `bench.own_work` are those of the real Envoy."""

from __future__ import annotations

import random

from bench import own_work
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

ENVOY = (
    b'"@\n<{"model":"m","messages":[{"role":"user","content":"hello"}]}'
    b"\x10\x01B\x00J\xaa\x02\n\x1benvoy.filters.http.ext_proc\x12\x8a\x02\n4\n\nrequest.id\x12&\x1a$520263d"
    b"9-2517-487b-a11f-b0f12e15b1ef\nZ\nTsize(request.headers) > 80 || r"
    b"equest.total_size - request.size > 57344 ? 'yes' : ''\x12\x02\x1a\x00\n5\n\x1freq"
    b"uest.headers['content-type']\x12\x12\x1a\x10application/json\n\x17\n\x10xds.cluster_"
    b"name\x12\x03\x1a\x01p\n&\n\x0crequest.path\x12\x16\x1a\x14/v1/chat/completionsZ\x02\x08\x02"
)
"""One message of Envoy 1.40 by the configuration of a pool and a listener."""


def test_messages_equal_those_of_envoy() -> None:
    real = pb.ProcessingRequest.FromString(ENVOY)
    made = pb.ProcessingRequest.FromString(own_work.message_of(real.request_body.body, random.Random(7)))
    for each in (real, made):
        each.attributes["envoy.filters.http.ext_proc"].fields["request.id"].string_value = ""
    assert made == real
    assert len(ENVOY) == len(own_work.message_of(real.request_body.body, random.Random(7)))


def test_every_part_of_own_work_is_timed() -> None:
    worker, messages = own_work.Worker(4), own_work.Messages(4096)
    worker.advance()
    assert worker.serve(messages.message())
    figures = own_work.parts(worker, messages, 40)
    assert all(figures[part] > 0 for part in own_work.PARTS)
