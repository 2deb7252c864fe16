"""Mixed traffic that notices everything: JSON answers, token streams and WebSockets, each checked to its end.

Every answer is compared with what the model says to its prompt, so a lost, doubled or foreign token counts as
a failure just as an error does. Nothing is sent twice: what fails, fails.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import aiohttp

from bench.chaos_answers import (
    PATIENCE_SECONDS,
    BrokenError,
    answer_in,
    check_status,
    check_text,
    close,
    text_of_stream,
)
from fleet.names import HEADER_SERVED
from warmroute.demo.load import ENGINE_HEADER
from warmroute.simulator.tokens import Speaker, render_chat

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

Kind = Literal["json", "stream", "websocket"]
KINDS: Final[tuple[Kind, ...]] = ("json", "stream", "websocket")
_SHARES: Final = (0.88, 0.08, 0.04)
_FRESH_SHARE: Final = 0.1
"""Of the JSON requests, those on a connection of their own: they see the handshake too."""
_JSON_TOKENS: Final = 4
_STREAM_TOKENS: Final = (25, 180)
_MESSAGES: Final = (6, 30)
_MESSAGE_TOKENS: Final = 2
_PATH: Final = "/v1/chat/completions"
_PROMPTS: Final = 400


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. Times are seconds from the start of the run."""

    kind: Kind
    at_seconds: float
    """Planned start."""
    ended_seconds: float
    failure: str | None
    served: str | None
    """The engine that answered, or that Envoy chose."""
    first_seconds: float | None
    """From the planned start to the JSON answer, a stream's first bytes, or the end of a handshake."""
    silence_seconds: float | None
    """The longest silence in a stream, or the longest time that a WebSocket's message took."""
    late_seconds: float = 0.0
    """By how much the client itself was late to send: on a starved host all else is late as well."""


class _Request:
    """One under way."""

    def __init__(self, kind: Kind, planned_at: float, clock: Callable[[], float]) -> None:
        self.kind: Kind = kind
        self.planned_at = planned_at
        self.served: str | None = None
        self.first: float | None = None
        self.silence: float | None = None
        self._clock = clock
        self._last = clock()
        self._late = self._last - planned_at

    def began(self, headers: Mapping[str, str]) -> None:
        """Take the serving engine from its own header or Envoy's."""
        named = headers.get(ENGINE_HEADER) or headers.get(HEADER_SERVED)
        self.served = None if named in (None, "", "-") else named

    def mark(self) -> None:
        """Restart the timer: a new wait starts now."""
        self._last = self._clock()

    def progressed(self) -> None:
        """Note the arrival of data."""
        now = self._clock()
        if self.first is None:
            self.first = now - self.planned_at
        else:
            self.silence = max(self.silence or 0.0, now - self._last)
        self._last = now

    def outcome(self, began_at: float, failure: str | None) -> Outcome:
        """What became of it, now that it has ended."""
        return Outcome(
            kind=self.kind,
            at_seconds=self.planned_at - began_at,
            ended_seconds=self._clock() - began_at,
            failure=failure,
            served=self.served,
            first_seconds=self.first,
            silence_seconds=self.silence,
            late_seconds=self._late,
        )


class Traffic:
    """Sends an even mix, open loop. `outcomes` and `open` change while it runs."""

    def __init__(
        self,
        url: str,
        model: str,
        context: ssl.SSLContext,
        *,
        rate: float,
        seed: int,
        clock: Callable[[], float],
        pace_seconds: float = 0.25,
    ) -> None:
        """`rate` is in requests a second, `pace_seconds` from a WebSocket's answer to its next message."""
        self.outcomes: list[Outcome] = []
        self.open: set[_Request] = set()
        self._url = url
        self._model = model
        self._context = context
        self._rate = rate
        self._random = random.Random(seed)
        self._clock = clock
        self._pace_seconds = pace_seconds
        self._began_at = clock()
        self._stopped = False
        self._speaker = Speaker()
        words = [f"word{number}" for number in range(500)]
        self._prompts = [" ".join(self._random.choices(words, k=12)) for _ in range(_PROMPTS)]

    @property
    def elapsed_seconds(self) -> float:
        """Since the start of the run."""
        return self._clock() - self._began_at

    def stop(self) -> None:
        """Send nothing more; what is under way runs to its end."""
        self._stopped = True

    def open_on(self, address: str) -> int:
        """Return the number of requests that an engine is answering."""
        return sum(request.served == address for request in self.open)

    async def run(self) -> None:
        """Send until `stop`, and return when all has ended."""
        self._began_at = self._clock()
        kept = aiohttp.TCPConnector(limit=0, ssl=self._context)
        fresh = aiohttp.TCPConnector(limit=0, ssl=self._context, force_close=True)
        patience = aiohttp.ClientTimeout(total=None, sock_read=PATIENCE_SECONDS, connect=PATIENCE_SECONDS)
        async with (
            aiohttp.ClientSession(connector=kept, timeout=patience) as keeping,
            aiohttp.ClientSession(connector=fresh, timeout=patience) as closing,
            asyncio.TaskGroup() as group,
        ):
            for session in (keeping, closing):
                # aiohttp would repeat a handshake after a broken connection, unnoticed by the bench.
                session._retry_connection = False
            number = 0
            while not self._stopped:
                delay = number / self._rate - self.elapsed_seconds
                if delay > 0:
                    await asyncio.sleep(delay)
                    continue
                kind = self._random.choices(KINDS, _SHARES)[0]
                new = kind == "websocket" or (kind == "json" and self._random.random() < _FRESH_SHARE)
                request = _Request(kind, self._began_at + number / self._rate, self._clock)
                group.create_task(self._one(request, closing if new else keeping))
                number += 1

    async def _one(self, request: _Request, session: aiohttp.ClientSession) -> None:
        failure: str | None = None
        self.open.add(request)
        try:
            if request.kind == "json":
                await self._json(request, session)
            elif request.kind == "stream":
                await self._stream(request, session)
            else:
                await self._websocket(request, session)
        except BrokenError as error:
            failure = str(error)
        except aiohttp.WSServerHandshakeError as error:
            request.began(error.headers or {})
            failure = f"status {error.status} to a handshake"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            failure = f"{type(error).__name__}: {error}"
        finally:
            self.open.discard(request)
        self.outcomes.append(request.outcome(self._began_at, failure))

    def _ask(self, tokens: int, *, stream: bool) -> tuple[dict[str, Any], str]:
        """A body, and what the model says to it."""
        prompt = self._random.choice(self._prompts)
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "stream": stream,
        }
        return body, self._speaker.answer(render_chat([("user", prompt)]), tokens)

    async def _json(self, request: _Request, session: aiohttp.ClientSession) -> None:
        body, said = self._ask(_JSON_TOKENS, stream=False)
        async with asyncio.timeout(PATIENCE_SECONDS), session.post(self._url + _PATH, json=body) as response:
            request.began(response.headers)
            text = await response.read()
            request.progressed()
        check_status(response.status, text)
        answer = json.loads(text)["choices"][0]["message"]["content"]
        check_text(answer, said)

    async def _stream(self, request: _Request, session: aiohttp.ClientSession) -> None:
        body, said = self._ask(self._random.randint(*_STREAM_TOKENS), stream=True)
        received = bytearray()
        async with session.post(self._url + _PATH, json=body) as response:
            request.began(response.headers)
            async for piece in response.content.iter_any():
                request.progressed()
                received += piece
        check_status(response.status, received)
        answer = text_of_stream(received)
        check_text(answer, said)

    async def _websocket(self, request: _Request, session: aiohttp.ClientSession) -> None:
        url = f"{self._url}/v1/realtime"
        async with session.ws_connect(url, autoclose=False) as socket:
            request.began(socket._response.headers)
            request.progressed()
            for number in range(self._random.randint(*_MESSAGES)):
                prompt = self._random.choice(self._prompts)
                request.mark()
                await socket.send_json({"number": number, "text": prompt, "tokens": _MESSAGE_TOKENS})
                answer = await answer_in(socket, number)
                request.progressed()
                said = self._speaker.answer(prompt.encode(), _MESSAGE_TOKENS)
                check_text(answer, said)
                await asyncio.sleep(self._pace_seconds)
            await close(socket)
