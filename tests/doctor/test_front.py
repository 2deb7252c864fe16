"""Proxies in front of Envoy: each trap, planted in a good configuration, is the only finding."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from warmroute.cli.view.front_files import PROXIES, read_front
from warmroute.doctor.front.nginx import size_of, time_of
from warmroute.doctor.front.rules import RULES, coverage
from warmroute.doctor.front.tree import Tree, parse
from warmroute.doctor.rule import Context, DoctorError, examine

if TYPE_CHECKING:
    from warmroute.doctor.rule import Finding

GOOD = Path(__file__).parents[2] / "deploy" / "front"


@dataclass(frozen=True)
class Trap:
    """A change of a good file, and the finding that it must cause."""

    file: str
    old: str
    new: str
    rule: str
    severity: str
    where: str
    what: str = ""
    context: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.file}-{self.rule}-{self.severity}-{self.what[:20]}"


NGINX, STATIC, DYNAMIC, KONG = (
    "nginx/nginx.conf",
    "traefik/traefik.yaml",
    "traefik/warmroute.yaml",
    "kong/kong.yaml",
)
IN_SERVER = "        client_max_body_size 0;\n"
MIDDLEWARE = "    rate:\n"
LIMITS = "middlewares: [users, rate]"
PLUGIN = "      - name: key-auth\n"
P99 = {"p99_seconds": 400.0}

TRAPS = [
    Trap(
        NGINX,
        "proxy_buffering off;",
        "",
        "slow-clients",
        "note",
        "location / proxy_buffering",
        "not set, so on",
    ),
    Trap(NGINX, "buffering off", "buffering on", "slow-clients", "note", " proxy_buffering", "on"),
    Trap(
        NGINX, IN_SERVER, "", "body-limit", "error", "location / client_max_body_size", "not set, so 1m, but"
    ),
    Trap(
        NGINX,
        "body_size 0",
        "body_size 2m",
        "body-limit",
        "error",
        " client_max",
        "2m, but bodies of up to 4,1",
    ),
    Trap(
        NGINX,
        IN_SERVER,
        f"{IN_SERVER}large_client_header_buffers 4 1k;",
        "header-limit",
        "warning",
        "large_client_header_buffers",
        "4 1k",
    ),
    Trap(
        NGINX,
        "proxy_read_timeout 3600s;",
        "",
        "silence-limit",
        "warning",
        "proxy_read_timeout",
        "not set, so 60s",
    ),
    Trap(
        NGINX, "timeout 3600s", "timeout 2m", "silence-limit", "note", "proxy_read_timeout", "2m, answers of"
    ),
    Trap(
        NGINX,
        "3600s",
        "400s",
        "silence-limit",
        "error",
        " proxy_read_timeout",
        "400s, under the P99 of 400 s",
        P99,
    ),
    Trap(
        NGINX,
        "proxy_http_version 1.1;",
        "",
        "http10-upstream",
        "error",
        "proxy_http_version",
        "not set, so 1.0",
    ),
    Trap(NGINX, "version 1.1", "version 1.0", "http10-upstream", "error", " proxy_http_version", "1.0"),
    Trap(
        NGINX,
        "keepalive 64;",
        "",
        "upstream-keepalive",
        "warning",
        " upstream warmroute keepalive",
        "none before",
    ),
    Trap(NGINX, "keepalive 64;", "keepalive 2;", "upstream-keepalive", "note", " keepalive", "2"),
    Trap(
        NGINX,
        "http://warmroute;",
        "http://a:8000;",
        "upstream-keepalive",
        "warning",
        "keepalive",
        "upstream block a",
    ),
    Trap(
        NGINX,
        "''      '';",
        "'' close;",
        "upstream-keepalive",
        "warning",
        "Connection",
        "$connection_upgrade",
    ),
    Trap(
        NGINX,
        "keepalive 64;",
        "keepalive 64; keepalive_timeout 2h;",
        "upstream-idle",
        "warning",
        " keepalive_timeout",
        "2h",
    ),
    Trap(
        NGINX,
        IN_SERVER,
        f"{IN_SERVER}proxy_next_upstream error non_idempotent;",
        "post-retries",
        "warning",
        " proxy_next_upstream",
        "non_idempotent",
    ),
    Trap(
        NGINX,
        IN_SERVER,
        f"{IN_SERVER}http2_max_concurrent_streams 9;",
        "client-streams",
        "warning",
        "http2_max",
        "9",
    ),
    Trap(
        NGINX,
        "proxy_set_header Upgrade $http_upgrade;",
        "",
        "websocket-headers",
        "note",
        "Upgrade",
        "not passed",
    ),
    Trap(
        NGINX,
        IN_SERVER,
        f"{IN_SERVER}proxy_ignore_client_abort on;",
        "client-aborts",
        "warning",
        " proxy_ignore_client_abort",
        "on",
    ),
    Trap(NGINX, IN_SERVER, f"{IN_SERVER}include gone.conf;", "unread-parts", "note", " include", "gone.conf"),
    Trap(
        STATIC,
        "writeTimeout: 0s",
        "writeTimeout: 1m",
        "answer-limit",
        "warning",
        "respondingTimeouts.writeTimeout",
        "1m",
    ),
    Trap(
        STATIC,
        "writeTimeout: 0s",
        "writeTimeout: 400",
        "answer-limit",
        "error",
        "writeTimeout",
        "P99 of 400 s",
        P99,
    ),
    Trap(
        STATIC,
        "readTimeout: 300s",
        "readTimeout: 10s",
        "upload-limit",
        "warning",
        "respondingTimeouts.readTimeout",
        "10s",
    ),
    Trap(
        STATIC,
        "    transport:",
        "    http2: {maxConcurrentStreams: 50}\n    transport:",
        "client-streams",
        "warning",
        "entryPoints.web.http2.maxConcurrentStreams",
        "50",
    ),
    Trap(
        STATIC,
        "    transport:",
        "    http: {maxHeaderBytes: 4096}\n    transport:",
        "header-limit",
        "warning",
        "entryPoints.web.http.maxHeaderBytes",
        "4096",
    ),
    Trap(
        DYNAMIC,
        MIDDLEWARE,
        "    rate:\n      buffering: {}\n",
        "response-buffering",
        "error",
        "http.middlewares.rate.buffering.disableResponseBuffer",
        "not set, so whole answers are buffered",
    ),
    Trap(
        DYNAMIC,
        MIDDLEWARE,
        "    rate:\n      Buffering: {DisableResponseBuffer: true, maxRequestBodyBytes: 9}\n",
        "body-limit",
        "error",
        "rate.Buffering.maxRequestBodyBytes",
        "9, but bodies",
    ),
    Trap(
        DYNAMIC,
        MIDDLEWARE,
        "    rate:\n      buffering: {disableResponseBuffer: true, retryExpression: Attempts() < 2}\n",
        "post-retries",
        "warning",
        "retryExpression",
        "Attempts() < 2",
    ),
    Trap(
        DYNAMIC,
        MIDDLEWARE,
        "    rate:\n      retry: {attempts: 2, retryNonIdempotentMethod: true}\n",
        "post-retries",
        "warning",
        "rate.retry.retryNonIdempotentMethod",
        "True",
    ),
    Trap(
        DYNAMIC,
        MIDDLEWARE,
        "    rate:\n      retry: {attempts: 2, maxRequestBodyBytes: 1024}\n",
        "body-limit",
        "error",
        "rate.retry.maxRequestBodyBytes",
        "1024",
    ),
    Trap(
        DYNAMIC,
        LIMITS,
        "middlewares: [users, waits@docker, rate]",
        "unread-parts",
        "note",
        " http.routers.llm",
        "middleware waits@docker",
    ),
    Trap(DYNAMIC, "Timeout: 0s", "Timeout: 30s", "silence-limit", "warning", "responseHeaderTimeout", "30s"),
    Trap(DYNAMIC, "Timeout: 90s", "Timeout: 0", "upstream-idle", "warning", "idleConnTimeout", "0"),
    Trap(
        DYNAMIC,
        "      maxIdleConnsPerHost: 200\n",
        "",
        "upstream-keepalive",
        "note",
        "maxIdleConns",
        "not set, so 2",
    ),
    Trap(
        KONG,
        "response_buffering: false",
        "",
        "response-buffering",
        "error",
        " services[warmroute].routes[llm].response_buffering",
    ),
    Trap(
        KONG,
        "buffering: false",
        "buffering: true",
        "response-buffering",
        "error",
        "response_buffering",
        "true",
    ),
    Trap(
        KONG,
        "    read_timeout: 3600000",
        "    #",
        "silence-limit",
        "warning",
        "read_timeout",
        "not set, so 60000 ms",
    ),
    Trap(
        KONG,
        "read_timeout: 3600000",
        "read_timeout: 400000",
        "silence-limit",
        "error",
        "services[warmroute].read_timeout",
        "P99 of 400 s",
        P99,
    ),
    Trap(
        KONG,
        PLUGIN,
        f"{PLUGIN}      - name: upstream-timeout\n        config: {{read_timeout: 9000}}\n",
        "silence-limit",
        "warning",
        "plugins[upstream-timeout].config.read_timeout",
        "9000 ms",
    ),
    Trap(
        KONG,
        PLUGIN,
        f"{PLUGIN}      - name: request-size-limiting\n        config: {{allowed_payload_size: 1}}\n",
        "body-limit",
        "error",
        "plugins[request-size-limiting].config.allowed_payload_size",
        "1 megabytes, but",
    ),
    Trap(
        KONG,
        PLUGIN,
        f"{PLUGIN}      - name: ai-prompt-guard\n        config: {{}}\n",
        "body-limit",
        "error",
        "plugins[ai-prompt-guard].config.max_request_body_size",
        "not set, so 8192, but",
    ),
    Trap(
        KONG,
        PLUGIN,
        f"{PLUGIN}      - name: ai-proxy\n"
        "        config: {max_request_body_size: 0, response_streaming: deny}\n",
        "response-buffering",
        "error",
        "plugins[ai-proxy].config.response_streaming",
        "deny",
    ),
    Trap(
        KONG,
        PLUGIN,
        f"{PLUGIN}      - name: response-transformer\n        config: {{add: {{json: ['a:b']}}}}\n",
        "response-buffering",
        "error",
        "plugins[response-transformer].config.add.json",
        "changes bodies",
    ),
    Trap(
        KONG,
        PLUGIN,
        f"{PLUGIN}      - name: request-transformer\n        ordering: {{before: {{access: [key-auth]}}}}\n",
        "guard-order",
        "warning",
        "plugins[request-transformer].ordering",
        "key-auth runs behind request-transformer",
    ),
]
CONF = [
    ("upstream_keepalive_pool_size = 0", "upstream-keepalive"),
    ("upstream_keepalive_idle_timeout = 7200 # seconds", "upstream-idle"),
    ("nginx_http_client_max_body_size = 1m", "body-limit"),
    ("nginx_http_large_client_header_buffers=4 1k", "header-limit"),
    ("nginx_proxy_proxy_next_upstream = error timeout non_idempotent", "post-retries"),
    ("nginx_proxy_proxy_ignore_client_abort = on", "client-aborts"),
    ("nginx_http_http2_max_concurrent_streams = 10", "client-streams"),
]


def findings(proxy: str, path: Path, **context: Any) -> list[Finding]:
    return examine(RULES, read_front(proxy, path), Context(**context))


def changed(folder: Path, file: str, old: str, new: str) -> Path:
    """Copy the good files of a proxy with a change in one; return their folder."""
    proxy, _, name = file.partition("/")
    target = folder / proxy
    shutil.copytree(GOOD / proxy, target)
    text = (target / name).read_text()
    assert text.count(old) >= 1, old
    (target / name).write_text(text.replace(old, new))
    return target


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("context", [{}, {"p99_seconds": 3599.0, "longest_prompt_bytes": 1 << 40}], ids=str)
def test_a_good_configuration_has_no_findings(proxy: str, context: dict[str, Any]) -> None:
    assert findings(proxy, GOOD / proxy, **context) == []


@pytest.mark.parametrize("planted", TRAPS, ids=str)
def test_a_planted_trap_triggers_its_rule_alone(tmp_path: Path, planted: Trap) -> None:
    folder = changed(tmp_path, planted.file, planted.old, planted.new)
    (finding,) = findings(folder.name, folder, **planted.context)
    assert (finding.rule, finding.severity.word) == (planted.rule, planted.severity)
    assert planted.where in finding.where
    file, line, place = re.fullmatch(r"([^:]+):(\d+) (.+)", finding.where).groups()  # type: ignore[union-attr]
    text = Path(file).read_text().splitlines()[int(line) - 1]
    assert re.split(r"[ .]", place)[-1] in text or finding.what.startswith("no")
    assert planted.what in finding.what
    assert finding.why
    assert finding.fix


@pytest.mark.parametrize(("line", "rule"), CONF)
def test_kong_conf_is_read_with_its_nginx_directives(tmp_path: Path, line: str, rule: str) -> None:
    folder = changed(tmp_path, KONG, "", "")
    (folder / "kong.conf").write_text(f"# comment = 1\nlog_level = notice\n{line}\n")
    (finding,) = findings("kong", folder)
    assert finding.rule == rule
    assert finding.where.startswith(f"{folder}/kong.conf:3 ")


def test_each_rule_in_front_has_its_traps() -> None:
    assert {planted.rule for planted in TRAPS} == set(RULES)


def test_fixes_cite_the_proxys_documentation() -> None:
    """All settings of the good configurations, and of files without anything."""
    pages = {"nginx": "https://nginx.org/", "traefik": "https://doc.traefik.io/", "kong": "https://dev"}
    for proxy, start in pages.items():
        facts = read_front(proxy, GOOD / proxy)
        assert all(setting.knob.page.startswith(start) for way in facts.ways for setting in way.settings)


def nginx(folder: Path, text: str) -> list[str]:
    path = folder / "site.conf"
    path.write_text(text)
    return [finding.rule for finding in findings("nginx", path)]


ALL = """
    client_max_body_size 0; proxy_buffering off; proxy_read_timeout 1h; proxy_http_version 1.1;
    proxy_set_header Connection $connection; proxy_set_header Upgrade $http_upgrade;
"""
TOP = "map $http_upgrade $connection { default upgrade; '' ''; } upstream u { server a:1; keepalive 9; }"


def test_nginx_directives_are_inherited_as_by_nginx(tmp_path: Path) -> None:
    """The innermost value counts; headers of an outer block only where the inner one sets none."""
    inherited = f"{TOP} server {{ {ALL} location / {{ location /v1/ {{ proxy_pass http://u; }} }} }}"
    assert nginx(tmp_path, inherited) == []
    inner = inherited.replace("proxy_pass", "proxy_set_header Host $host; proxy_pass")
    assert nginx(tmp_path, inner) == ["upstream-keepalive", "websocket-headers"]
    buffers = inherited.replace("location /v1/ {", "location /v1/ { proxy_buffering on;")
    assert nginx(tmp_path, buffers) == ["slow-clients"]


@pytest.mark.parametrize(
    ("gzip", "rules"),
    [
        ("gzip on; gzip_types text/css text/event-stream;", ["response-buffering"]),
        ("gzip on; gzip_types *;", ["response-buffering"]),
        ("gzip on; gzip_types *; proxy_buffering off;", []),
        ("gzip on; gzip_types text/css;", []),
        ("gzip_types *;", []),
    ],
)
def test_nginx_compresses_event_streams_only_unbuffered(tmp_path: Path, gzip: str, rules: list[str]) -> None:
    rest = ALL.replace("proxy_buffering off;", "")
    text = f"{TOP} server {{ {rest} {gzip} location / {{ proxy_pass http://u; }} }}"
    assert [rule for rule in nginx(tmp_path, text) if rule != "slow-clients"] == rules


def test_nginx_includes_replace_their_lines(tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text("http { include sites/*; include top.conf; }")
    (tmp_path / "top.conf").write_text(TOP)
    (tmp_path / "sites").mkdir()
    for name in ("a", "b"):
        site = "server { include proxy.conf; location / {\n proxy_pass http://u; } }"
        (tmp_path / "sites" / name).write_text(site)
    (tmp_path / "proxy.conf").write_text(ALL.replace("1h", "1s"))
    facts = read_front("nginx", tmp_path)
    assert coverage(facts, Context()) == {"files": 5, "routes": 2, "upstreams": 1}
    assert {finding.where for finding in findings("nginx", tmp_path)} == {
        f"{tmp_path}/proxy.conf:2 proxy_read_timeout"
    }
    assert facts.ways[0].where == f"{tmp_path}/sites/a:1 location /"


def test_a_folder_of_nginx_sites_is_read_together(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text(TOP)
    (tmp_path / "default").write_text(f"server {{ location / {{ {ALL} proxy_pass http://u; }} }}")
    assert findings("nginx", tmp_path) == []


@pytest.mark.parametrize(
    ("upstream", "target", "ports"),
    [
        ("server 10.0.0.1:8000; server [::1]:8001 weight=2;", "http://u/v1/", {8000, 8001}),
        ("server 10.0.0.1;", "http://u", {80}),
        ("", "https://llm.example.com", {443}),
        ("", "http://[::1]:8000/", {8000}),
        ("server unix:/run/envoy.sock;", "http://u", None),
        ("", "http://$host:80", None),
    ],
)
def test_nginx_upstreams_are_resolved(
    tmp_path: Path, upstream: str, target: str, ports: set[int] | None
) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text(
        f"http {{ upstream u {{ {upstream} }} server {{ location / {{ proxy_pass {target}; }} }} }}"
    )
    assert read_front("nginx", path).ways[0].ports == (None if ports is None else frozenset(ports))


def test_only_ways_to_the_listeners_ports_count() -> None:
    for proxy in PROXIES:
        facts = read_front(proxy, GOOD / proxy)
        assert coverage(facts, Context(ports=frozenset({8000})))["routes"] == 1
        assert coverage(facts, Context(ports=frozenset({8001})))["routes"] == 0


def test_warmroutes_listeners_serve_http10(tmp_path: Path) -> None:
    """By the ports of its settings Warmroute's Envoy is behind nginx, and does not answer 426."""
    path = changed(tmp_path, NGINX, "version 1.1", "version 1.0")
    for ports, severity in ((None, "error"), (frozenset({8000}), "warning")):
        assert [finding.severity.word for finding in findings("nginx", path, ports=ports)] == [severity]


def test_traefik_guards_behind_workers_stand_too_late(tmp_path: Path) -> None:
    """Of the whole chain: the entry point's middlewares first, chains resolved."""
    folder = changed(tmp_path, DYNAMIC, MIDDLEWARE, f"    again:\n      retry: {{attempts: 2}}\n{MIDDLEWARE}")
    file = folder / "warmroute.yaml"
    good = file.read_text()
    file.write_text(good.replace(LIMITS, "middlewares: [users, rate, again]"))
    assert findings("traefik", folder) == []
    file.write_text(good.replace(LIMITS, "middlewares: [users, again, rate]"))
    (finding,) = findings("traefik", folder)
    assert (finding.rule, finding.what) == ("guard-order", "rate stands behind again")
    file.write_text(
        good.replace(MIDDLEWARE, f"    both:\n      chain: {{middlewares: [again]}}\n{MIDDLEWARE}")
    )
    static = folder / "traefik.yaml"
    static.write_text(
        static.read_text().replace("    transport:", "    http: {middlewares: [both]}\n    transport:")
    )
    assert [finding.what for finding in findings("traefik", folder)] == [
        "users stands behind again",
        "rate stands behind again",
    ]


def test_traefik_static_files_are_judged_without_routers(tmp_path: Path) -> None:
    path = tmp_path / "traefik.toml"
    path.write_text('[entryPoints.web.transport.respondingTimeouts]\nwriteTimeout = "30s"\n')
    (finding,) = findings("traefik", path)
    assert (finding.rule, finding.what) == ("answer-limit", "30s")
    assert finding.where == f"{path} entryPoints.web.transport.respondingTimeouts.writeTimeout"


def test_traefik_services_behind_services_are_ways(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.toml"
    path.write_text(
        """
        [http.routers.a]
        service = "split"
        [[http.services.split.weighted.services]]
        name = "one"
        [[http.services.split.weighted.services]]
        name = "two"
        [[http.services.one.loadBalancer.servers]]
        url = "http://10.0.0.1:8000"
        [http.services.two.failover]
        service = "one"
        fallback = "split"
        """
    )
    assert {way.upstream for way in read_front("traefik", path).ways} == {"one"}


def test_kong_plugins_of_routes_go_before_services_and_globals(tmp_path: Path) -> None:
    limit = "{name: request-size-limiting, config: {allowed_payload_size: 1}}"
    top = f"_format_version: '3.0'\nplugins:\n- {limit}\n"
    folder = changed(tmp_path, KONG, '_format_version: "3.0"\n', top)
    assert [finding.rule for finding in findings("kong", folder)] == ["body-limit"]
    file = folder / "kong.yaml"
    text = file.read_text()
    file.write_text(text.replace(PLUGIN, f"{PLUGIN}      - name: request-size-limiting\n"))
    assert findings("kong", folder) == []
    file.write_text(text.replace("allowed_payload_size: 1}", "allowed_payload_size: 1}, route: other"))
    assert findings("kong", folder) == []


def test_kong_routes_may_stand_apart_from_services(tmp_path: Path) -> None:
    path = tmp_path / "kong.yaml"
    path.write_text(
        "_format_version: '3.0'\nservices: [{name: s, host: h, port: 8000, read_timeout: 3600000}]\n"
        "routes:\n- {name: a, service: {name: s}}\n- {name: b, service: gone}\n"
        "- {service: s, protocols: [tcp]}\n"
    )
    assert [(finding.rule, finding.where) for finding in findings("kong", path)] == [
        ("response-buffering", f"{path}:4 routes[a].response_buffering"),
        ("unread-parts", f"{path}:5 routes[b]"),
    ]


@pytest.mark.parametrize(
    ("proxy", "text", "words"),
    [
        ("nginx", "http { server {", "unexpected end of file"),
        ("nginx", "events {}", "proxy_pass"),
        ("nginx", "a { " * 3000, "recursion|end of file"),
        ("traefik", "a: [b", "holds no YAML"),
        ("traefik", "a: 1", "no Traefik entry point"),
        ("kong", "services: []", "no Kong route"),
        ("kong", "- a", "no Kong route"),
        ("kong", "!!python/object/apply:os.getcwd []", "holds no YAML"),
    ],
)
def test_files_without_anything_to_judge_are_refused(
    tmp_path: Path, proxy: str, text: str, words: str
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(DoctorError, match=words) as caught:
        read_front(proxy, path)
    assert str(path) in str(caught.value)
    with pytest.raises(DoctorError, match="allowed"):
        read_front(proxy, tmp_path / "gone")


def test_an_nginx_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text("http { include nginx.conf; }")
    with pytest.raises(DoctorError, match="includes itself"):
        read_front("nginx", path)


def test_units_are_read_as_the_proxies_read_them() -> None:
    assert [time_of(text) for text in ("60", "90s", "1m", "1h 30m", "1h30m", "500ms", "$t", "")] == [
        60,
        90,
        60,
        5400,
        5400,
        0.5,
        None,
        None,
    ]
    assert [size_of(text) for text in ("0", "8k", "1M", "2g", "x", "")] == [
        0,
        8192,
        1 << 20,
        1 << 31,
        None,
        None,
    ]
    tree = Tree({"a": "1m30s", "b": 5, "c": "250ms", "d": "7", "e": "x", "f": True}, "file")
    assert [tree.seconds(name) for name in "abcdefg"] == [90, 5, 0.25, 7, None, None, None]


def test_aliases_and_merges_keep_their_lines() -> None:
    data = parse("a: &a\n  x: 1\nb:\n  <<: *a\n  y: {}\n", "f.yaml")
    tree = Tree(data, "f.yaml").child("b")
    assert tree.number("x") == 1
    assert tree.place("y") == "f.yaml:5 b.y"


WORDS = re.compile(r"[^\s{};:]+")
JUNK = ["", "{}", "[]", "null", "$x", "-1", "9" * 30, ".inf", "a: b", ";", "'", "{", "}", "0", "1e400", "@"]


@pytest.mark.untraced
@pytest.mark.parametrize("file", [NGINX, STATIC, DYNAMIC, KONG])
def test_junk_anywhere_does_no_harm(tmp_path: Path, file: str) -> None:
    """Whatever stands in the place of a word: findings, or a refusal in words."""
    text, path, chance = (GOOD / file).read_text(), tmp_path / Path(file).name, random.Random(0)
    for word in WORDS.finditer(text):
        for junk in chance.sample(JUNK, 4):
            path.write_text(text[: word.start()] + junk + text[word.end() :])
            with contextlib.suppress(DoctorError):
                findings(file.partition("/")[0], path)
