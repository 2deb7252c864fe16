"""A publisher of KV events as engines have it: PUB with a replay ROUTER beside, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Self

import zmq
import zmq.asyncio

END = b"\xff" * 8


class LoopClock:
    """The running loop's clock, which a test can put forward: only then do the time limits pass."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._ahead = 0.0
        self._loop.time = lambda: self._now() + self._ahead  # type: ignore[method-assign]

    def advance(self, seconds: float) -> None:
        self._ahead += seconds
        # Otherwise the loop sleeps until the time that it has computed before.
        self._loop.call_soon(lambda: None)


class Publisher:
    """Publishes what it is told, and answers replays in the form of one engine's version."""

    def __init__(
        self, *, topic: bytes = b"kv", form: str = "topic", ports: tuple[int, int] | None = None
    ) -> None:
        self._topic = topic
        self._form = form
        self._ports = ports
        self.port = self.replay_port = 0
        self.published: list[bytes] = []
        self.asked: list[int] = []
        self.silent = False
        self.limit: int | None = None
        """So many messages of a replay arrive, and not its end."""
        self._context = zmq.asyncio.Context()
        self._pub = self._context.socket(zmq.XPUB)
        self._router = self._context.socket(zmq.ROUTER)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            # A port that is taken: whoever waited gives up.
            self._context.destroy(0)
            raise
        self._task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._context.destroy(0)

    async def _open(self) -> None:
        if self._ports is None:
            self.port = self._pub.bind_to_random_port("tcp://127.0.0.1")
            self.replay_port = self._router.bind_to_random_port("tcp://127.0.0.1")
        else:
            self.port, self.replay_port = self._ports
            await self._bind(self._pub, self.port)
            await self._bind(self._router, self.replay_port)

    async def subscribed(self) -> None:
        """Return when somebody has subscribed."""
        await self._pub.recv()

    async def publish(self, payload: bytes, *, lost: bool = False) -> None:
        """Publish a message, or one that never arrives."""
        number = len(self.published)
        self.published.append(payload)
        if not lost:
            await self._pub.send_multipart([self._topic, number.to_bytes(8, "big"), payload])

    async def send(self, *frames: bytes) -> None:
        """Publish frames as they are."""
        await self._pub.send_multipart(list(frames))

    @staticmethod
    async def _bind(socket: Any, port: int) -> None:
        while True:
            try:
                socket.bind(f"tcp://127.0.0.1:{port}")
            except zmq.ZMQError:
                # The former owner's socket is closed by another thread.
                await asyncio.sleep(0.01)
            else:
                return

    async def _serve(self) -> None:
        while True:
            client, _, start = await self._router.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            if self.silent:
                continue
            numbered = list(enumerate(self.published))[self.asked[-1] :]
            for number, payload in numbered[: self.limit]:
                await self._reply(client, number.to_bytes(8, "big"), payload)
            if self.limit is None:
                await self._reply(client, END, b"")

    async def _reply(self, client: bytes, number: bytes, payload: bytes) -> None:
        ahead = {"topic": [b"", self._topic], "old": [b""], "bare": []}[self._form]
        await self._router.send_multipart([client, *ahead, number, payload])
