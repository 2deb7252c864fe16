"""Leading lines that engines strip do not count; all other text does. Media with a name are that name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ext_proc.prompt.decode import BodyReader, Prompt
from ext_proc.prompt.text import MEDIA_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

LINE = "x-anthropic-billing-header: cc_version=1.{}; note=a\\b;"
REST = "You are terse.\nAnswer with one word."
USER = {"role": "user", "content": "Hi"}


def text_of(body: dict[str, Any], *, complete: bool = True, lines: tuple[str, ...] = ()) -> bytes:
    prompt = BodyReader((), lines).read(json.dumps(body).encode(), complete=complete).prompt
    assert isinstance(prompt, Prompt), prompt
    return prompt.text


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def in_chat(system: object, role: str = "system") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": system}, USER]}


FORMS: dict[str, Callable[[object], dict[str, Any]]] = {
    "messages": lambda system: {"system": system, "messages": [USER]},
    "chat": in_chat,
    "developer": lambda system: in_chat(system, "developer"),
    "instructions": lambda system: {"instructions": system, "input": "Hi"},
    "input": lambda system: {"input": [{"role": "system", "content": system}, USER]},
    "with tools": lambda system: {"system": system, "messages": [USER], "tools": [{"name": "t"}]},
}


@pytest.mark.parametrize("form", FORMS)
def test_stripped_lines_do_not_count(form: str) -> None:
    made, line = FORMS[form], LINE.format
    plain = text_of(made(REST))
    for system in (
        f"{line(1)}\n{REST}",
        f"{line(1)}\n{line(2)}\n{REST}",
        parts(line(1), REST),
        parts(f"{line(1)}\n", line(2), REST),
        parts(f"{line(1)}\n{REST}"),
    ):
        assert text_of(made(system)) == plain
    assert text_of(made(line(1))) == text_of(made(line(22)))


@pytest.mark.parametrize("form", FORMS)
def test_elsewhere_the_same_line_counts(form: str) -> None:
    made = FORMS[form]
    for system in ("{}\n" + REST, REST + "\n{}", " {}", "X-Anthropic-Billing-Header: {}"):
        texts = {text_of(made(system.format(LINE.format(number)))) for number in (1, 2)}
        counted = not system.startswith("{}")
        assert len(texts) == 1 + counted


def test_a_users_message_is_no_system_prompt() -> None:
    texts = {text_of({"messages": [{"role": "user", "content": LINE.format(n)}]}) for n in (1, 2)}
    assert len(texts) == 2


def test_the_settings_name_further_lines() -> None:
    bodies = [in_chat(f"trace-id: {number}\n{LINE.format(number)}\n{REST}") for number in (1, 2)]
    assert len({text_of(body) for body in bodies}) == 2
    assert {text_of(body, lines=("trace-id:",)) for body in bodies} == {text_of(in_chat(REST))}


def test_a_cut_system_prompt_is_the_beginning_of_the_whole() -> None:
    body = json.dumps({"system": f"{LINE.format(1)}\n{REST}", "messages": [USER]}).encode()
    whole = BodyReader().read(body, complete=True).prompt
    assert isinstance(whole, Prompt)
    for end in range(body.index(b"cc_version"), len(body)):
        cut = BodyReader().read(body[:end], complete=False).prompt
        if isinstance(cut, Prompt):
            assert whole.text.startswith(cut.text)


def image(url: str | None, name: object) -> bytes:
    block = {"type": "image_url", "image_url": url and {"url": url}, "uuid": name}
    return text_of({"messages": [{"role": "user", "content": [block]}]})


def test_a_named_image_is_its_name_whatever_its_url() -> None:
    assert image("https://a.example/1", "i") == image("https://a.example/2", "i") == image(None, "i")
    one, other = image(None, "i"), image(None, "j")
    start = len(one) - MEDIA_BYTES
    assert one[:start] == other[:start]
    assert one[start : start + 32] != other[start : start + 32]
    assert image("https://a.example/1", None) != image("https://a.example/2", None)
