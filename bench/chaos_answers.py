"""Answers of simulated engines, checked to their last token and message."""

from __future__ import annotations

import json
from typing import Final

import aiohttp

from warmroute.simulator.tokens import BYTES_PER_TOKEN

PATIENCE_SECONDS: Final = 30.0
"""A request, a silence in a stream or a message that takes longer has failed."""


class BrokenError(Exception):
    """An answer is not what it must be."""


def text_of_stream(received: bytes | bytearray) -> str:
    """The text of a whole token stream.

    Raises:
        BrokenError: its end is missing, or something stands behind it.
    """
    events = received.decode().split("\n\n")
    if events[-2:] != ["data: [DONE]", ""] or events.count("data: [DONE]") != 1:
        raise BrokenError(f"stream without its end after {len(received)} bytes")
    text = ""
    for event in events[:-2]:
        for choice in json.loads(event.removeprefix("data: "))["choices"]:
            text += choice["delta"].get("content", "")
    return text


async def answer_in(socket: aiohttp.ClientWebSocketResponse, number: int) -> str:
    """The text of one answer, whose messages must come in order and once."""
    text = ""
    while True:
        message = await socket.receive(timeout=PATIENCE_SECONDS)
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise BrokenError(f"WebSocket ended with {_ending(socket, message)} before answer {number}")
        part = json.loads(message.data)
        if part["number"] != number:
            raise BrokenError(f"answer {part['number']} of a WebSocket came in place of {number}")
        if part.get("done"):
            return text
        if part["from"] * BYTES_PER_TOKEN != len(text):
            raise BrokenError(f"a WebSocket's answer went on at token {part['from']} in place of its next")
        text += part["text"]


async def close(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Close, and hear the same from the other side, with nothing before it.

    aiohttp's own `close` throws away what comes before the other side's word, and with it a message too many.
    """
    await socket._writer.close(aiohttp.WSCloseCode.OK)
    message = await socket.receive(timeout=PATIENCE_SECONDS)
    if message.type is aiohttp.WSMsgType.TEXT:
        raise BrokenError("a WebSocket's message came twice")
    if message.type is not aiohttp.WSMsgType.CLOSE or message.data != aiohttp.WSCloseCode.OK:
        raise BrokenError(f"WebSocket closed with {_ending(socket, message)}")


def _ending(socket: aiohttp.ClientWebSocketResponse, message: aiohttp.WSMessage) -> str:
    return f"{message.type.name} {message.data if message.data is not None else socket.close_code}"


def check_status(status: int, text: bytes | bytearray) -> None:
    """Nothing but 200 will do."""
    if status != 200:
        raise BrokenError(f"status {status}: {bytes(text[:120]).decode(errors='replace')}")


def check_text(received: str, said: str) -> None:
    """Compare what came with what the engine says."""
    if received != said:
        came, expected = len(received) // BYTES_PER_TOKEN, len(said) // BYTES_PER_TOKEN
        raise BrokenError(f"{came} tokens in place of {expected}, or others")
