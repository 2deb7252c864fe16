"""What streams leave in native memory, which no count of objects shows."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.transports import TRANSPORTS, serving

if TYPE_CHECKING:
    from pathlib import Path

WARM_UP: Final = 1_000
STREAMS: Final = 4_000
MOST_BYTES: Final = 40
"""A stream; what gRPC loses with a cancelled read is 100."""
_FIELDS: Final = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
_CLIENT: Final = """
import asyncio, sys
import grpc
from bench import resets
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc

async def main():
    async with grpc.aio.insecure_channel(sys.argv[1]) as channel:
        await resets.streams(pb_grpc.ExternalProcessorStub(channel), int(sys.argv[2]))

asyncio.run(main())
"""


class Mallinfo(ctypes.Structure):
    """What glibc's `mallinfo2` tells; `uordblks` is the bytes that are allocated, over all arenas."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def allocated_bytes() -> int:
    told: Any = ctypes.CDLL(None).mallinfo2
    told.restype = Mallinfo
    gc.collect()
    return int(told().uordblks)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc")
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_streams_that_are_reset_leave_no_native_memory(tmp_path: Path, transport: str) -> None:
    """As Envoy ends each of them; the client is a process of its own, since clients leave some as well."""
    # With an access log the newest prompts are remembered, up to thousands of them.
    stage = Stage(sample_ratio=0.0, signals={"access_log": False})
    address = f"unix:{tmp_path}/s"

    async def reset(count: int) -> int:
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", _CLIENT, address, str(count))
        assert await client.wait() == 0
        async with asyncio.timeout(60):
            while stage.service.streams:
                await asyncio.sleep(0.01)
        return allocated_bytes()

    async with serving(stage.service, address, transport):
        before = await reset(WARM_UP)
        after = await reset(STREAMS)
    assert stage.picks("cold") + stage.picks("warm") == WARM_UP + STREAMS
    assert (after - before) / STREAMS < MOST_BYTES
