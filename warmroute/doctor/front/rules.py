"""The rules about a proxy in front of an Envoy, by name. The dict `RULES` is the only registration.

The fix of a finding is that of the proxy's own setting, with the page of its documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.front.facts import Concern
from warmroute.doctor.rule import Finding, Severity, rule
from warmroute.doctor.units import seconds, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.front.facts import Facts, Setting, Way
    from warmroute.doctor.rule import Context, Rule


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


def _settings(facts: Facts, context: Context, concern: Concern) -> Iterator[Setting]:
    for way in ways(facts, context):
        yield from (setting for setting in way.settings if setting.knob.concern is concern)


def _finding(severity: Severity, setting: Setting, what: str = "") -> Finding:
    shown = f"{setting.shown}, {what}" if what else setting.shown
    return Finding(severity, setting.where, shown, fix=f"{setting.knob.fix} ({setting.knob.page})")


_SEE: Final = "See the page that the finding names."
"""In a finding, the fix of the setting takes its place."""


@rule(
    title="answers that wait in buffers",
    why="Token streams reach the client in bursts or at their end, and the time to the first token is lost.",
    fix=_SEE,
)
def response_buffering(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find settings that hold answers back."""
    for setting in _settings(facts, context, Concern.HOLDS_ANSWERS):
        if setting.value:
            yield _finding(Severity.ERROR, setting)


@rule(
    title="answers that pile up for slow clients",
    why="The proxy takes an answer faster than its client reads it, into memory and files, and a filter that "
    "works on bodies may hold it there. Clients that read at once get tokens at once.",
    fix=_SEE,
)
def slow_clients(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find settings that let answers pile up."""
    for setting in _settings(facts, context, Concern.PILES_ANSWERS):
        if setting.value:
            yield _finding(Severity.NOTE, setting)


@rule(
    title="a limit on request bodies below the longest prompt",
    why="The proxy refuses a longer body (413) before Envoy sees it.",
    fix=_SEE,
)
def body_limit(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare each limit with the longest body that must pass."""
    longest = context.longest_prompt_bytes
    for setting in _settings(facts, context, Concern.BODY_BYTES):
        if setting.value < longest:
            yield _finding(Severity.ERROR, setting, f"but bodies of up to {size(longest)} come here")


_LINE_BYTES: Final = 8000
"""RFC 9112, section 3: senders and recipients should support request lines of at least 8,000 octets."""


@rule(
    title="a limit on request headers under 8,000 bytes",
    why="Tokens of identity providers and long cookies do not fit: the proxy answers 400, 414 or 431.",
    fix=_SEE,
)
def header_limit(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare each limit with the length that RFC 9112 recommends."""
    for setting in _settings(facts, context, Concern.HEADER_BYTES):
        if setting.value < _LINE_BYTES:
            yield _finding(Severity.WARNING, setting)


_SHORT_SECONDS: Final = 60.0
_LONG_SECONDS: Final = 300.0
"""Some thousands of tokens at the pace of a loaded engine."""


def _under_answers(setting: Setting, p99: float | None) -> Finding | None:
    """Judge a limit that an answer can reach: by P99 where it is available, otherwise by long answers."""
    if p99 is not None:
        if setting.value <= p99:
            return _finding(Severity.ERROR, setting, f"under the P99 of {seconds(p99)}")
    elif setting.value <= _SHORT_SECONDS:
        return _finding(Severity.WARNING, setting)
    elif setting.value < _LONG_SECONDS:
        return _finding(Severity.NOTE, setting, "answers of thousands of tokens take longer")
    return None


@rule(
    title="a limit on the upstream's silence under the P99 of whole answers",
    why="Waiting in the engine's queue, a long prefill and an answer that is not streamed are all silence: "
    "the client gets 504, and the engine's work is lost.",
    fix=_SEE,
)
def silence_limit(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare each limit on silence with P99 or with long answers."""
    for setting in _settings(facts, context, Concern.SILENCE_SECONDS):
        if finding := _under_answers(setting, context.p99_seconds):
            yield finding


@rule(
    title="a limit on whole answers under their P99",
    why="The limit covers the answer to its last token: token streams are cut, however busy they are.",
    fix=_SEE,
)
def answer_limit(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare each limit on answers with P99 or with long answers."""
    for setting in _settings(facts, context, Concern.ANSWER_SECONDS):
        if finding := _under_answers(setting, context.p99_seconds):
            yield finding


_UPLOAD_SECONDS: Final = 30.0


@rule(
    title="less than 30 s for a request to arrive",
    why="A long prompt over a slow line takes longer than this to arrive whole.",
    fix=_SEE,
)
def upload_limit(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at the time for whole requests."""
    for setting in _settings(facts, context, Concern.UPLOAD_SECONDS):
        if setting.value < _UPLOAD_SECONDS:
            yield _finding(Severity.WARNING, setting)


@rule(
    title="HTTP/1.0 to the upstream",
    why="Each request opens a connection of its own, and WebSockets do not pass. An Envoy whose listener has "
    "no `accept_http_10` answers 426 to each request; Warmroute's listeners have it.",
    fix=_SEE,
)
def http10_upstream(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find ways that speak HTTP/1.0; with the ports of Warmroute's listeners, its Envoy is behind them."""
    severity = Severity.ERROR if context.ports is None else Severity.WARNING
    for setting in _settings(facts, context, Concern.OLD_HTTP):
        if setting.value:
            yield _finding(severity, setting)


_FEW_CONNECTIONS: Final = 8


@rule(
    title="few or no idle connections to the upstream",
    why="Each request beyond them opens a connection, with TLS a handshake too: first tokens are later, and "
    "a burst uses up local ports.",
    fix=_SEE,
)
def upstream_keepalive(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at how many idle connections are kept."""
    for setting in _settings(facts, context, Concern.KEPT_CONNECTIONS):
        if setting.value < _FEW_CONNECTIONS:
            yield _finding(Severity.NOTE if setting.value else Severity.WARNING, setting)


_ENVOY_SECONDS: Final = 3600.0
"""Envoy ends a client's idle connection after an hour (`common_http_protocol_options.idle_timeout`)."""


@rule(
    title="idle connections that outlive Envoy's own limit of an hour",
    why="A request that meets a connection which Envoy is just closing fails, now and then, on quiet ways.",
    fix=_SEE,
)
def upstream_idle(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare the time that idle connections are kept with Envoy's."""
    for setting in _settings(facts, context, Concern.KEPT_SECONDS):
        if setting.value >= _ENVOY_SECONDS:
            yield _finding(Severity.WARNING, setting)


@rule(
    title="retries of POST requests that the upstream has received",
    why="A POST that failed late has cost an engine its work, and perhaps used tools or been billed: a retry "
    "does it again, behind Envoy's own retries.",
    fix=_SEE,
)
def post_retries(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find retries of requests that may have had an effect."""
    for setting in _settings(facts, context, Concern.REPEATS_POSTS):
        if setting.value:
            yield _finding(Severity.WARNING, setting)


@rule(
    title="authentication and rate limits behind buffers, retries or work on bodies",
    why="Requests that are going to be refused are read, rewritten or repeated first.",
    fix=_SEE,
)
def guard_order(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find guards that stand too late."""
    for setting in _settings(facts, context, Concern.LATE_GUARD):
        if setting.value:
            yield _finding(Severity.WARNING, setting)


_FEW_STREAMS: Final = 100
"""RFC 9113, section 6.5.2, recommends at least 100."""


@rule(
    title="fewer than 100 HTTP/2 streams on a client's connection",
    why="An LLM request holds its stream for minutes. A gateway or client library with one connection waits, "
    "or gets REFUSED_STREAM.",
    fix=_SEE,
)
def client_streams(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at the streams on a client's connection."""
    for setting in _settings(facts, context, Concern.CLIENT_STREAMS):
        if setting.value < _FEW_STREAMS:
            yield _finding(Severity.WARNING, setting)


@rule(
    title="WebSocket handshakes that do not pass",
    why="`/v1/realtime` and its like get an ordinary request's answer in the place of 101.",
    fix=_SEE,
)
def websocket_headers(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find ways that drop the headers of a handshake."""
    for setting in _settings(facts, context, Concern.WEBSOCKETS):
        if not setting.value:
            yield _finding(Severity.NOTE, setting)


@rule(
    title="requests that go on after their client has left",
    why="The engine computes the rest of an answer that nobody reads, and other requests wait for it.",
    fix=_SEE,
)
def client_aborts(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find ways that keep the upstream's request after the client's end."""
    for setting in _settings(facts, context, Concern.OUTLIVES_CLIENTS):
        if setting.value:
            yield _finding(Severity.WARNING, setting)


@rule(
    title="parts that the configuration names and that are not there",
    why="The doctor judges without them: their settings may be traps, or mend one.",
    fix="Run the doctor on the proxy's own host, or copy these parts as well.",
)
def unread_parts(facts: Facts, context: Context) -> Iterator[Finding]:
    """List what was not there to read."""
    del context
    for part in facts.unread:
        yield Finding(Severity.NOTE, part.where, part.what)


RULES: Final[dict[str, Rule[Facts]]] = {
    "response-buffering": response_buffering,
    "slow-clients": slow_clients,
    "body-limit": body_limit,
    "header-limit": header_limit,
    "silence-limit": silence_limit,
    "answer-limit": answer_limit,
    "upload-limit": upload_limit,
    "http10-upstream": http10_upstream,
    "upstream-keepalive": upstream_keepalive,
    "upstream-idle": upstream_idle,
    "post-retries": post_retries,
    "guard-order": guard_order,
    "client-streams": client_streams,
    "websocket-headers": websocket_headers,
    "client-aborts": client_aborts,
    "unread-parts": unread_parts,
}
