"""What a user gets, end to end: the services by their own commands, the real Envoy, real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from typing import TYPE_CHECKING

import pytest

from fleet.names import DESTINATION_KEY, HEADER_ENDPOINT, HEADER_MATCHED, HEADER_PREFIX, HEADER_REASON
from tests.product.conftest import LIMIT_SECONDS, until
from warmroute.demo.processes import warmroute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.product.conftest import Answer, Product

pytestmark = pytest.mark.asyncio(loop_scope="module")


def words(count: int, seed: int) -> str:
    drawn = random.Random(seed)
    return " ".join(f"word{drawn.randrange(10_000)}" for _ in range(count))


async def test_a_conversation_stays_where_its_prefix_is(product: Product) -> None:
    """Every turn after the first goes to the engine that computed the turns before, and finds them there."""
    for seed in range(5):
        prompt = words(400, seed)
        first = await product.picked(prompt)
        assert first.headers[HEADER_REASON] == "cold"
        for turn in range(3):
            prompt += " " + words(40, 1000 + 10 * seed + turn)
            answer = await product.picked(prompt)
            assert answer.headers[HEADER_REASON] == "warm"
            assert answer.engine == first.engine == answer.headers[HEADER_ENDPOINT]
            assert float(answer.headers[HEADER_MATCHED]) > 0.5
            assert answer.cached_tokens > 400


async def test_a_large_body_finds_its_prefix_too(product: Product) -> None:
    """Of a long body ext_proc inspects the leading bytes only, and they are enough."""
    prompt = words(45_000, 77)
    first = await product.picked(prompt)
    again = await product.picked(prompt + " and more")
    assert (again.headers[HEADER_REASON], again.engine) == ("warm", first.engine)


async def test_what_is_not_understood_goes_by_weights(product: Product) -> None:
    """No JSON, no prompt, another model: the engine answers, whatever it says; nobody else does."""
    url = f"http://{product.cluster.address}/v1/chat/completions"
    as_json = {"content-type": "application/json"}
    for body in (b"{", b"[]", b'{"model": "smol"}', b'{"model": "other", "prompt": "x"}', b"\xff\xfe", b""):
        async with product.session.post(url, data=body, headers=as_json) as response:
            assert "x-engine-address" in response.headers
            assert HEADER_ENDPOINT not in response.headers
    async with product.session.get(f"http://{product.cluster.address}/v1/models") as response:
        assert response.status == 200


async def test_a_client_does_not_steer(product: Product) -> None:
    """Another engine may win by its load; were the name obeyed, each request would go to the one named."""
    prompt = words(300, 5000)
    names = (DESTINATION_KEY, DESTINATION_KEY.upper(), HEADER_ENDPOINT, HEADER_PREFIX)
    for name in names:
        engines: set[str] = set()
        for named in product.cluster.engines * 3:
            answer = await product.picked(prompt, headers={name: named})
            engines.add("named" if answer.engine == named else "another")
        assert "another" in engines, name


async def test_weights_leave_an_engine_that_chokes_and_come_back(product: Product) -> None:
    """The silent zone before out-of-memory shows in the weight, in Envoy's own view, and passes."""
    choking, *others = product.cluster.engines
    await product.fault(choking, kind="out_of_memory")

    async def lighter() -> bool:
        weights = await product.weights()
        return weights[choking] * 3 < min(weights[address] for address in others)

    async def even() -> bool:
        weights = await product.weights()
        return weights[choking] * 2 > max(weights[address] for address in others)

    async def taken() -> bool:
        told = await product.get(product.cluster.admin_address, "/api/v1/status")
        assert told["nacks"] == 0
        return bool(told["acks"] >= told["weight_updates"] >= 1)

    await until(lighter)
    await until(taken)
    await product.fault(choking, kind="none")
    await until(even)


async def test_settings_change_without_a_restart(product: Product) -> None:
    """An endpoint leaves and comes back while requests run; a broken file changes nothing."""
    cluster = product.cluster
    leaving, *staying = cluster.engines
    refused = 'warmroute_settings_reloads_total{outcome="refused"} 1.0'

    async def gone() -> bool:
        return leaving not in await product.weights()

    async def back() -> bool:
        return leaving in await product.weights()

    async def told() -> bool:
        return refused in await product.text(cluster.admin_address, "/metrics")

    async with _steady(product) as answers:
        cluster.pool_overrides["endpoints"] = [{"address": address} for address in staying]
        cluster.pool_overrides["joining"] = {"drain_seconds": 0.5}
        cluster.write_settings()
        await until(gone)
        good = cluster.settings_path.read_text()
        cluster.settings_path.write_text(good + "nonsense: 1\n")
        await until(told)
        assert await gone()
        del cluster.pool_overrides["endpoints"]
        cluster.write_settings()
        await until(back)
    assert {answer.status for answer in answers} == {200}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_services_restart_under_traffic_without_a_failed_request(
    product: Product, number: signal.Signals
) -> None:
    cluster = product.cluster
    prompt = words(300, 9000 + number)
    home = (await product.picked(prompt)).engine
    file = str(cluster.settings_path)
    verbs = ("serve",) if cluster.settings.router == "serve" else ("ext-proc", "xds")
    async with _steady(product) as answers:
        for verb in verbs:
            child = cluster.children[verb]
            child.signal(number)
            await child.wait_for_end(LIMIT_SECONDS)
            await asyncio.sleep(0.3)
            cluster.start(verb, warmroute(verb, file))
            address = cluster.ext_proc_admin_address if verb == "ext-proc" else cluster.admin_address
            await cluster.wait_answer(verb, address, "/readyz", LIMIT_SECONDS)
    assert {answer.status for answer in answers} == {200}

    async def picked() -> bool:
        answer = await product.chat(prompt)
        return answer.headers.get(HEADER_REASON) == "warm"

    await until(picked)
    assert home in cluster.engines


async def test_prompt_text_is_nowhere_but_in_the_engine(product: Product) -> None:
    """Logs, spans (every pick is sampled here), metrics and admin pages hold none of it."""
    marker = "Quetzalcoatlus-northropi"
    for suffix in ("", " " + words(50, 1), " " + words(45_000, 2)):
        await product.picked(marker + suffix)
    url = f"http://{product.cluster.address}/v1/chat/completions"
    for body in (b'{"model": "smol", "prompt": "' + marker.encode(), marker.encode()):
        await product.session.post(url, data=body, headers={"content-type": "application/json"})
    services = [name for name in product.cluster.children if not name.startswith("engine")]

    def logs() -> list[str]:
        return [product.cluster.children[name].log.read_text() for name in services]

    # Spans are exported in batches, in the order in which they end: this one is the last.
    last = f"{random.getrandbits(128):032x}"
    await product.picked("the last", headers={"traceparent": f"00-{last}-00f067aa0ba902b7-00"})

    async def exported() -> bool:
        return any(last in log for log in logs())

    await until(exported)
    pages = ["/metrics", "/api/v1/endpoints", "/api/v1/status", "/api/v1/clients"]
    found = [await product.text(product.cluster.admin_address, page) for page in pages]
    if product.cluster.settings.router == "apart":
        found += [await product.text(product.cluster.ext_proc_admin_address, "/metrics")]
    assert any("warmroute.pick" in log for log in logs()), "no span was exported, so nothing was looked at"
    for text in (*found, *logs()):
        assert marker not in text


@contextlib.asynccontextmanager
async def _steady(product: Product) -> AsyncIterator[list[Answer]]:
    """Send requests of mixed prompts, fifty a second; all are answered when the context has ended."""
    answers: list[Answer] = []
    ending = asyncio.Event()

    async def one(number: int) -> None:
        answers.append(await product.chat(words(100, number % 7), max_tokens=4))

    async def send() -> None:
        async with asyncio.TaskGroup() as tasks:
            number = 0
            while not ending.is_set():
                tasks.create_task(one(number))
                number += 1
                await asyncio.sleep(0.02)

    sending = asyncio.create_task(send())
    try:
        yield answers
        ending.set()
        await sending
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
