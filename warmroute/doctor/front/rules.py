"""The rules about a proxy in front of an Envoy, by name. The dict `RULES` is the only registration.

Most rules judge the settings of one concern, each by its value. The fix of a finding is that of the proxy's
own setting, with the page of its documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.front.facts import Concern
from warmroute.doctor.rule import Finding, Rule, Severity
from warmroute.doctor.units import seconds, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from warmroute.doctor.front.facts import Facts, Way
    from warmroute.doctor.rule import Context

    Judge: TypeAlias = Callable[[float, Context], tuple[Severity, str] | None]
    """Value and context to severity and figures for the reader; None: no finding."""

_LINE_BYTES: Final = 8000
"""RFC 9112, section 3: senders and recipients should support request lines of at least 8,000 octets."""
_SHORT_SECONDS: Final = 60.0
_LONG_SECONDS: Final = 300.0
"""Some thousands of tokens at the pace of a loaded engine."""
_UPLOAD_SECONDS: Final = 30.0
_FEW_CONNECTIONS: Final = 8
_ENVOY_SECONDS: Final = 3600.0
"""Envoy ends a client's idle connection after an hour (`common_http_protocol_options.idle_timeout`)."""
_FEW_STREAMS: Final = 100
"""RFC 9113, section 6.5.2, recommends at least 100."""


def ways(facts: Facts, context: Context) -> Iterator[Way]:
    """Every way, or with `context.ports` those whose upstream has such a port or an unknown one."""
    for way in facts.ways:
        if context.ports is None or way.ports is None or way.ports & context.ports:
            yield way


def coverage(facts: Facts, context: Context) -> dict[str, int]:
    """Counts of the examined parts; routes only to the ports of `context`."""
    judged = list(ways(facts, context))
    return {
        "files": facts.files,
        "routes": len(judged),
        "upstreams": len({way.upstream for way in judged}),
    }


def _about(concern: Concern, judge: Judge, *, title: str, why: str) -> Rule[Facts]:
    """Return the rule that judges the settings of a concern."""

    def check(facts: Facts, context: Context) -> Iterator[Finding]:
        for way in ways(facts, context):
            for setting in way.settings:
                if setting.knob.concern is concern and (judged := judge(setting.value, context)):
                    severity, figures = judged
                    text = f"{setting.shown}, {figures}" if figures else setting.shown
                    yield Finding(
                        severity, setting.where, text, fix=f"{setting.knob.fix} ({setting.knob.page})"
                    )

    return Rule(title, why, "See the page that the finding names.", check)


def _if_on(severity: Severity) -> Judge:
    return lambda value, _: (severity, "") if value else None


def _if_off(severity: Severity) -> Judge:
    return lambda value, _: None if value else (severity, "")


def _under(least: float) -> Judge:
    return lambda value, _: (Severity.WARNING, "") if value < least else None


def _body(limit: float, context: Context) -> tuple[Severity, str] | None:
    longest = context.longest_prompt_bytes
    return (Severity.ERROR, f"but bodies of up to {size(longest)} come here") if limit < longest else None


def _answer(limit: float, context: Context) -> tuple[Severity, str] | None:
    """Judge a limit that an answer can reach: by P99 where it is available, otherwise by long answers."""
    p99 = context.p99_seconds
    if p99 is not None:
        return (Severity.ERROR, f"under the P99 of {seconds(p99)}") if limit <= p99 else None
    if limit <= _SHORT_SECONDS:
        return Severity.WARNING, ""
    return (Severity.NOTE, "answers of thousands of tokens take longer") if limit < _LONG_SECONDS else None


def _old_http(on: float, context: Context) -> tuple[Severity, str] | None:
    """With the ports of Warmroute's listeners, its Envoy is behind the proxy, which serves HTTP/1.0."""
    return (Severity.ERROR if context.ports is None else Severity.WARNING, "") if on else None


def _connections(count: float, _: Context) -> tuple[Severity, str] | None:
    if count >= _FEW_CONNECTIONS:
        return None
    return Severity.NOTE if count else Severity.WARNING, ""


def _idle(limit: float, _: Context) -> tuple[Severity, str] | None:
    return (Severity.WARNING, "") if limit >= _ENVOY_SECONDS else None


def _unread_parts(facts: Facts, _: Context) -> Iterator[Finding]:
    for part in facts.unread:
        yield Finding(Severity.NOTE, part.where, part.what)


RULES: Final[dict[str, Rule[Facts]]] = {
    "response-buffering": _about(
        Concern.HOLDS_ANSWERS,
        _if_on(Severity.ERROR),
        title="answers that wait in buffers",
        why="Token streams reach the client in bursts or at their end, and the time to the first token"
        " is lost.",
    ),
    "slow-clients": _about(
        Concern.PILES_ANSWERS,
        _if_on(Severity.NOTE),
        title="answers that pile up for slow clients",
        why="The proxy takes an answer faster than its client reads it, into memory and files, and a "
        "filter that works on bodies may hold it there. Clients that read at once get tokens at "
        "once.",
    ),
    "body-limit": _about(
        Concern.BODY_BYTES,
        _body,
        title="a limit on request bodies below the longest prompt",
        why="The proxy refuses a longer body (413) before Envoy sees it.",
    ),
    "header-limit": _about(
        Concern.HEADER_BYTES,
        _under(_LINE_BYTES),
        title="a limit on request headers under 8,000 bytes",
        why="Tokens of identity providers and long cookies do not fit: the proxy answers 400, 414 or 431.",
    ),
    "silence-limit": _about(
        Concern.SILENCE_SECONDS,
        _answer,
        title="a limit on the upstream's silence under the P99 of whole answers",
        why="Waiting in the engine's queue, a long prefill and an answer that is not streamed are all "
        "silence: the client gets 504, and the engine's work is lost.",
    ),
    "answer-limit": _about(
        Concern.ANSWER_SECONDS,
        _answer,
        title="a limit on whole answers under their P99",
        why="The limit covers the answer to its last token: token streams are cut, however busy they are.",
    ),
    "upload-limit": _about(
        Concern.UPLOAD_SECONDS,
        _under(_UPLOAD_SECONDS),
        title="less than 30 s for a request to arrive",
        why="A long prompt over a slow line takes longer than this to arrive whole.",
    ),
    "http10-upstream": _about(
        Concern.OLD_HTTP,
        _old_http,
        title="HTTP/1.0 to the upstream",
        why="Each request opens a connection of its own, and WebSockets do not pass. An Envoy whose "
        "listener has no `accept_http_10` answers 426 to each request; Warmroute's listeners have "
        "it.",
    ),
    "upstream-keepalive": _about(
        Concern.IDLE_CONNECTIONS,
        _connections,
        title="few or no idle connections to the upstream",
        why="Each request beyond them opens a connection, with TLS a handshake too: first tokens are "
        "later, and a burst uses up local ports.",
    ),
    "upstream-idle": _about(
        Concern.IDLE_SECONDS,
        _idle,
        title="idle connections that outlive Envoy's own limit of an hour",
        why="A request that meets a connection which Envoy is just closing fails, now and then, on "
        "quiet ways.",
    ),
    "post-retries": _about(
        Concern.REPEATS_POSTS,
        _if_on(Severity.WARNING),
        title="retries of POST requests that the upstream has received",
        why="A POST that failed late has cost an engine its work, and perhaps used tools or been "
        "billed: a retry does it again, behind Envoy's own retries.",
    ),
    "guard-order": _about(
        Concern.LATE_GUARD,
        _if_on(Severity.WARNING),
        title="authentication and rate limits behind buffers, retries or work on bodies",
        why="Requests that are going to be refused are read, rewritten or repeated first.",
    ),
    "client-streams": _about(
        Concern.CLIENT_STREAMS,
        _under(_FEW_STREAMS),
        title="fewer than 100 HTTP/2 streams on a client's connection",
        why="An LLM request holds its stream for minutes. A gateway or client library with one "
        "connection waits, or gets REFUSED_STREAM.",
    ),
    "websocket-headers": _about(
        Concern.WEBSOCKETS,
        _if_off(Severity.NOTE),
        title="WebSocket handshakes that do not pass",
        why="`/v1/realtime` and its like get an ordinary request's answer instead of 101.",
    ),
    "client-aborts": _about(
        Concern.OUTLIVES_CLIENTS,
        _if_on(Severity.WARNING),
        title="requests that go on after their client has left",
        why="The engine computes the rest of an answer that nobody reads, and other requests wait for it.",
    ),
    "unread-parts": Rule(
        "parts that the configuration names and that are not there",
        "The doctor judges without them: their settings may be traps, or remove one.",
        "Run the doctor on the proxy's own host, or copy these parts as well.",
        _unread_parts,
    ),
}
