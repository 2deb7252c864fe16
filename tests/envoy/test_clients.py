"""What real clients send changes no engine without reason, through the real Envoy."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.envoy.conftest import eventually
from tests.envoy.storing import Storing, behind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.envoy.storing import Door

pytestmark = pytest.mark.io

DATA = "data:image/png;base64,"


def words(count: int, seed: object) -> str:
    draw = random.Random(str(seed))
    return " ".join(draw.choice(["river", "stone", "window", "cloud"]) for _ in range(count))


async def ask(door: Door, path: str, body: dict[str, Any], **more: Any) -> tuple[float, str]:
    """Return the matched share and the engine."""
    status, _ = await door.call("POST", path, {"model": "m", **body}, **more)
    assert status == 200
    return door.matched, door.served


@pytest.mark.parametrize("form", ["parts", "string", "chat"])
async def test_a_line_that_engines_strip_changes_no_engine(tmp_path: Path, form: str) -> None:
    system = words(3500, "system")
    async with behind(tmp_path, Storing()) as door:
        answers = []
        for number in range(8):
            line = f"x-anthropic-billing-header: cc_version=0.0.{number}; cch={number * 7919:05x};"
            body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
            if form == "parts":
                body["system"] = [{"type": "text", "text": text} for text in (line, system)]
            elif form == "string":
                body["system"] = f"{line}\n{system}"
            else:
                body["messages"].insert(0, {"role": "system", "content": f"{line}\n{system}"})
            path = "/v1/chat/completions" if form == "chat" else "/v1/messages"
            answers.append(await ask(door, path, body))
        assert [matched for matched, _ in answers] == [0.0] + [1.0] * 7
        assert len({engine for _, engine in answers}) == 1


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("first", ["model", "messages"])
async def test_a_conversation_beyond_a_mebibyte_keeps_its_engine(tmp_path: Path, first: str) -> None:
    """Official Python clients write the messages first: the leading part shows neither model nor tools."""
    async with behind(tmp_path, Storing()) as door:
        messages = [{"role": "system", "content": words(3500, "system")}]
        tools = [{"type": "function", "function": {"name": words(300, "tool")}}]
        members = {"model": "m", "tools": tools, "messages": messages}
        body = members if first == "model" else dict(reversed(members.items()))
        answers = []
        for turn in range(13):
            messages.append({"role": "user", "content": f"{turn} {words(17_000, turn)}"})
            status, _ = await door.call("POST", "/v1/chat/completions", body)
            answers.append((status, door.reason, door.served))
            assert turn < 4 or door.matched > 0.7, turn
            messages.append({"role": "assistant", "content": "ok"})
        assert len(json.dumps(messages)) > 1.2 * 2**20
        assert len(set(answers[1:])) == 1, answers


async def test_an_image_is_its_name_alone(tmp_path: Path) -> None:
    """Each second turn names the image without its data, and is warm where the image is."""
    async with behind(tmp_path, Storing()) as door:
        for number in range(8):

            def turn(url: str | None, *more: object, number: int = number) -> dict[str, Any]:
                image = {"type": "image_url", "image_url": url and {"url": url}, "uuid": f"image-{number}"}
                text = {"type": "text", "text": words(300, number)}
                return {"messages": [{"role": "user", "content": [image, text]}, *more]}

            more = ({"role": "assistant", "content": "ok"}, {"role": "user", "content": "Which colour?"})
            matched, engine = await ask(door, "/v1/chat/completions", turn(DATA + words(1000, number)))
            assert matched == 0.0
            for url in (None, f"https://images.example/?signature={number}"):
                matched, then = await ask(door, "/v1/chat/completions", turn(url, *more))
                assert (matched > 0.95, then) == (True, engine)


async def test_two_names_of_one_model_share_warmth(tmp_path: Path) -> None:
    """An adapter, which the engine lists with a parent, does not."""
    engines = Storing()
    engines.models = {"m": {}, "m-alias": {}, "lora": {"parent": "m"}}
    models: dict[str, Any] = {"models": list(engines.models), "joining": {"probe": "models"}}
    async with behind(tmp_path, engines, **models) as door:

        def listed() -> bool:
            view = door.site.ext_proc._director.view
            return view is not None and all(end.own_names for end in view.membership.endpoints)

        await eventually(listed, "names are listed")
        system = {"role": "system", "content": words(3500, "both teams")}
        body = {"messages": [system, {"role": "user", "content": "Hi"}]}
        answers = [
            await ask(door, "/v1/chat/completions", {**body, "model": model})
            for model in ("m", "m-alias", "m", "m-alias", "lora")
        ]
        assert [matched for matched, _ in answers] == [0.0, 1.0, 1.0, 1.0, 0.0]
        assert len({engine for _, engine in answers[:4]}) == 1


@pytest.mark.parametrize(
    "named",
    [
        {"headers": {"x-claude-code-session-id": "{}"}},
        {"headers": {"session_id": "{}"}},
        {"headers": {"x-chat": "{}"}},
        {"body": {"prompt_cache_key": "{}"}},
        {"body": {"metadata": {"user_id": "{}"}}},
        {"body": {"chat": {"id": "{}"}}},
    ],
    ids=str,
)
async def test_a_hard_session_stays_at_its_engine(tmp_path: Path, named: dict[str, Any]) -> None:
    """Whatever names it, and however much is warm elsewhere."""

    def of(session: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: of(session, inner) for key, inner in value.items()}
        return value.format(session)

    sessions = {"mode": "hard", "headers": ["x-chat"], "fields": ["chat.id"]}
    async with behind(tmp_path, Storing(), ext_proc={"pick": {"sessions": sessions}}) as door:
        engines: dict[str, set[str]] = {}
        for number in range(36):
            session = f"s{number % 6}"
            # Half of the turns share a prompt that is warm at one engine.
            text = words(900, number if number % 4 < 2 else "shared")
            more = of(session, named)
            body = {"messages": [{"role": "user", "content": text}], **more.get("body", {})}
            _, engine = await ask(door, "/v1/chat/completions", body, headers=more.get("headers", {}))
            engines.setdefault(session, set()).add(engine)
            assert number < 6 or door.reason == "session"
        assert all(len(used) == 1 for used in engines.values())
