"""Drives a workload through one address, open loop, and keeps the outcome of each request."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import msgspec

from fleet.names import HEADER_ENDPOINT, HEADER_SERVED
from warmroute.demo.http_client import ExchangeError, HttpClient, Response
from warmroute.demo.stats import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from warmroute.simulator.workload import Turn

ENGINE_HEADER: Final = "x-engine-address"
"""The engine's own address from the simulator; without it, Envoy's header counts."""
_PATH: Final = "/v1/chat/completions"
_STREAM_END: Final = b"data: [DONE]"


class _Details(msgspec.Struct):
    cached_tokens: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    usage: _Usage | None = None


_decode_chunk: Final = msgspec.json.Decoder(_Chunk).decode


class LoadRun:
    """One run of a workload against one address. `outcomes` grows while it runs."""

    def __init__(
        self,
        address: str,
        model: str,
        *,
        timeout_seconds: float = 60.0,
        headers: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outcomes: list[Outcome] = []
        self.started = 0
        self._client = HttpClient(address, clock)
        self._model = model
        self._timeout_seconds = timeout_seconds
        self._headers = headers
        self._clock = clock
        self._began_at: float | None = None
        self._stopped = False

    @property
    def elapsed_seconds(self) -> float:
        """Since the first turn could start; 0 before."""
        return 0.0 if self._began_at is None else self._clock() - self._began_at

    @property
    def in_flight(self) -> int:
        """Requests sent and not ended."""
        return self.started - len(self.outcomes)

    def stop(self) -> None:
        """Send no further turns; those under way run to their end."""
        self._stopped = True

    async def run(self, turns: Iterable[Turn]) -> list[Outcome]:
        """Send each turn at its time, whatever became of those before; return when all have ended."""
        self._began_at = self._clock()
        try:
            async with asyncio.TaskGroup() as group:
                for turn in turns:
                    body = turn.body(self._model)
                    delay = turn.at_seconds - self.elapsed_seconds
                    if delay > 0:
                        await asyncio.sleep(delay)
                    if self._stopped:
                        break
                    group.create_task(self._one(turn, body))
                    self.started += 1
        finally:
            self._client.close()
        return self.outcomes

    async def _one(self, turn: Turn, body: bytes) -> None:
        assert self._began_at is not None
        planned_at = self._began_at + turn.at_seconds
        late = self._clock() - planned_at
        try:
            async with asyncio.timeout(self._timeout_seconds):
                response = await self._client.request("POST", _PATH, body, self._headers)
        except (ExchangeError, TimeoutError) as error:
            reason = str(error) or "timeout"
            ended = self._clock() - self._began_at
            served = _header(error.headers, ENGINE_HEADER) if isinstance(error, ExchangeError) else None
            self.outcomes.append(
                Outcome(turn.at_seconds, ended, failure=reason, late_seconds=late, served=served)
            )
            return
        self.outcomes.append(outcome_of(response, turn.at_seconds, planned_at, late))


def outcome_of(
    response: Response, at_seconds: float, planned_at: float, late_seconds: float = 0.0
) -> Outcome:
    """Judge a response. `planned_at` is on the clock of the response's times."""
    failure: str | None = None
    usage: _Usage | None = None
    if response.status != 200:
        failure = f"status {response.status}"
    elif not response.body.rstrip().endswith(_STREAM_END):
        failure = "stream without its end"
    else:
        usage = _usage(response.body)
    first = response.first_byte_at
    headers = response.headers
    return Outcome(
        at_seconds=at_seconds,
        ended_seconds=at_seconds + response.ended_at - planned_at,
        failure=failure,
        status=response.status,
        ttft_seconds=None if first is None else first - planned_at,
        late_seconds=late_seconds,
        prompt_tokens=usage.prompt_tokens if usage else None,
        cached_tokens=(usage.prompt_tokens_details or _Details()).cached_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
        picked=_header(headers, HEADER_ENDPOINT),
        served=_header(headers, ENGINE_HEADER) or _header(headers, HEADER_SERVED),
    )


def _header(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header's value; None for Envoy's dash, which stands for a missing one."""
    value = headers.get(name, "")
    return None if value in {"", "-"} else value


def _usage(body: bytes) -> _Usage | None:
    """Find the usage in the last chunk that carries one; None when no chunk does."""
    for line in reversed(body.split(b"\n")):
        if line.startswith(b"data: {") and b'"usage"' in line:
            chunk = _decode_chunk(line[len(b"data: ") :])
            if chunk.usage is not None:
                return chunk.usage
    return None
