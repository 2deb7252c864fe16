"""The official OpenAI and Anthropic clients: conversations, streams, and agents that send images.

`bench.clients` runs this file in an environment of its own: it imports nothing of the repository. Each
exchange is a line of JSON on standard output.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import sys
from typing import Any

import anthropic
import openai

MODEL = "m"
SYSTEM = " ".join(
    random.Random(1).choices(
        ["alpha", "river", "stone", "window", "cloud", "market", "engine", "paper"], k=6000
    )
)
TOOL = {"type": "object", "properties": {"path": {"type": "string"}}}
TURNS = 8
AGENT_TURNS = 20
IMAGE_BYTES = 80_000


def report(client: str, turn: int, response: Any) -> None:
    """Print an exchange."""
    body = response.request.content
    exchange = {
        "client": client,
        "turn": turn,
        "status": response.status_code,
        "sent": hashlib.sha256(body).hexdigest(),
        "bytes": len(body),
        "headers": dict(response.headers),
    }
    print(json.dumps(exchange), flush=True)


class Recorder:
    """Names the exchanges of one conversation."""

    def __init__(self, name: str) -> None:
        self.name, self.turn = name, 0

    def __call__(self, response: Any) -> None:
        """Print one."""
        self.turn += 1
        report(self.name, self.turn, response)

    def http_client(self, library: Any) -> Any:
        """Return a library's own HTTP client with this hook."""
        return library.DefaultHttpxClient(event_hooks={"response": [self]})


def image(turn: int) -> str:
    """Return a turn's picture in base64."""
    return base64.b64encode(random.Random(turn).randbytes(IMAGE_BYTES)).decode()


def openai_client(name: str, url: str) -> openai.OpenAI:
    """Return a client whose exchanges are printed."""
    return openai.OpenAI(
        base_url=f"{url}/v1", api_key="x", max_retries=0, http_client=Recorder(name).http_client(openai)
    )


def anthropic_client(name: str, url: str) -> anthropic.Anthropic:
    """Return a client whose exchanges are printed."""
    http_client = Recorder(name).http_client(anthropic)
    return anthropic.Anthropic(base_url=url, api_key="x", max_retries=0, http_client=http_client)


def openai_chat(url: str, name: str, turns: int, *, images: bool, stream: bool) -> None:
    """Hold a conversation by chat completions."""
    client = openai_client(name, url)
    messages: list[Any] = [{"role": "system", "content": SYSTEM + name}]
    for turn in range(turns):
        content: list[Any] = [{"type": "text", "text": f"This is turn {turn}."}]
        if images:
            picture = {"url": f"data:image/png;base64,{image(turn)}"}
            content.append({"type": "image_url", "image_url": picture})
        messages.append({"role": "user", "content": content})
        tools: Any = [{"type": "function", "function": {"name": "read", "parameters": TOOL}}]
        answer: Any = client.chat.completions.create(
            model=MODEL, messages=messages, tools=tools, stream=stream
        )
        if stream:
            list(answer)
        messages.append({"role": "assistant", "content": "ok"})


def openai_responses(url: str) -> None:
    """Hold a conversation by the Responses API."""
    client = openai_client("openai-responses", url)
    entries: list[Any] = []
    for turn in range(TURNS):
        entries.append({"role": "user", "content": f"This is turn {turn}."})
        client.responses.create(model=MODEL, instructions=SYSTEM, input=entries)
        entries.append({"role": "assistant", "content": "ok"})


def anthropic_messages(url: str, name: str, turns: int, *, images: bool, stream: bool) -> None:
    """Hold a conversation by messages."""
    client = anthropic_client(name, url)
    messages: list[Any] = []
    for turn in range(turns):
        content: list[Any] = [{"type": "text", "text": f"This is turn {turn}."}]
        if images:
            source = {"type": "base64", "media_type": "image/png", "data": image(turn)}
            content.append({"type": "image", "source": source})
        messages.append({"role": "user", "content": content})
        tools: Any = [{"name": "read", "input_schema": TOOL}]
        answer: Any = client.messages.create(
            model=MODEL, max_tokens=99, system=SYSTEM + name, messages=messages, tools=tools, stream=stream
        )
        if stream:
            list(answer)
        messages.append({"role": "assistant", "content": "ok"})


def main(url: str) -> None:
    """Run all conversations."""
    openai_chat(url, "openai-chat", TURNS, images=False, stream=False)
    openai_chat(url, "openai-stream", TURNS, images=False, stream=True)
    openai_responses(url)
    anthropic_messages(url, "anthropic", TURNS, images=False, stream=False)
    anthropic_messages(url, "anthropic-stream", TURNS, images=False, stream=True)
    openai_chat(url, "openai-agent", AGENT_TURNS, images=True, stream=False)
    anthropic_messages(url, "anthropic-agent", AGENT_TURNS, images=True, stream=False)


if __name__ == "__main__":
    main(sys.argv[1])
