"""nginx: from what the parser `crossplane` returns to ways and settings.

Defaults and meanings are those of the pages that each knob names. nginx 1.29.7 changed two defaults
(HTTP/1.1 and kept connections to upstreams); a configuration does not name its version, so the older, worse
defaults count here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from warmroute.doctor.front.facts import Concern, Facts, Knob, Setting, Unread, Way
from warmroute.doctor.rule import DoctorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_DOCS: Final = "https://nginx.org/en/docs/http"
_CORE: Final = f"{_DOCS}/ngx_http_core_module.html"
_PROXY: Final = f"{_DOCS}/ngx_http_proxy_module.html"
_UPSTREAM: Final = f"{_DOCS}/ngx_http_upstream_module.html"
_HTTP2: Final = f"{_DOCS}/ngx_http_v2_module.html"

_SECONDS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "M": 2592000.0,
    "y": 31536000.0,
}
_TIME: Final = re.compile(r"(\d{1,12})(ms|[smhdwMy]?)(?:\s+|$|(?=\d))", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,15})([kKmMgG]?)", re.ASCII)
_PORT: Final = re.compile(r":(\d{1,5})$", re.ASCII)
_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive of nginx, includes resolved."""

    name: str
    args: tuple[str, ...]
    file_line: str
    block: tuple[Directive, ...] | None = None

    @property
    def where(self) -> str:
        """File, line and name; of a block also its arguments."""
        return " ".join((self.file_line, self.name, *(self.args if self.block is not None else ())))


def time_of(text: str) -> float | None:
    """Read nginx's time, such as `60s` or `1h 30m`, in seconds; None if it is none."""
    parts = [(part.group(1), part.group(2)) for part in _TIME.finditer(text)]
    if not parts or _TIME.sub("", text).strip():
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def size_of(text: str) -> int | None:
    """Read nginx's size, such as `8k`, in bytes; None if it is none."""
    match = _SIZE.fullmatch(text)
    return int(match.group(1)) * _BYTES[match.group(2).lower()] if match else None


def _time(args: Sequence[str]) -> float | None:
    return time_of(" ".join(args))


def _body(args: Sequence[str]) -> float | None:
    size = size_of(args[0])
    return math.inf if size == 0 else size


def _on(args: Sequence[str]) -> float:
    return args[0] == "on"


@dataclass(frozen=True, slots=True)
class Simple:
    """A directive whose value needs nothing but its arguments."""

    knob: Knob
    default: str
    """The arguments that hold where nothing is written."""
    value: Callable[[Sequence[str]], float | None]
    """Its arguments to the value; None: not readable, for example a variable."""
    note: str = ""


SIMPLE: Final = {
    "proxy_buffering": Simple(
        Knob(
            Concern.PILES_ANSWERS,
            "`proxy_buffering off;` in this location.",
            f"{_PROXY}#proxy_buffering",
        ),
        "on",
        _on,
    ),
    "client_max_body_size": Simple(
        Knob(
            Concern.BODY_BYTES,
            "`client_max_body_size 0;` for no limit, or at least the longest prompt.",
            f"{_CORE}#client_max_body_size",
        ),
        "1m",
        _body,
    ),
    "large_client_header_buffers": Simple(
        Knob(
            Concern.HEADER_BYTES,
            "`large_client_header_buffers 4 16k;`, or leave it at its default of `4 8k`.",
            f"{_CORE}#large_client_header_buffers",
        ),
        "4 8k",
        lambda args: size_of(args[-1]),
    ),
    "proxy_read_timeout": Simple(
        Knob(
            Concern.SILENCE_SECONDS,
            "`proxy_read_timeout 3600s;`, above the longest silence.",
            f"{_PROXY}#proxy_read_timeout",
        ),
        "60s",
        _time,
    ),
    "proxy_http_version": Simple(
        Knob(
            Concern.OLD_HTTP,
            "`proxy_http_version 1.1;`",
            f"{_PROXY}#proxy_http_version",
        ),
        "1.0",
        lambda args: args[0] == "1.0",
        " before nginx 1.29.7",
    ),
    "proxy_next_upstream": Simple(
        Knob(
            Concern.REPEATS_POSTS,
            "Leave `non_idempotent` out: `proxy_next_upstream error timeout;`",
            f"{_PROXY}#proxy_next_upstream",
        ),
        "error timeout",
        lambda args: "non_idempotent" in args,
    ),
    "http2_max_concurrent_streams": Simple(
        Knob(
            Concern.CLIENT_STREAMS,
            "Leave `http2_max_concurrent_streams` at its default of 128, or set more.",
            f"{_HTTP2}#http2_max_concurrent_streams",
        ),
        "128",
        lambda args: size_of(args[0]),
    ),
    "proxy_ignore_client_abort": Simple(
        Knob(
            Concern.OUTLIVES_CLIENTS,
            "`proxy_ignore_client_abort off;`, the default.",
            f"{_PROXY}#proxy_ignore_client_abort",
        ),
        "off",
        _on,
    ),
}
_GZIP: Final = Knob(
    Concern.HOLDS_ANSWERS,
    "`proxy_buffering off;` in this location, or `gzip_types` without `text/event-stream` and `*`.",
    f"{_DOCS}/ngx_http_gzip_module.html#gzip_types",
)
_STREAMS: Final = frozenset({"*", "text/event-stream"})
_CLOSE: Final = Knob(
    Concern.IDLE_CONNECTIONS,
    '`proxy_set_header Connection "";`, or `$connection_upgrade` by a map whose value for an empty '
    "`$http_upgrade` is empty: `close` ends each connection after one request.",
    f"{_PROXY}#proxy_set_header",
)
_KEEPALIVE: Final = Knob(
    Concern.IDLE_CONNECTIONS,
    "`keepalive 64;` in an `upstream` block that this location passes requests to.",
    f"{_UPSTREAM}#keepalive",
)
_IDLE: Final = Knob(
    Concern.IDLE_SECONDS,
    "`keepalive_timeout 60s;` in the `upstream` block, the default.",
    f"{_UPSTREAM}#keepalive_timeout",
)
_UPGRADE: Final = Knob(
    Concern.WEBSOCKETS,
    "`proxy_set_header Upgrade $http_upgrade;` and `proxy_set_header Connection $connection_upgrade;`",
    "https://nginx.org/en/docs/http/websocket.html",
)
_BLOCKS: Final = frozenset({"server", "location", "if", "limit_except"})


def read(payloads: Sequence[Mapping[str, Any]]) -> Facts:
    """Read an nginx.

    Args:
        payloads: what `crossplane.parse` returns for each main file, uncombined; a file without an `http`
            block counts as that block's content.

    Raises:
        DoctorError: a file does not parse, or no location passes requests to an upstream.
    """
    unread = tuple(_unread(payloads))
    top = [entry for payload in payloads for entry in _directives(payload, 0, ())]
    inner = [entry for block in top if block.name == "http" for entry in block.block or ()]
    http = tuple(inner or top)
    upstreams = {entry.args[0]: entry for entry in http if entry.name == "upstream" and entry.args}
    maps = {entry.args[1]: entry for entry in http if entry.name == "map" and len(entry.args) > 1}
    ways = tuple(_ways((http,), "", upstreams, maps))
    if not ways:
        raise DoctorError(
            "no nginx location with `proxy_pass`, so nothing can be judged; allowed: nginx.conf or its folder"
        )
    return Facts(sum(len(payload["config"]) for payload in payloads), ways, unread)


def _unread(payloads: Sequence[Mapping[str, Any]]) -> Iterator[Unread]:
    """Includes that are not there; anything else that the parser refuses is an error."""
    for payload in payloads:
        for error in payload["errors"]:
            line = f":{error['line']}" if error["line"] else ""
            if not error.get("callback"):
                raise DoctorError(f"{error['error']}; `nginx -t` shows the same on its host")
            yield Unread(f"{error['file']}{line} include", str(error["error"]))


def _directives(payload: Mapping[str, Any], index: int, open_files: tuple[int, ...]) -> Iterator[Directive]:
    """Return a file's directives with the content of its includes in their places."""
    if index in open_files:
        raise DoctorError(f"{payload['config'][index]['file']} includes itself; end the circle")
    part = payload["config"][index]
    return _resolved(payload, part["file"], part["parsed"], (*open_files, index))


def _resolved(
    payload: Mapping[str, Any], file: str, entries: Sequence[Mapping[str, Any]], open_files: tuple[int, ...]
) -> Iterator[Directive]:
    for entry in entries:
        for included in entry.get("includes", ()):
            yield from _directives(payload, included, open_files)
        block = entry.get("block")
        inner = None if block is None else tuple(_resolved(payload, file, block, open_files))
        yield Directive(entry["directive"], tuple(entry["args"]), f"{file}:{entry['line']}", inner)


Chain = tuple[tuple[Directive, ...], ...]
"""The blocks around a place, the outermost first."""


def _in_force(chain: Chain, name: str) -> list[Directive]:
    """The directives of a name in the innermost block that has any, as nginx inherits them."""
    for block in reversed(chain):
        if entries := [entry for entry in block if entry.name == name and entry.args]:
            return entries
    return []


def _ways(
    chain: Chain, where: str, upstreams: Mapping[str, Directive], maps: Mapping[str, Directive]
) -> Iterator[Way]:
    for entry in chain[-1]:
        if entry.block is not None and entry.name in _BLOCKS:
            yield from _ways((*chain, entry.block), entry.where, upstreams, maps)
        elif entry.name == "proxy_pass" and entry.args:
            yield _way(chain, where or entry.where, entry.args[0], upstreams, maps)


def _way(
    chain: Chain,
    where: str,
    target: str,
    upstreams: Mapping[str, Directive],
    maps: Mapping[str, Directive],
) -> Way:
    scheme, _, rest = target.rpartition("://")
    authority = rest.partition("/")[0]
    upstream = upstreams.get(authority)
    servers = (
        [entry.args[0] for entry in upstream.block or () if entry.name == "server" and entry.args]
        if upstream
        else [authority]
    )
    settings = [
        *(setting for name in SIMPLE if (setting := _simple(chain, where, name)) is not None),
        *_compression(chain),
        *_header_settings(chain, where, maps),
    ]
    if "$" not in authority:
        settings += _upstream_settings(where, authority, upstream)
    ports = frozenset(_port(server, 443 if scheme == "https" else 80) for server in servers)
    readable = None if None in ports else frozenset(port for port in ports if port is not None)
    return Way(where, authority, readable, tuple(settings))


def _port(server: str, default: int) -> int | None:
    """An address's port; None for variables and Unix sockets."""
    if "$" in server or server.startswith("unix:"):
        return None
    match = _PORT.search(server)
    return int(match.group(1)) if match else default


def _simple(chain: Chain, where: str, name: str) -> Setting | None:
    simple = SIMPLE[name]
    if written := _in_force(chain, name):
        last = written[-1]
        value = simple.value(last.args)
        return None if value is None else Setting(simple.knob, value, last.where, " ".join(last.args))
    value = simple.value(simple.default.split())
    shown = f"not set, so {simple.default}{simple.note}"
    return None if value is None else Setting(simple.knob, value, f"{where} {name}", shown)


def _compression(chain: Chain) -> Iterator[Setting]:
    """Compressed event streams: gzip holds pieces back unless `proxy_buffering` is off (nginx 1.22)."""
    is_on = {
        name: [entry.args[0] for entry in _in_force(chain, name)] for name in ("gzip", "proxy_buffering")
    }
    for types in _in_force(chain, "gzip_types"):
        if _STREAMS & set(types.args) and is_on["gzip"] == ["on"] and is_on["proxy_buffering"] != ["off"]:
            yield Setting(_GZIP, 1, types.where, f"{' '.join(types.args)}, with gzip and proxy_buffering on")


def _header_settings(chain: Chain, where: str, maps: Mapping[str, Directive]) -> Iterator[Setting]:
    """Connections that `close` ends, and handshakes without their headers."""
    headers = {
        entry.args[0].lower(): entry for entry in _in_force(chain, "proxy_set_header") if len(entry.args) > 1
    }
    connection, upgrade = headers.get("connection"), headers.get("upgrade")
    if connection is None:
        yield Setting(
            _CLOSE, 0, f"{where} proxy_set_header Connection", "not set, so close before nginx 1.29.7"
        )
    elif _without_upgrade(value := connection.args[1], maps).lower() == "close":
        shown = value if value.lower() == "close" else f"{value}, which is close without an upgrade"
        yield Setting(_CLOSE, 0, f"{connection.file_line} proxy_set_header Connection", shown)
    passes = bool(upgrade and upgrade.args[1] and connection and connection.args[1])
    yield Setting(_UPGRADE, passes, f"{where} proxy_set_header Upgrade", "not passed on with Connection")


def _without_upgrade(value: str, maps: Mapping[str, Directive]) -> str:
    """The value of a header for requests that are no handshakes: a map of `$http_upgrade` resolved."""
    mapping = maps.get(value)
    if mapping is None or mapping.args[0] != "$http_upgrade":
        return value
    values = {entry.name: entry.args[0] for entry in mapping.block or () if entry.args}
    return values.get("", values.get("default", ""))


def _upstream_settings(where: str, authority: str, upstream: Directive | None) -> Iterator[Setting]:
    if upstream is None:
        shown = f"no upstream block {authority}, so none before nginx 1.29.7"
        yield Setting(_KEEPALIVE, 0, f"{where} keepalive", shown)
        return
    written = {entry.name: entry for entry in upstream.block or () if entry.args}
    if (keepalive := written.get("keepalive")) is None:
        yield Setting(_KEEPALIVE, 0, f"{upstream.where} keepalive", "not set, so none before nginx 1.29.7")
    elif (count := size_of(keepalive.args[0])) is not None:
        yield Setting(_KEEPALIVE, count, keepalive.where, keepalive.args[0])
    if (idle := written.get("keepalive_timeout")) and (limit := _time(idle.args)) is not None:
        yield Setting(_IDLE, limit, idle.where, " ".join(idle.args))
