"""Requests with nothing in them that could be read: they wait for nobody, and pass as they are."""

from __future__ import annotations

import hashlib
import io
import os
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.envoy.foreign import DUPLEX, MODES, Foreign, Way, foreign

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envoy.conftest import World

SOUND = os.urandom(1 << 20) * 30
"""30 MB, as of an hour of speech."""
WHOLE_BYTES = 700_000
"""What Envoy's own buffer takes in the modes that wait for a whole body."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world_of_modes() -> AsyncIterator[Foreign]:
    async with foreign([Way(mode, mode, allow=False) for mode in MODES]) as made:
        yield made


FORM = {"content-type": "multipart/form-data; boundary=b0undary"}


def form(sound: bytes) -> bytes:
    """An upload for transcription; the model stands behind the file."""
    start = (
        b'--b0undary\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n'
        b"content-type: audio/wav\r\n\r\n"
    )
    end = (
        b'\r\n--b0undary\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--b0undary--\r\n'
    )
    return start + sound + end


async def test_an_upload_in_many_parts_passes_by_us(world: World) -> None:
    body = form(SOUND)
    path = "/v1/audio/transcriptions"
    answer = await world.request("POST", path=path, data=io.BytesIO(body), headers=FORM)
    assert (answer.status, answer.seen["sha256"]) == (200, hashlib.sha256(body).hexdigest())
    assert answer.upstream("content-type") == [FORM["content-type"]]
    assert world.ext_proc.messages == []


@pytest.mark.parametrize("mode", MODES)
async def test_an_upload_passes_in_every_mode(world_of_modes: Foreign, mode: str) -> None:
    """Also where the whole body goes through ext_proc: it comes out as it went in, and nobody parses it."""
    body = form(SOUND if mode in {"NONE", "STREAMED", DUPLEX} else SOUND[:WHOLE_BYTES])
    url = world_of_modes.url(mode, "/v1/audio/transcriptions")
    async with world_of_modes.http.post(url, data=io.BytesIO(body), headers=FORM) as response:
        seen = await response.json()
    assert (response.status, seen["sha256"]) == (200, hashlib.sha256(body).hexdigest())
    assert await world_of_modes.stat(mode, "message_timeouts") == 0
    assert await world_of_modes.stat(mode, "streams_failed") == 0


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("GET", {}),
    ("HEAD", {}),
    ("OPTIONS", {}),
    ("DELETE", {}),
    ("POST", {"data": b"", "headers": {"content-type": "application/json"}}),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("method", "options"), REQUESTS, ids=[method for method, _ in REQUESTS])
async def test_who_sends_no_body_is_answered_at_the_headers(
    world_of_modes: Foreign, mode: str, method: str, options: dict[str, Any]
) -> None:
    """One message, one reply, and no waiting for a body that does not come."""
    before = {name: await world_of_modes.stat(mode, name) for name in ("stream_msgs_sent", "streams_failed")}
    url = world_of_modes.url(mode, "/v1/models")
    async with world_of_modes.http.request(method, url, **options) as response:
        assert response.status == 200
    assert await world_of_modes.stat(mode, "stream_msgs_sent") == before["stream_msgs_sent"] + 1
    assert await world_of_modes.stat(mode, "streams_failed") == before["streams_failed"]
    assert await world_of_modes.stat(mode, "message_timeouts") == 0
