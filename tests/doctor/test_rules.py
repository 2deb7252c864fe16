"""Each trap, planted in an otherwise good configuration, is found by its rule and by no other."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleet.names import DESTINATION_KEY
from fleet.service.serving import server_options
from warmroute.doctor.envoy.rules import RULES
from warmroute.doctor.envoy.rules.connections import WARMROUTE_PERMITS_SECONDS
from warmroute.doctor.front.rules import RULES as IN_FRONT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Patient

PRE = "type.googleapis.com/envoy.extensions"


@dataclass(frozen=True)
class Trap:
    """How it is planted and what must be said of it."""

    rule: str
    severity: str
    name: str
    plant: Callable[[Patient], Any]
    where: str
    what: str = ""
    context: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.rule}-{self.name}"


TRAPS: list[Trap] = []


def trap(rule: str, severity: str, where: str, what: str = "", **context: Any) -> Callable[[Any], Any]:
    """Register a function that plants a trap; its name says what it plants."""

    def register(plant: Callable[[Patient], Any]) -> Callable[[Patient], Any]:
        TRAPS.append(Trap(rule, severity, plant.__name__, plant, where, what, context))
        return plant

    return register


@trap("buffer-limit", "error", "http_filters[envoy.filters.http.buffer].max_request_bytes", "1,000 bytes")
def small_buffer(p: Patient) -> None:
    p.filter("buffer")["typed_config"]["max_request_bytes"] = 1000


@trap("buffer-limit", "error", "listeners[front].per_connection_buffer_limit_bytes", "1,048,576 bytes")
def whole_bodies_without_buffer_filter(p: Patient) -> None:
    p.manager["http_filters"].remove(p.filter("buffer"))
    p.ext_proc["processing_mode"]["request_header_mode"] = "SEND"
    p.route("json")["match"]["headers"] = p.route("json")["match"]["headers"][:2]


@trap("buffer-limit", "error", "routes[json].request_body_buffer_limit", "100 bytes")
def small_route_buffer(p: Patient) -> None:
    whole_bodies_without_buffer_filter(p)
    p.route("json")["request_body_buffer_limit"] = "100"


@trap("leading-part-behind-buffer", "error", "routes[large-json]")
def leading_part_behind_buffer(p: Patient) -> None:
    p.filter("buffer")["typed_config"]["max_request_bytes"] = 1 << 30
    del p.route("large-json")["typed_per_filter_config"]["envoy.filters.http.buffer"]


@trap("upgrade-behind-buffer", "error", "routes[upgrade]", "buffer is on")
def upgrade_behind_the_buffer_filter(p: Patient) -> None:
    del p.route("upgrade")["typed_per_filter_config"]["envoy.filters.http.buffer"]


@trap("upgrade-behind-buffer", "error", "routes[upgrade]", "BUFFERED")
def upgrade_behind_ext_proc(p: Patient) -> None:
    p.override("upgrade", "ext_proc")["disabled"] = False


@trap("upgrade-behind-buffer", "error", "routes[upgrade]", "STREAMED")
def upgrade_in_a_chain_of_its_own_that_reads_bodies(p: Patient) -> None:
    streamed = {**p.ext_proc, "processing_mode": {"request_body_mode": "STREAMED"}}
    own = [{**p.filter("ext_proc"), "name": "own", "typed_config": streamed}, p.filter("router")]
    p.manager["upgrade_configs"][0]["filters"] = own


@trap("route-timeout", "error", "routes[json].route.timeout", "none is set, so 15 s")
def default_route_timeout(p: Patient) -> None:
    del p.action("json")["timeout"]


@trap("route-timeout", "warning", "routes[json].route.timeout", "30 s")
def short_route_timeout(p: Patient) -> None:
    p.action("json")["timeout"] = "30s"


@trap("route-timeout", "note", "routes[json].route.timeout", "120 s")
def middling_route_timeout(p: Patient) -> None:
    p.action("json")["timeout"] = "120s"


@trap("route-timeout", "error", "routes[json].route.timeout", "under the P99 of 400 s", p99_seconds=400.0)
def route_timeout_under_the_p99_that_is_said(p: Patient) -> None:
    p.action("json")["timeout"] = "400s"


@trap("route-timeout", "error", "routes[json].route.timeout", "under the P99 of 500 s")
def route_timeout_under_the_p99_that_envoy_saw(p: Patient) -> None:
    p.action("json")["timeout"] = "400s"
    p.took("engines", 500_000, requests=100)


@trap("idle-timeout", "warning", "stream_idle_timeout", "30 s")
def short_idle_timeout(p: Patient) -> None:
    p.manager["stream_idle_timeout"] = "30s"
    p.action("upgrade")["idle_timeout"] = "0s"


@trap("idle-timeout", "error", "routes[json].route.idle_timeout", "under the P99 of 90 s", p99_seconds=90.0)
def route_idle_timeout_under_the_p99(p: Patient) -> None:
    p.action("json")["idle_timeout"] = "80s"


@trap("idle-timeout", "note", "stream_idle_timeout", "WebSockets that are quiet for 300 s")
def default_idle_timeout(p: Patient) -> None:
    del p.manager["stream_idle_timeout"]


@trap("idle-timeout", "warning", "request_timeout", "10 s")
def short_upload(p: Patient) -> None:
    p.manager["request_timeout"] = "10s"


@trap("stream-duration", "warning", "common_http_protocol_options.max_stream_duration", "600 s")
def short_streams(p: Patient) -> None:
    p.manager["common_http_protocol_options"] = {"max_stream_duration": "600s"}


@trap("stream-duration", "error", "routes[json].route.max_stream_duration", "P99 of 90", p99_seconds=90.0)
def short_streams_on_a_route(p: Patient) -> None:
    p.action("json")["max_stream_duration"] = {"max_stream_duration": "60s"}


@trap("stream-duration", "warning", "clusters[engines]", "600 s")
def short_streams_in_a_cluster(p: Patient) -> None:
    p.options("engines")["common_http_protocol_options"]["max_stream_duration"] = "600s"


@trap("per-try-timeout", "warning", "retry_policy.per_try_timeout", "5 s", p99_seconds=30.0)
def impatient_attempts(p: Patient) -> None:
    p.action("json")["retry_policy"]["per_try_timeout"] = "5s"


@trap("ext-proc-failure-mode", "error", "ext_proc].failure_mode_allow")
def failing_closed(p: Patient) -> None:
    del p.ext_proc["failure_mode_allow"]


@trap("ext-proc-failure-mode", "note", "routes[large-json]", "FULL_DUPLEX_STREAMED")
def full_duplex(p: Patient) -> None:
    mode = p.override("large-json", "ext_proc")["overrides"]["processing_mode"]
    mode["request_body_mode"] = "FULL_DUPLEX_STREAMED"


@trap("ext-proc-message-timeout", "warning", "message_timeout", "5 s")
def long_message_timeout(p: Patient) -> None:
    p.ext_proc["message_timeout"] = "5s"


@trap("ext-proc-message-timeout", "warning", "message_timeout", "5 ms")
def short_message_timeout(p: Patient) -> None:
    p.ext_proc["message_timeout"] = "0.005s"


@trap("ext-proc-message-timeout", "warning", "message_timeout", "struck 20 times in 1,000 streams")
def message_timeouts_that_strike(p: Patient) -> None:
    p.count("http.front.ext_proc.front.message_timeouts", 20)
    p.count("http.front.ext_proc.front.streams_started", 1000)


@trap("ext-proc-health", "warning", "clusters[warmroute_ext_proc].health_checks", "none")
def no_health_check(p: Patient) -> None:
    del p.processor["health_checks"]


@trap("ext-proc-health", "warning", "no_traffic_interval", "60 s")
def default_no_traffic_interval(p: Patient) -> None:
    del p.processor["health_checks"][0]["no_traffic_interval"]


@trap("ext-proc-health", "warning", "health_checks[0].interval", "30 s")
def rare_health_checks(p: Patient) -> None:
    p.processor["health_checks"][0]["interval"] = "30s"


@trap("ext-proc-panic", "warning", "healthy_panic_threshold", "50 %")
def processor_in_panic(p: Patient) -> None:
    del p.processor["common_lb_config"]


@trap("ext-proc-circuit-breaker", "warning", "clusters[warmroute_ext_proc]", "1,024 (the default)")
def default_breakers_of_the_processor(p: Patient) -> None:
    del p.processor["circuit_breakers"]


@trap("ext-proc-circuit-breaker", "warning", "max_requests", "500")
def tight_breaker_of_the_processor(p: Patient) -> None:
    p.processor["circuit_breakers"]["thresholds"][0]["max_requests"] = 500


@trap("ext-proc-circuit-breaker", "error", "max_requests", "refused 7 times")
def breaker_of_the_processor_that_struck(p: Patient) -> None:
    p.count("cluster.warmroute_ext_proc.upstream_rq_pending_overflow", 7)


@trap("ext-proc-protocol", "error", "clusters[warmroute_ext_proc]", "HTTP/1.1")
def processor_over_http_1(p: Patient) -> None:
    p.options("warmroute_ext_proc")["explicit_http_config"] = {"http_protocol_options": {}}


@trap("ext-proc-streamed", "warning", "routes[large-json]", "STREAMED")
def streamed_bodies(p: Patient) -> None:
    mode = p.override("large-json", "ext_proc")["overrides"]["processing_mode"]
    mode["request_body_mode"] = "STREAMED"


@trap("ext-proc-response-body", "error", "routes[large-json]", "BUFFERED")
def buffered_answers(p: Patient) -> None:
    mode = p.override("large-json", "ext_proc")["overrides"]["processing_mode"]
    mode["response_body_mode"] = "BUFFERED"


@trap("ext-proc-response-body", "note", "routes[large-json]", "STREAMED")
def streamed_answers(p: Patient) -> None:
    mode = p.override("large-json", "ext_proc")["overrides"]["processing_mode"]
    mode["response_body_mode"] = "STREAMED"


def insert(p: Patient, position: int, name: str, kind: str) -> None:
    typed = {"@type": f"{PRE}.filters.http.{kind}"}
    p.manager["http_filters"].insert(position, {"name": name, "typed_config": typed})


@trap("filter-order", "warning", "http_filters[limit]", "local_ratelimit stands behind ext_proc")
def rate_limit_behind_ext_proc(p: Patient) -> None:
    insert(p, 1, "limit", "local_ratelimit.v3.LocalRateLimit")


@trap("filter-order", "note", "http_filters[unzip]", "decompressor")
def decompressor_behind_ext_proc(p: Patient) -> None:
    insert(p, 1, "unzip", "decompressor.v3.Decompressor")


@trap("pick-too-late", "warning", "routes[json]", "stands before ext_proc")
def buffer_before_ext_proc(p: Patient) -> None:
    filters = p.manager["http_filters"]
    filters[0], filters[1] = filters[1], filters[0]


@trap("pick-too-late", "warning", "routes[json]", "no buffer filter behind it")
def no_buffer(p: Patient) -> None:
    p.manager["http_filters"].remove(p.filter("buffer"))


@trap("pick-ignored", "warning", "clusters[engines].load_balancing_policy", "maglev")
def no_override_host(p: Patient) -> None:
    p.pool["load_balancing_policy"] = p.policy["fallback_policy"]


@trap("pick-ignored", "warning", "receiving_namespaces", "without envoy.lb")
def metadata_that_is_dropped(p: Patient) -> None:
    p.ext_proc["metadata_options"]["receiving_namespaces"]["untyped"] = ["warmroute"]


@trap("pick-ignored", "note", "clusters[engines].load_balancing_policy", "cannot choose")
def ext_proc_for_other_uses(p: Patient) -> None:
    no_override_host(p)
    metadata_that_is_dropped(p)


@trap("pick-ignored", "warning", "request_headers_to_remove", DESTINATION_KEY)
def picks_by_a_header_that_the_route_removes(p: Patient) -> None:
    p.policy["override_host_sources"] = [{"header": DESTINATION_KEY}]
    p.host["request_headers_to_remove"] = [DESTINATION_KEY]


@trap("dead-picks", "warning", "routes[json].route.retry_policy")
def no_retries(p: Patient) -> None:
    p.action("json")["retry_policy"]["num_retries"] = 0


@trap(
    "weights-under-updates", "warning", "clusters[engines].load_balancing_policy", "round_robin, with weights"
)
def round_robin_behind_picks(p: Patient) -> None:
    fallback(p, "round_robin.v3.RoundRobin")
    p.weigh(70, 20, 10)


@trap("weights-under-updates", "warning", "clusters[engines]", "least_request, with 6,000 updates")
def least_request_under_many_updates(p: Patient) -> None:
    fallback(p, "least_request.v3.LeastRequest")
    p.count("server.uptime", 6000)
    p.count("cluster.engines.update_success", 6000)


@trap("weights-under-updates", "note", "clusters[engines]", "equal weights")
def round_robin_under_equal_weights(p: Patient) -> None:
    fallback(p, "round_robin.v3.RoundRobin")


@trap("weights-under-updates", "note", "clusters[engines]", "3 updates of endpoints in 6,000 s")
def round_robin_under_rare_updates(p: Patient) -> None:
    round_robin_behind_picks(p)
    p.count("server.uptime", 6000)
    p.count("cluster.engines.update_success", 3)


@trap("weights-under-updates", "warning", "clusters[engines]", "random, although")
def random_under_weights(p: Patient) -> None:
    fallback(p, "random.v3.Random")
    p.weigh(70, 20, 10)


def fallback(p: Patient, kind: str, **config: Any) -> None:
    typed = {"@type": f"{PRE}.load_balancing_policies.{kind}", **config}
    p.policy["fallback_policy"] = {
        "policies": [{"typed_extension_config": {"name": "x", "typed_config": typed}}]
    }


@trap("slow-start", "warning", "clusters[engines].slow_start_config", "weight 1")
def slow_start_over_weights_of_1(p: Patient) -> None:
    fallback(p, "round_robin.v3.RoundRobin", slow_start_config={"slow_start_window": "30s"})
    p.pool["type"] = "STRICT_DNS"
    p.weigh(1, 1, 1)


@trap("header-removal", "warning", "http_connection_manager]", "x-warmroute-endpoint")
def nothing_removed_at_the_door(p: Patient) -> None:
    mutations = p.manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"]
    mutations[:] = mutations[-1:]


@trap("header-removal", "warning", "http_connection_manager]", f"can send {DESTINATION_KEY}, and it steers")
def picks_by_a_header_that_clients_can_send(p: Patient) -> None:
    p.policy["override_host_sources"].append({"header": DESTINATION_KEY.upper()})
    mutations = p.manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"]
    mutations.remove({"remove": DESTINATION_KEY})


@trap("header-removal", "warning", "http_connection_manager]", "x-warmroute-protocol, and it steers")
def routes_by_a_header_that_clients_can_send(p: Patient) -> None:
    mutations = p.manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"]
    mutations[:] = [mutation for mutation in mutations if "x-warmroute-protocol" not in str(mutation)]


@trap("unsafe-retries", "warning", "routes[json].route.retry_policy.retry_on", "5xx, reset")
def retries_on_anything(p: Patient) -> None:
    p.action("json")["retry_policy"]["retry_on"] = "5xx,reset,connect-failure"


@trap("unsafe-retries", "warning", "retry_on", "retriable-status-codes (500)")
def retries_by_status(p: Patient) -> None:
    policy = p.action("json")["retry_policy"]
    policy["retry_on"] += ",retriable-status-codes"
    policy["retriable_status_codes"] = [429, 500, 503]


@trap("retry-limit", "warning", "clusters[engines].circuit_breakers.max_retries", "3 at once")
def three_retries_at_once(p: Patient) -> None:
    del p.pool["circuit_breakers"]["thresholds"][0]["max_retries"]


@trap("doubled-body", "warning", "routes[large-json]", "BUFFERED_PARTIAL")
def leading_part_with_trailers(p: Patient) -> None:
    match = p.route("large-json")["match"]
    match["headers"] = [header for header in match["headers"] if header["name"] != "trailer"]


@trap("pool-circuit-breaker", "warning", "clusters[engines]", "max_connections, max_requests at the default")
def default_breakers_of_the_pool(p: Patient) -> None:
    del p.pool["circuit_breakers"]["thresholds"][0]["max_requests"]
    del p.pool["circuit_breakers"]["thresholds"][0]["max_connections"]


@trap("pool-circuit-breaker", "error", "clusters[engines]", "refused 12 times")
def breakers_of_the_pool_that_struck(p: Patient) -> None:
    p.pool["circuit_breakers"]["thresholds"][0]["max_requests"] = 10
    p.count("cluster.engines.upstream_rq_pending_overflow", 12)


@trap("pool-panic", "warning", "clusters[engines].common_lb_config", "0 %")
def pool_without_panic(p: Patient) -> None:
    p.pool["common_lb_config"]["healthy_panic_threshold"] = {}


@trap(
    "engine-health-check", "warning", "clusters[engines].health_checks[0].timeout", "1 s, unhealthy after 2"
)
def one_second_probe(p: Patient) -> None:
    times = {"timeout": "1s", "interval": "2s", "unhealthy_threshold": 2, "healthy_threshold": 1}
    http = {"path": "/health", "retriable_statuses": [{"start": "100", "end": "600"}]}
    p.pool["health_checks"] = [{**times, "http_health_check": http}]


@trap("engine-health-check", "note", "http_health_check.retriable_statuses", "none")
def probe_that_one_answer_fails(p: Patient) -> None:
    one_second_probe(p)
    p.pool["health_checks"][0]["timeout"] = "5s"
    del p.pool["health_checks"][0]["http_health_check"]["retriable_statuses"]


def over_tls(p: Patient, limit: str) -> None:
    context = {"@type": f"{PRE}.transport_sockets.tls.v3.UpstreamTlsContext"}
    p.pool["transport_socket"] = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    p.pool["connect_timeout"] = limit


@trap("connect-timeout", "warning", "clusters[engines].connect_timeout", "1 s")
def little_time_for_handshakes(p: Patient) -> None:
    over_tls(p, "1s")


@trap(
    "connect-timeout", "warning", "clusters[engines].connect_timeout", "7 connections were not made in time"
)
def handshakes_that_were_late(p: Patient) -> None:
    over_tls(p, "2s")
    p.count("cluster.engines.upstream_cx_connect_timeout", 7)


@trap("connect-timeout", "warning", "clusters[engines].connect_timeout", "with a P99 of connecting of 3 s")
def handshakes_that_take_nearly_as_long(p: Patient) -> None:
    over_tls(p, "5s")
    p.connected("engines", 3000, connections=100)


@trap("engine-keepalive", "warning", "clusters[engines]", "60 s")
def connections_kept_for_too_long(p: Patient) -> None:
    p.options("engines")["common_http_protocol_options"]["idle_timeout"] = "60s"
    p.action("other")["retry_policy"]["retry_on"] = "connect-failure"


@trap(
    "keepalive",
    "warning",
    "clusters[warmroute_ext_proc]",
    "a ping every 100 ms; the server permits one in 500",
)
def pings_too_often_for_us(p: Patient) -> None:
    http2 = p.options("warmroute_ext_proc")["explicit_http_config"]["http2_protocol_options"]
    http2["connection_keepalive"]["interval"] = "0.1s"


@trap("keepalive", "warning", "clusters[other]", "30 s; as far as is known, the server permits one in 300 s")
def pings_too_often_for_others(p: Patient) -> None:
    p.ext_proc["grpc_service"]["envoy_grpc"]["cluster_name"] = "other"
    p.processor["name"] = "other"


@trap("keepalive", "note", "clusters[warmroute_xds]", "none")
def no_pings_to_the_control_plane(p: Patient) -> None:
    options = p.options("warmroute_xds")["explicit_http_config"]["http2_protocol_options"]
    del options["connection_keepalive"]


@trap("http2-streams", "warning", "http2_protocol_options.max_concurrent_streams", "10 a connection")
def few_streams(p: Patient) -> None:
    p.manager["http2_protocol_options"] = {"max_concurrent_streams": 10}


@trap("http2-streams", "note", "clusters[warmroute_ext_proc]", "50 a connection")
def few_streams_to_the_processor(p: Patient) -> None:
    http2 = p.options("warmroute_ext_proc")["explicit_http_config"]["http2_protocol_options"]
    http2["max_concurrent_streams"] = 50


@trap("access-log", "note", "access_log")
def no_access_log(p: Patient) -> None:
    del p.manager["access_log"]


def test_our_configuration_has_no_findings(patient: Patient) -> None:
    assert patient.findings() == []


@pytest.mark.parametrize("longest", [1, 262_144, 1 << 40])
@pytest.mark.parametrize("p99", [None, 0.1, 3599.0])
def test_our_configuration_has_no_findings_for_any_traffic(
    patient: Patient, longest: int, p99: float | None
) -> None:
    assert patient.findings(longest_prompt_bytes=longest, p99_seconds=p99) == []


@pytest.mark.parametrize("planted", TRAPS, ids=str)
def test_a_planted_trap_triggers_its_rule_alone(patient: Patient, planted: Trap) -> None:
    planted.plant(patient)
    findings = patient.findings(**planted.context)
    assert {finding.rule for finding in findings} == {planted.rule}
    assert max(finding.severity for finding in findings).word == planted.severity
    assert any(planted.where in finding.where and planted.what in finding.what for finding in findings), (
        findings
    )
    assert all(finding.why and finding.fix for finding in findings)


def test_each_rule_has_its_traps() -> None:
    assert {planted.rule for planted in TRAPS} == set(RULES)


def test_the_document_lists_the_rules_in_their_words() -> None:
    text = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    section = text[text.index("## Rules") : text.index("## What it does not see")]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \| (.+) \|$", section, flags=re.MULTILINE)
    rules: dict[str, Any] = {**RULES, **IN_FRONT}
    assert rows == [(name, rule.title, rule.why) for name, rule in rules.items()]
    assert len(rules) == len(RULES) + len(IN_FRONT), "a name for two rules"


def test_what_we_permit_is_what_our_servers_permit() -> None:
    permitted = dict(server_options())["grpc.http2.min_recv_ping_interval_without_data_ms"]
    assert permitted == WARMROUTE_PERMITS_SECONDS * 1000


def test_a_permit_that_is_said_counts(patient: Patient) -> None:
    pings_too_often_for_others(patient)
    assert patient.findings(ping_permits={"other": 30.0}) == []


def test_an_idempotency_key_makes_retries_good(patient: Patient) -> None:
    retries_on_anything(patient)
    patient.route("json")["request_headers_to_add"] = [{"header": {"key": "Idempotency-Key", "value": "x"}}]
    assert patient.findings() == []


def test_envoys_own_time_to_connect_is_enough_for_handshakes(patient: Patient) -> None:
    over_tls(patient, "5s")
    patient.connected("engines", 2000, connections=100)
    assert patient.findings() == []
    patient.connected("engines", 3000, connections=99)
    assert patient.findings() == []
    del patient.pool["connect_timeout"]
    assert patient.findings() == []


def test_too_few_requests_make_no_p99(patient: Patient) -> None:
    route_timeout_under_the_p99_that_envoy_saw(patient)
    patient.took("engines", 500_000, requests=99)
    assert patient.findings() == []


def test_only_the_pools_that_are_named_count(patient: Patient) -> None:
    default_route_timeout(patient)
    assert patient.findings(pools=frozenset({"others"})) == []
    assert [finding.rule for finding in patient.findings(pools=frozenset({"engines"}))] == ["route-timeout"]


def test_the_worst_comes_first(patient: Patient) -> None:
    no_access_log(patient)
    default_route_timeout(patient)
    no_retries(patient)
    assert [finding.severity.word for finding in patient.findings()] == ["error", "warning", "note"]
