"""What the real Envoy does with a pick, and with what has none."""

from __future__ import annotations


async def test_pick_is_honoured(world):
    """The engine named in metadata serves, each of them in turn."""
    for address in world.pools["live"] * 3:
        world.ext_proc.pick = address
        answer = await world.post()
        assert (answer.status, answer.engine) == (200, address), answer.headers
