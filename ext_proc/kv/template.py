"""Chats to text by the model's own chat template, as engines render it, in Jinja's sandbox.

The environment is that of Hugging Face's `apply_chat_template`, which the engines use. The operator chooses
the template, clients choose the request: messages are bounded, and every exception of a template is one
`TemplateFailedError`.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ext_proc.kv.tools import TemplateFailedError, Tools, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2 import Template

MAX_MESSAGES: Final = 512
MAX_JSON_MARKS: Final = 8192
"""Commas and opening brackets of values that templates write as JSON, which is most of their work."""
_TRAINING_TAGS: Final = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""Tags for training, which render as nothing."""
_LOOKS_AT_PARTS: Final = re.compile(
    r"for\s+\w+\s+in\s+(?:content\b|\w+\.content\b|\w+\[\s*['\"]content['\"]\s*\])"
)
_SPECIALS: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")
_OTHER_RENDERING: Final = ("chat_template", "documents", "system", "continue_final_message")
"""Members with which an engine does not render by the model's template alone, or that are not OpenAI's."""


class ChatTemplate:
    """One model's chat template."""

    def __init__(self, source: str, specials: dict[str, str]) -> None:
        """Compile it.

        Raises:
            ImportError: the extra `kv-events` is not installed.
            jinja2.TemplateError: it is no template.
        """
        self._template = _compiled(source)
        self._specials = specials
        self._takes_parts = _LOOKS_AT_PARTS.search(source) is not None

    @classmethod
    def load(cls, path: Path) -> ChatTemplate:
        """Load from a `tokenizer_config.json`, or from a file that is the template.

        Templates' special tokens come from `tokenizer_config.json`: the file, or the one next to it.

        Raises:
            OSError, ValueError: it cannot be read, or contains no template.
        """
        config_path = path if path.suffix == ".json" else path.with_name("tokenizer_config.json")
        config: dict[str, Any] = json.loads(config_path.read_text()) if config_path.exists() else {}
        source = config.get("chat_template") if path.suffix == ".json" else path.read_text()
        if isinstance(source, list):
            source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
        if not isinstance(source, str):
            raise ValueError(f"{path}: no chat_template in it")  # noqa: TRY004 - the file is wrong
        return cls(source, {name: _content(config[name]) for name in _SPECIALS if config.get(name)})

    def render(self, request: dict[str, Any], marks: int = 0) -> str:
        """Return the text that the engine tokenises for a chat request.

        `marks` are the commas and opening brackets of its tools and template arguments.

        Raises:
            TemplateFailedError: it is unknown here.
        """
        if any(request.get(name) for name in _OTHER_RENDERING):
            raise TemplateFailedError
        messages, more = request["messages"], request.get("chat_template_kwargs") or {}
        tools = request.get("tools")
        if not isinstance(messages, list) or len(messages) > MAX_MESSAGES or not isinstance(more, dict):
            raise TemplateFailedError
        # After decoding: escapes hide them in the body.
        if marks + sum(map(_marks_of_calls, messages)) > MAX_JSON_MARKS:
            raise TemplateFailedError
        values = {
            **self._specials,
            "documents": None,
            "tools": tools if isinstance(tools, Tools) else Tools(tools) if tools else None,
            "add_generation_prompt": request.get("add_generation_prompt", True),
            **{name: value for name, value in more.items() if isinstance(name, str)},
            "messages": [self._message(message) for message in messages],
        }
        try:
            return self._template.render(values)
        # A template is foreign code that runs on a client's values: it may raise anything.
        except Exception as error:
            raise TemplateFailedError from error

    def _message(self, message: object) -> dict[str, Any]:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise TemplateFailedError
        rendered = {**message, "content": self._content(message.get("content"))}
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            rendered["tool_calls"] = [_call(call) for call in calls]
        return rendered

    def _content(self, content: object) -> object:
        if content is None:
            return ""
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if self._takes_parts else content
        if not isinstance(content, list):
            raise TemplateFailedError
        texts = []
        for part in content:
            text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
            if not isinstance(text, str):
                raise TemplateFailedError
            texts.append(text)
        return [{"type": "text", "text": text} for text in texts] if self._takes_parts else "\n".join(texts)


def _compiled(source: str) -> Template:
    from jinja2.ext import loopcontrols  # noqa: PLC0415 (an extra)
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    return environment.from_string(_TRAINING_TAGS.sub("", source))


def _refuse(text: str) -> None:
    raise TemplateFailedError(text)


def _content(token: object) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def _marks_of_calls(message: object) -> int:
    """Count commas and opening brackets of arguments that are strings."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    texts = [_arguments(call) for call in calls] if isinstance(calls, list) else []
    return sum(text.count(mark) for text in texts if text is not None for mark in ",[{")


def _arguments(call: object) -> str | None:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    return arguments if isinstance(arguments, str) else None


def _call(call: Any) -> object:
    """Return a tool call with its arguments as an object, which templates expect."""
    arguments = _arguments(call)
    if arguments is None:
        return call
    try:
        value = msgspec.json.decode(arguments) if arguments else {}
    except (ValueError, RecursionError):  # A DecodeError is a ValueError.
        raise TemplateFailedError from None
    return {**call, "function": {**call["function"], "arguments": value}}
