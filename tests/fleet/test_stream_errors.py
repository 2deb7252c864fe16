"""What a worker or agent says of an xds_server that does not take its streams, met at real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from fleet.service.stream_errors import explain
from testing.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"options": "--control-ca", "authority": "--control-ca", "name": "--control-name"}


def read(at: Path, *names: str) -> list[bytes]:
    return [(at / name).read_bytes() for name in names]


async def ended(address: str, credentials: Any, name: str = "warmroute") -> grpc.aio.AioRpcError:
    options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
    opened = (
        grpc.aio.insecure_channel(address, options=options[1:])
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=options)
    )
    async with opened as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/warmroute.v1.FleetControl/Follow")(b"", timeout=20)
    return caught.value


@pytest.mark.parametrize(
    ("client", "start"),
    [
        ("plain", "xds_server at --control {} ends the connection, and may speak TLS (UNAVAILABLE: "),
        ("stranger", "xds_server at --control {} ends the connection, and may not take this certificate ("),
        ("distrusting", "the certificate of xds_server at --control {} is not trusted (UNAVAILABLE: "),
        ("misnamed", "xds_server at --control {} has a certificate for other names ("),
        ("good", "what answers at --control {} is no xds_server for this (UNIMPLEMENTED: "),
        ("to plaintext", "xds_server at --control {} speaks no TLS ("),
        ("to nobody", "no xds_server answers at --control {} (UNAVAILABLE: "),
    ],
)
async def test_connection_failure_has_the_next_step(
    tmp_path: Path, unused_tcp_port: int, client: str, start: str
) -> None:
    ours, others = Authority(tmp_path), Authority(tmp_path, "other")
    ours.issue("warmroute", "warmroute")
    ours.issue("client", "agent", side="client")
    others.issue("stranger", "agent", side="client")
    server, plain = grpc.aio.server(), grpc.aio.server()
    key, certificate, ca = read(tmp_path, "warmroute.key", "warmroute.crt", "test-ca.crt")
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
    )
    ports = {"to plaintext": plain.add_insecure_port("127.0.0.1:0"), "to nobody": unused_tcp_port}
    own = read(tmp_path, "client.key", "client.crt")
    shown = {
        "plain": None,
        "stranger": (ca, *read(tmp_path, "stranger.key", "stranger.crt")),
        "distrusting": (*read(tmp_path, "other-ca.crt"), *own),
    }.get(client, (ca, *own))
    await server.start()
    await plain.start()
    try:
        address = f"127.0.0.1:{ports.get(client, port)}"
        credentials = None if shown is None else grpc.ssl_channel_credentials(*shown)
        error = await ended(address, credentials, "other" if client == "misnamed" else "warmroute")
    finally:
        await server.stop(None)
        await plain.stop(None)
    text = explain(error, f"--control {address}", tls=shown is not None, **NAMES)
    assert text.startswith(start.format(address))
    assert ": " in text.rpartition(")")[2], "the next step"


def test_refusal_has_the_servers_words() -> None:
    details = "the certificate shows 'worker'; allowed: a name in tls.roles.agents"
    metadata = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.PERMISSION_DENIED, metadata, metadata, details)
    text = explain(error, "--control a:1", tls=True, **NAMES)
    assert text == (
        f"xds_server at --control a:1 refuses this ({details}): show such a name, or add this one to its"
        " settings"
    )
    assert "no xds_server answers" in explain(TimeoutError(), "--control a:1", tls=True, **NAMES)
