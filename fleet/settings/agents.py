"""How known coding agents name their sessions: data for `ext_proc.pick.sessions.agents`.

An agent that names them in headers and in bodies has both here: routes read headers alone.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

AgentName = Literal["claude-code", "codex", "opencode", "qwen-code", "litellm"]


class Agent(NamedTuple):
    """Where an agent's requests name their session."""

    headers: tuple[str, ...]
    fields: tuple[str, ...]
    """Of the body, nested ones with dots."""


AGENTS: Final[dict[AgentName, Agent]] = {
    "claude-code": Agent(("x-claude-code-session-id",), ("metadata.user_id",)),
    "codex": Agent(("session-id", "session_id"), ("prompt_cache_key",)),
    "opencode": Agent(("x-session-affinity", "x-opencode-session"), ("prompt_cache_key",)),
    "qwen-code": Agent(("x-qwen-code-session-id",), ("metadata.sessionId",)),
    "litellm": Agent(("x-litellm-session-id",), ("metadata.session_id",)),
}
