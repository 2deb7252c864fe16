"""What one engine has stored is asked of that engine, through the real Envoy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.envoy.conftest import eventually
from tests.envoy.storing import Storing, behind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.envoy.storing import Door

pytestmark = pytest.mark.io

CALLS = 12


@pytest_asyncio.fixture(loop_scope="session")
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with behind(tmp_path, Storing()) as door:
        yield door


async def test_every_request_reaches_a_stored_response(door: Door) -> None:
    """Follow-ups by body, then GET, cancel without a body and DELETE, each at the engine that has it."""
    for number in range(CALLS):
        body = {"model": "m", "input": f"{number} " + "word " * 20}
        first = await door.makes("/v1/responses", body)
        then = await door.makes("/v1/responses", {**body, "previous_response_id": first})
        assert door.reason == "stored"
        for name in (first, then):
            statuses = [
                (await door.call("GET", f"/v1/responses/{name}?include=x"))[0],
                (await door.call("POST", f"/v1/responses/{name}/cancel"))[0],
                (await door.call("POST", f"/v1/responses/{name}/cancel", {}))[0],
                (await door.call("DELETE", f"/v1/responses/{name}"))[0],
            ]
            assert (statuses, door.reason) == ([200] * 4, "stored")


async def test_requests_reach_conversations_and_files(door: Door) -> None:
    for number in range(CALLS):
        conversation = await door.makes("/v1/conversations", {"metadata": {}})
        file = await door.makes("/v1/files", data={"file": f"{number}"})
        prompt = {"model": "m", "input": "And then?"}
        assert (await door.call("POST", "/v1/responses", {**prompt, "conversation": conversation}))[0] == 200
        assert (await door.call("POST", "/v1/batches", {"input_file_id": file}))[0] == 200
        part = {"type": "input_file", "file_id": file}
        assert (await door.call("POST", "/v1/responses", {**prompt, "parts": [part]}))[0] == 200
        assert (await door.call("GET", f"/v1/files/{file}/content"))[0] == 200
        items = {"items": [{"type": "message", "role": "user", "content": "x"}]}
        assert (await door.call("POST", f"/v1/conversations/{conversation}/items", items))[0] == 200


async def test_the_first_event_of_a_stream_gives_its_name(door: Door) -> None:
    """Its name is known while it goes on, and the rest of it is neither shown nor changed."""
    async with door.site.client.post(
        f"http://{door.site.addresses['chat']}/v1/responses",
        json={"model": "m", "input": "x", "stream": True},
    ) as response:
        begun = await response.content.readuntil(b"\n\n")
        await door.knows()
        (name,) = door.engines.made
        assert (await door.call("GET", f"/v1/responses/{name}"))[0] == 200
        door.engines.release.set()
        rest = await response.content.read()
    assert begun.startswith(b"event: response.created")
    assert rest == b"".join(b"data: %d %b\n\n" % (number, b"x" * 4000) for number in range(200))
    await eventually(lambda: door.site.ext_proc._processor.streams == 0, "streams end")


async def test_an_unknown_name_goes_by_weights_and_is_counted(door: Door) -> None:
    served = set()
    for _ in range(4 * CALLS):
        status, _ = await door.call("GET", "/v1/responses/resp_9999")
        served.add(status)
        assert door.reason == "no_body"
    assert served == {404}
