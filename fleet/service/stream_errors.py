"""Messages about streams to xds_server that fail, with the next step: pure."""

from __future__ import annotations

import grpc


def describe(error: BaseException) -> str:
    """Return the error that ended a stream, in short."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return type(error).__name__


def explain(error: BaseException, at: str, *, tls: bool, options: str, authority: str, name: str) -> str:
    """Return why a stream ended before its first message, and the next step.

    `at` is the setting or option with the address; `tls` is whether the stream uses TLS. `options`,
    `authority` and `name` are the settings or options for TLS, for the authority, and for the name in the
    server's certificate.
    """
    cause = describe(error)
    details = str(error.details()) if isinstance(error, grpc.aio.AioRpcError) else ""
    code = error.code() if isinstance(error, grpc.aio.AioRpcError) else None
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return (
            f"xds_server at {at} refuses this ({details}): show such a name, or add this one to its settings"
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"what answers at {at} is no xds_server for this ({cause}): mend the address"
    if "WRONG_VERSION_NUMBER" in details:
        return f"xds_server at {at} speaks no TLS ({cause}): leave out {options}, or mend the address"
    if "Hostname Verification" in details:
        return f"xds_server at {at} has a certificate for other names ({cause}): set {name} to one of them"
    if "handshake failed" in details:
        return (
            f"the certificate of xds_server at {at} is not trusted ({cause}): set {authority} to its signer"
        )
    if "Socket closed" in details and tls:
        step = "show a certificate for clients that its client_ca_file has signed"
        return f"xds_server at {at} ends the connection, and may not take this certificate ({cause}): {step}"
    if "Socket closed" in details:
        return f"xds_server at {at} ends the connection, and may speak TLS ({cause}): set {options}"
    return f"no xds_server answers at {at} ({cause}): start it, or mend the address"
