"""Staples: which responses are believed, when they are asked for, and what happens when nobody answers."""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from prometheus_client import CollectorRegistry

from testing.certificates import Authority, Issued
from testing.responder import Responder
from xds_server.tls.ocsp import store
from xds_server.tls.ocsp.client import OcspClient
from xds_server.tls.ocsp.response import OcspRequest, StapleError, must_staple
from xds_server.tls.ocsp.staples import Staples, StapleTarget

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

NOW = datetime.datetime.now(datetime.UTC)
SOMEWHERE = "http://responder.test/"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def chain(issued: Issued) -> bytes:
    return issued.certificate_file.read_bytes()


def request(issued: Issued) -> OcspRequest:
    return OcspRequest.of(chain(issued), SOMEWHERE)


def read(issued: Issued, content: bytes) -> Any:
    return request(issued).read(content, NOW.timestamp())


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"warmroute_ocsp_{name}", {"use": "listener/l", **labels})


@pytest.mark.parametrize("bits", [0, 2048], ids=["p256", "rsa"])
def test_issuer_and_its_responder_may_sign(tmp_path: Path, bits: int) -> None:
    """Signed by the authority itself, or by a certificate that it has given out for this."""
    authority = Authority(tmp_path)
    issued = authority.issue("front")
    named = authority.issue("responder", signs_ocsp=True, rsa_bits=bits)
    for content in (
        authority.staple(issued.certificate, at=NOW),
        authority.staple(issued.certificate, at=NOW, signer=named),
    ):
        staple = read(issued, content)
        assert staple.der == content
        assert staple.next_update - staple.this_update == 7200
        assert staple.refresh_at == pytest.approx(NOW.timestamp(), abs=1)


def parts(der: bytes) -> list[bytes]:
    """Elements of a constructed DER value, each with its own tag and length."""
    parts = []
    at = head(der)
    while at < len(der):
        length = head(der[at:]) + body_length(der[at:])
        parts.append(der[at : at + length])
        at += length
    return parts


def head(der: bytes) -> int:
    return 2 + (der[1] & 0x7F if der[1] & 0x80 else 0)


def body_length(der: bytes) -> int:
    return int.from_bytes(der[2 : head(der)], "big") if der[1] & 0x80 else der[1]


def built(tag: int, *inner: bytes) -> bytes:
    content = b"".join(inner)
    count = len(content)
    if count < 0x80:
        return bytes([tag, count]) + content
    size = count.to_bytes(2 if count > 0xFF else 1, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def opened(content: bytes) -> tuple[list[bytes], bytes, bytes, bytes]:
    """What is signed, in parts, then algorithm, kind and status of a response."""
    status, wrapped = parts(content)
    kind, octets = parts(parts(wrapped)[0])
    signed, algorithm, *_ = parts(octets[head(octets) :])
    return parts(signed), algorithm, kind, status


def about_two(authority: Authority, issued: Issued) -> bytes:
    """A well signed response about two certificates: Envoy refuses one together with its certificate."""
    opened_staple = opened(authority.staple(issued.certificate, at=NOW))
    (*before, singles), algorithm, kind, status = opened_staple
    *_, further = opened(authority.staple(authority.issue("other").certificate, at=NOW))[0]
    both = built(0x30, *before, built(0x30, *parts(singles), *parts(further)))
    basic = built(0x30, both, algorithm, built(0x03, b"\0", authority.sign(both)))
    return built(0x30, status, built(0xA0, built(0x30, kind, built(0x04, basic))))


REVOKED, UNKNOWN = ocsp.OCSPCertStatus.REVOKED, ocsp.OCSPCertStatus.UNKNOWN
LATER = NOW + datetime.timedelta(hours=2)


@pytest.mark.parametrize(
    ("outcome", "text", "make"),
    [
        ("revoked", "revoked since", lambda a, i, _: a.staple(i.certificate, at=NOW, status=REVOKED)),
        ("refused", "does not know", lambda a, i, _: a.staple(i.certificate, at=NOW, status=UNKNOWN)),
        ("refused", "another certificate", lambda a, i, _: a.staple(a.issue("other").certificate, at=NOW)),
        ("refused", "valid from", lambda a, i, _: a.staple(i.certificate, at=NOW, hours=-0.1)),
        ("refused", "valid from", lambda a, i, _: a.staple(i.certificate, at=LATER)),
        ("refused", "not authorised", lambda a, i, _: a.staple(i.certificate, at=NOW, signer=a.issue("any"))),
        ("refused", "not authorised", lambda a, i, s: a.staple(i.certificate, signer=responder_of(s))),
        ("refused", "another certificate", lambda a, i, s: s.staple(i.certificate, at=NOW)),
        ("refused", "signature is wrong", lambda a, i, _: forged(a.staple(i.certificate, at=NOW))),
        ("refused", "about 2 certificates", lambda a, i, _: about_two(a, i)),
        ("refused", "UNAUTHORIZED", lambda a, i, _: unauthorized()),
        ("refused", "no readable", lambda a, i, _: b"<html>"),
        ("refused", "no readable", lambda a, i, _: b""),
    ],
)  # fmt: skip
def test_unacceptable_response_is_no_staple(
    tmp_path: Path, outcome: str, text: str, make: Callable[[Authority, Issued, Authority], bytes]
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    issued = authority.issue("front")
    with pytest.raises(StapleError, match=text) as caught:
        read(issued, make(authority, issued, stranger))
    assert caught.value.outcome == outcome


def responder_of(authority: Authority) -> Issued:
    return authority.issue("signs", signs_ocsp=True)


def forged(content: bytes) -> bytes:
    """Change one byte of the signature."""
    signature = ocsp.load_der_ocsp_response(content).signature
    at = content.index(signature) + len(signature) - 1
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def unauthorized() -> bytes:
    response = ocsp.OCSPResponseBuilder.build_unsuccessful(ocsp.OCSPResponseStatus.UNAUTHORIZED)
    return response.public_bytes(Encoding.DER)


def test_no_cut_or_changed_response_gets_past_the_checks(authority: Authority) -> None:
    """Whatever comes ends as a `StapleError`, and nothing that was changed is taken."""
    issued = authority.issue("front")
    content = authority.staple(issued.certificate, at=NOW)
    issued_request = request(issued)
    for at in range(len(content)):
        for bad in (content[:at], content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]):
            with pytest.raises(StapleError):
                issued_request.read(bad, NOW.timestamp())


def test_responder_is_in_certificate_or_settings(authority: Authority) -> None:
    named, silent = authority.issue("a", responder="http://ocsp.test/x"), authority.issue("b")
    assert OcspRequest.of(chain(named), None).url == "http://ocsp.test/x"
    assert OcspRequest.of(chain(named), SOMEWHERE).url == SOMEWHERE
    with pytest.raises(StapleError, match="names no"):
        OcspRequest.of(chain(silent), None)
    sent = ocsp.load_der_ocsp_request(OcspRequest.of(chain(named), None).der)
    assert sent.serial_number == named.certificate.serial_number
    assert isinstance(sent.hash_algorithm, hashes.SHA1)


def test_chain_without_issuer_is_impossible(authority: Authority, tmp_path: Path) -> None:
    issued, stranger = authority.issue("front"), Authority(tmp_path, "stranger")
    (first, *_) = chain(issued).split(b"-----BEGIN CERTIFICATE-----")[1:]
    alone = b"-----BEGIN CERTIFICATE-----" + first
    for pem in (alone, alone + stranger.file.read_bytes()):
        with pytest.raises(StapleError, match="issuer") as caught:
            OcspRequest.of(pem, SOMEWHERE)
        assert caught.value.outcome == "impossible"


def test_a_certificate_may_want_a_staple(authority: Authority) -> None:
    assert must_staple(chain(authority.issue("a", must_staple=True)))
    assert not must_staple(chain(authority.issue("b")))


async def test_a_staple_comes_is_kept_and_is_there_at_the_next_start(
    authority: Authority, tmp_path: Path
) -> None:
    """Also while the responder is away; and it is not asked again before half of the time is over."""
    path, registry = tmp_path / "x.ocsp", CollectorRegistry()
    changes: list[int] = []
    async with Responder(authority) as responder:
        issued = responder.know(authority.issue("front", responder=responder.url))
        targets = {"listener/l": StapleTarget(chain(issued))}
        responder.hours = 3
        first = Staples(registry, path)
        first.on_change = lambda: changes.append(1)
        first.update(targets)
        assert value(registry, "stapled") == 0
        assert value(registry, "staple_next_update_seconds") is None
        await first.start()
        await until(lambda: first.of("listener/l"))
        await until(path.exists)
        await first.close()
    staple = first.of("listener/l")
    assert staple is not None
    assert changes == [1]
    assert value(registry, "stapled") == 1
    assert value(registry, "staple_next_update_seconds") == staple.next_update
    assert value(registry, "staple_this_update_seconds") == staple.this_update
    assert value(registry, "fetches_total", outcome="fetched") == 1
    second = Staples(path=path)
    second.update(targets)
    await second.start()
    await until(lambda: second.of("listener/l"))
    assert second.of("listener/l") == staple
    await second.close()
    assert responder.requests == 1


async def test_unreachable_responder_keeps_the_staple(
    authority: Authority,
) -> None:
    registry = CollectorRegistry()
    staples = Staples(registry, least_seconds=0.01, first_backoff_seconds=0.01)
    async with Responder(authority) as responder:
        issued = responder.know(authority.issue("front", responder=responder.url))
        responder.hours = 0.0001  # Past its half at once, so that it is asked for again and again.
        responder.http_status = 503
        staples.update({"listener/l": StapleTarget(chain(issued))})
        await staples.start()
        await until(lambda: responder.requests >= 2)
        assert staples.of("listener/l") is None
        responder.http_status = 200
        responder.hours = 0.01
        await until(lambda: staples.of("listener/l"))
        responder.http_status = 503
        before = responder.requests
        current = staples.of("listener/l")
        unreachable = value(registry, "fetches_total", outcome="unreachable")
        assert unreachable is not None
        assert unreachable >= 2
        assert current is not None
        await staples.close()
    assert before >= 3
    assert staples.of("listener/l") is current


async def test_a_staple_that_has_ended_is_none(authority: Authority) -> None:
    now = NOW.timestamp()
    staples = Staples(wall=lambda: now)
    async with Responder(authority) as responder:
        issued = responder.know(authority.issue("front", responder=responder.url))
        staples.update({"listener/l": StapleTarget(chain(issued))})
        await staples.start()
        await until(lambda: staples.of("listener/l"))
        await staples.close()
    staple = staples.of("listener/l")
    assert staple is not None
    now = staple.next_update + 1
    assert staples.of("listener/l") is None


async def test_a_revoked_certificate_has_no_staple_any_more(authority: Authority) -> None:
    """What the responder said before would still hold, but is known to be untrue."""
    registry = CollectorRegistry()
    staples = Staples(registry, least_seconds=0.01)
    async with Responder(authority) as responder:
        issued = responder.know(authority.issue("front", responder=responder.url))
        responder.hours = 0.001
        staples.update({"listener/l": StapleTarget(chain(issued))})
        await staples.start()
        await until(lambda: staples.of("listener/l"))
        responder.status = ocsp.OCSPCertStatus.REVOKED
        await until(lambda: value(registry, "fetches_total", outcome="revoked"))
        assert staples.of("listener/l") is None
        await staples.close()


async def test_changed_certificate_starts_over(
    authority: Authority,
) -> None:
    registry = CollectorRegistry()
    staples = Staples(registry)
    async with Responder(authority) as responder:
        staples.update(
            {"listener/l": StapleTarget(chain(responder.know(authority.issue("a"))), responder.url)}
        )
        await staples.start()
        await until(lambda: staples.of("listener/l"))
        first = staples.of("listener/l")
        other = responder.know(authority.issue("b"))
        staples.update({"listener/l": StapleTarget(chain(other), responder.url)})
        assert staples.of("listener/l") is None
        await until(lambda: staples.of("listener/l"))
        assert staples.of("listener/l") != first
        staples.update({})
        assert value(registry, "stapled") is None
        assert value(registry, "fetches_total", outcome="fetched") is None
        await staples.close()


async def test_impossible_staple_is_logged_once(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    staples = Staples(registry)
    staples.update({"listener/l": StapleTarget(chain(authority.issue("front")))})
    await staples.start()
    await until(lambda: value(registry, "fetches_total", outcome="impossible"))
    await staples.close()
    assert "names no OCSP responder" in caplog.text


async def test_fault_of_ours_does_not_end_fetching(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()

    class Broken(OcspClient):
        async def fetch(self, request: OcspRequest) -> bytes:
            raise KeyError("ours")

    staples = Staples(registry, make_client=Broken)
    staples.update({"listener/l": StapleTarget(chain(authority.issue("front")), SOMEWHERE)})
    await staples.start()
    await until(lambda: value(registry, "fetches_total", outcome="failed"))
    assert not any(task.done() for task in asyncio.all_tasks() if task.get_name() == "staple listener/l")
    await staples.close()
    assert "fault of ours" in caplog.text


async def test_responders_have_a_deadline_and_a_limit(authority: Authority) -> None:
    """One that accepts and says nothing, one that is not there, and one that never ends."""
    issued = authority.issue("front")

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1_000_000)
        await reader.read()
        writer.close()

    for serve, deadline_seconds, outcome in (
        (silent, 0.1, "unreachable"),
        (endless, 60.0, "refused"),
        (None, 60.0, "unreachable"),
    ):
        client = OcspClient(deadline_seconds=deadline_seconds)
        server = None if serve is None else await asyncio.start_server(serve, "127.0.0.1", 0)
        port = 1 if server is None else server.sockets[0].getsockname()[1]
        with pytest.raises(StapleError) as caught:
            await client.fetch(OcspRequest.of(chain(issued), f"http://127.0.0.1:{port}/"))
        assert caught.value.outcome == outcome
        if server is not None:
            server.close()
        await client.close()


@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
async def test_nobody_is_asked_but_the_responder(authority: Authority, status: str) -> None:
    """Whoever answers in its place would have us ask anybody."""
    names: list[str] = []

    def server(name: str, answer: str) -> Callable[..., Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            names.append(name)
            writer.write(f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n".encode())
            writer.close()

        return serve

    other = await asyncio.start_server(server("other", "200 OK"), "127.0.0.1", 0)
    elsewhere = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/"
    responder = await asyncio.start_server(
        server("responder", f"{status}\r\nlocation: {elsewhere}"), "127.0.0.1", 0
    )
    client = OcspClient()
    url = f"http://127.0.0.1:{responder.sockets[0].getsockname()[1]}/"
    with pytest.raises(StapleError, match=f"status {status[:3]}"):
        await client.fetch(OcspRequest.of(chain(authority.issue("front")), url))
    assert names == ["responder"]
    await client.close()
    for each in (other, responder):
        each.close()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 2, "staples": {}}', b"\xff", b"[1]"])
def test_a_file_that_cannot_be_used_is_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.ocsp"
    path.write_bytes(content)
    assert store.read(path) == {}
    store.write(path, {"a": b"\x00\xff"})
    assert store.read(path) == {"a": b"\x00\xff"}


async def test_a_kept_staple_is_checked_as_one_that_has_just_come(
    authority: Authority, tmp_path: Path
) -> None:
    """Who can write the file can take staples away, and put none of his own there."""
    stranger = Authority(tmp_path, "stranger")
    issued = authority.issue("front")
    path = tmp_path / "x.ocsp"
    store.write(path, {request(issued).key: stranger.staple(issued.certificate)})
    staples = Staples(path=path, first_backoff_seconds=0.01)
    async with Responder(authority) as responder:
        staples.update({"listener/l": StapleTarget(chain(issued), responder.url)})
        await staples.start()
        await until(lambda: responder.requests)
        assert staples.of("listener/l") is None
        await staples.close()
