"""`/v1/realtime` as far as a proxy notices it: a WebSocket that answers each message with tokens.

A text message `{"number": 7, "text": "hello", "tokens": 3}` runs through the engine as a prompt and is
answered by messages `{"number": 7, "from": 0, "text": "..."}` as tokens come, `from` counted in tokens, and
then by `{"number": 7, "done": true, "tokens": 3}`. Every other message, text or binary, comes back as it is.
What the model says is what it says to a completion of the same prompt, so a client can tell a lost or doubled
piece.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from aiohttp import WSMsgType, web

from warmroute.simulator.connection import HEADER_ENGINE
from warmroute.simulator.model import Request
from warmroute.simulator.protocol import BadRequestError
from warmroute.simulator.tokens import BYTES_PER_TOKEN, block_chain, count_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from warmroute.simulator.driver import EngineDriver
    from warmroute.simulator.tokens import Speaker

    Say = Callable[[str, int], AsyncIterator[str]]
    """Turns a prompt and a number of tokens into the pieces of an answer."""

MOST_TOKENS: Final = 65_536
_UPGRADE_REQUIRED: Final = 426


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """One message that wants tokens."""

    number: int
    text: str = ""
    tokens: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)] = 1


_decode_ask: Final = msgspec.json.Decoder(Ask).decode


async def open_socket(request: web.BaseRequest, address: str) -> web.WebSocketResponse:
    """Answer a handshake.

    Raises:
        BadRequestError: it is none.
    """
    socket = web.WebSocketResponse()
    if not socket.can_prepare(request):
        raise BadRequestError("/v1/realtime speaks WebSocket only", _UPGRADE_REQUIRED)
    socket.headers[HEADER_ENGINE] = address
    await socket.prepare(request)
    return socket


async def converse(socket: web.WebSocketResponse, say: Say) -> None:
    """Answer messages in their order until the peer closes."""
    async for message in socket:
        if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            break
        if message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
        else:
            await _answer(socket, message.data, say)


async def say(
    driver: EngineDriver, speaker: Speaker, block_tokens: int, text: str, tokens: int
) -> AsyncIterator[str]:
    """Run a prompt through the engine.

    Raises:
        DroppedError: the engine restarted meanwhile.
    """
    prompt = text.encode("utf-8", "surrogatepass")
    answer = speaker.answer(prompt, tokens)
    chain = block_chain(prompt + answer.encode(), block_tokens)
    await driver.thawed()
    stream = driver.submit(Request(count_tokens(prompt), tokens, chain))
    sent = 0
    try:
        while not stream.done or sent < len(answer):
            end = sent + BYTES_PER_TOKEN * await stream.more()
            if end > sent:
                yield answer[sent:end]
            sent = end
    finally:
        driver.release(stream)


async def _answer(socket: web.WebSocketResponse, text: str, say: Say) -> None:
    try:
        ask = _decode_ask(text)
    except msgspec.DecodeError:
        await socket.send_str(text)
        return
    sent = 0
    if ask.tokens:
        async for piece in say(ask.text, ask.tokens):
            await socket.send_str(json.dumps({"number": ask.number, "from": sent, "text": piece}))
            sent += len(piece) // BYTES_PER_TOKEN
    await socket.send_str(json.dumps({"number": ask.number, "done": True, "tokens": sent}))
