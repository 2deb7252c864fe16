"""Envoy gets a prompt's length and prefixes only while requests are recorded."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider

from ext_proc.idempotency.guard import Idempotency
from ext_proc.processor import ExternalProcessor, RequestStream
from fleet.names import METADATA_BLOCKS
from fleet.recorded_prompt import decode
from tests.ext_proc.fake_envoy import answer, body_message, with_mode
from tests.ext_proc.worlds import Clock, World, chat, pool_of, settings_with, view_of


def metadata_of(processor: ExternalProcessor, body: bytes) -> dict[str, str]:
    stream = RequestStream(processor)
    (reply,) = answer(stream, with_mode(body_message(body, end_of_stream=True), "BUFFERED"))
    stream.close()
    fields = reply.dynamic_metadata.fields["warmroute"].struct_value.fields
    return {name: value.string_value for name, value in fields.items()}


def test_prompt_travels_only_while_recorded() -> None:
    world = World(view_of(pool_of(count=2)))
    keys = Idempotency(world.settings, world.registry, Clock(), "alone")
    tracer = TracerProvider().get_tracer("test")
    processor = ExternalProcessor(world.director, keys, tracer, world.registry, clock=Clock())
    first, second = chat("word " * 2000), chat("word " * 2000 + "and more " * 500)
    assert METADATA_BLOCKS not in metadata_of(processor, first)
    processor.reconfigure(settings_with(recording={"directory": "/var/lib/recording"}))
    size, runs = decode(metadata_of(processor, first)[METADATA_BLOCKS])
    longer, more = decode(metadata_of(processor, second)[METADATA_BLOCKS])
    assert 10_000 <= size < longer
    assert len(runs) == size // 2048
    assert more[:4] == runs
    assert len(more) == longer // 2048
    assert METADATA_BLOCKS not in metadata_of(processor, b"{}"), "no prompt was read"
