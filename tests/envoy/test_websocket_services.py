"""WebSockets with the real services: who is picked at a handshake, and what their end does to open ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from fleet.names import HEADER_REASON
from tests.envoy.conftest import eventually
from tests.envoy.site import site
from tests.envoy.sockets import PATH, SocketEngines

if TYPE_CHECKING:
    from pathlib import Path


async def test_handshakes_get_picks_and_sockets_outlive_services(tmp_path: Path) -> None:
    """By session or by a model in the query; without either by weights. Then all of them stop."""
    async with SocketEngines() as engines:
        pools = {"chat": ("http1", [await engines.add() for _ in range(3)])}
        async with site(tmp_path, pools, models=["m"], engine="vllm") as held:
            url = f"http://{held.addresses['chat']}{PATH}"

            async def asked(query: str = "", **headers: str) -> tuple[str, str | None]:
                async with held.client.ws_connect(f"{url}{query}", headers=headers) as ws:
                    told = ws._response.headers
                return told["x-address"], told.get(HEADER_REASON)

            async def picks() -> bool:
                return (await asked("?model=m"))[1] == "headers"

            await eventually(picks, "picks")
            assert (await asked())[1] == "no_session"
            assert (await asked("?model=other"))[1] == "unknown_model"
            first = await asked(**{"x-session-id": "s"})
            assert first[1] == "headers"
            assert {await asked(**{"x-session-id": "s"}) for _ in range(6)} == {first}
            async with held.client.get(url, headers={"x-session-id": "s"}) as response:
                assert (response.headers["x-address"], response.headers[HEADER_REASON]) == first

            async with held.client.ws_connect(url) as ws:
                await ws.send_str("before")
                assert await ws.receive_str() == "before"
                await held.ext_proc.drain()
                await held.ext_proc.stop()
                await held.server.drain()
                await held.server.stop()
                await ws.send_str("after")
                assert await ws.receive_str() == "after"
                assert (await asked("?model=m"))[1] is None

                drain = f"http://{held.envoy.admin_address}/drain_listeners"
                async with held.client.post(drain) as response:
                    assert response.status == 200
                async with aiohttp.ClientSession() as other:

                    async def refused() -> bool:
                        try:
                            async with other.ws_connect(url):
                                return False
                        except aiohttp.ClientConnectionError:
                            return True

                    await eventually(refused, "no new ones")
                await ws.send_str("to the end")
                assert await ws.receive_str() == "to the end"
                await ws.close(code=4000)
                await eventually(lambda: 4000 in engines.closed_with, "the code has passed")
