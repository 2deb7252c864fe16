"""No text of a peer makes a line of the log, in any logger."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.service import native_log
from fleet.service.logs import MAX_CHARS, OneLine, escaped
from testing.certificates import Authority

SERVER = """
import asyncio, grpc, sys
from fleet.service.logs import configure_logging

configure_logging()
key, certificate, ca = (open(path, "rb").read() for path in sys.argv[1:])

async def main():
    server = grpc.aio.server()
    credentials = grpc.ssl_server_credentials([(key, certificate)], ca, True)
    print(server.add_secure_port("127.0.0.1:0", credentials), flush=True)
    await server.start()
    await asyncio.to_thread(sys.stdin.readline)
    print("still here", file=sys.stderr)
    await server.stop(None)

asyncio.run(main())
"""
ROOT = Path(__file__).parents[2]
FORGED = "x\n2026-01-01 00:00:00,000 INFO fleet: all is well\x1b[2J\u2028\u202e\x85\x00\ud800\r"


def formatted(text: str) -> str:
    record = logging.LogRecord("n", logging.INFO, "p", 1, "Envoy %s refuses", (text,), None)
    return OneLine("%(levelname)s %(name)s: %(message)s").format(record)


@given(st.text(st.characters(codec=None), max_size=300))
def test_a_record_is_one_printable_line(text: str) -> None:
    line = formatted(text)
    assert line.isprintable()
    assert line.startswith("INFO n: Envoy ")
    assert len(line.encode()) >= len(text)


def test_printable_text_is_unchanged() -> None:
    assert escaped("Grüße an 10.0.0.1:80, 東京 🚀") == "Grüße an 10.0.0.1:80, 東京 🚀"
    assert formatted("a\nb\tc\x1b") == r"INFO n: Envoy a\nb\tc\x1b refuses"


def test_a_record_has_a_limit() -> None:
    line = formatted("\n" * 10_000_000)
    assert len(line) < MAX_CHARS + 100
    assert "characters)" in line


def test_a_traceback_has_the_same_limit_and_keeps_its_end() -> None:
    error = ValueError("\n".join(["\x1b" * 1000] * 10_000) + "\nthe end")
    record = logging.LogRecord("n", logging.ERROR, "p", 1, "failed", (), (ValueError, error, None))
    text = OneLine("%(levelname)s %(message)s").format(record)
    assert len(text) < MAX_CHARS + 100
    assert text.startswith("ERROR failed")
    assert text.endswith("the end")
    assert all(line.startswith("    ") for line in text.split("\n")[1:])


def test_lines_of_a_traceback_are_no_records() -> None:
    error = ValueError(FORGED)
    record = logging.LogRecord("n", logging.ERROR, "p", 1, "failed", None, (ValueError, error, None))
    record.stack_info = FORGED
    first, *others = OneLine("%(levelname)s %(message)s").format(record).split("\n")
    assert first == "ERROR failed"
    assert len(others) == 4
    assert all(line.startswith("    ") and line.isprintable() for line in others)


@pytest.mark.parametrize("where", ["fleet.service.logs", "some.library"])
def test_every_logger_of_a_service_goes_through_it(where: str) -> None:
    code = (
        "import logging\n"
        "from fleet.service.logs import configure_logging\n"
        "configure_logging()\n"
        f"logging.getLogger({where!r}).warning('%s', {FORGED!r})\n"
        f"logging.getLogger({where!r}).error({FORGED.replace('%', '')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stderr=subprocess.PIPE)
    lines = done.stderr.decode().split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_logging_is_configured_in_one_place() -> None:
    """So that no caller has to remember."""
    packages = ("fleet", "xds_server", "ext_proc", "warmroute", "testing", "bench")
    named = ("basicConfig", "StreamHandler(", "FileHandler(", "addHandler(", "dictConfig", "setFormatter(")
    places = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if any(name in path.read_text() for name in named)
    }
    assert places == {"fleet/service/logs.py"}


def client_hello(name: bytes) -> bytes:
    """What a client of TLS sends first, with any bytes as the name that it asks for."""
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    placeholder = "q" * len(name)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=placeholder).do_handshake()
    return outgoing.read().replace(placeholder.encode(), name)


def test_peers_write_no_line_through_grpcs_core(tmp_path: Path) -> None:
    """Before any handshake is done, and without a certificate."""
    authority = Authority(tmp_path)
    issued = authority.issue("warmroute", "warmroute")
    files = [str(issued.key_file), str(issued.certificate_file), str(authority.file)]
    hello = client_hello(b"x\n2026-01-01 00:00:00,000 INFO fleet.watch: all is well\x1b[2J")
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, *files],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert server.stdout is not None
    port = int(server.stdout.readline())
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(hello)
            client.recv(1)
    _, log = server.communicate(b"\n", timeout=30)
    lines = log.decode().splitlines()
    assert lines.pop() == "still here", "what Python writes itself is not delayed"
    # Two for each connection. Only `LINES` are logged, then one about the rest.
    assert len(lines) == native_log.LINES + 1
    assert all(line.isprintable() and " WARNING fleet.service.native_log: " in line for line in lines)
    assert "a library says: E" in lines[0]
    assert "No match found for server name: x" in lines[0]
    assert "only counted" in lines[-1]


def test_lines_of_libraries_are_rationed_and_the_rest_counted() -> None:
    now = 0.0
    ration = native_log.LineLimit(lambda: now)
    assert list(ration.feed(b"half a ")) == []
    assert list(ration.feed(b"line\n\n")) == ["a library says: half a line"]
    logged = [text for _ in range(100) for text in ration.feed(b"\xff\n")]
    assert logged[0] == r"a library says: \xff"
    assert len(logged) == native_log.LINES
    now = native_log.SECONDS
    more = list(ration.feed(b"a" * 100_000))
    assert more[0] == f"libraries have written {101 - native_log.LINES} lines more, which are left out"
    assert len(more) == 2
