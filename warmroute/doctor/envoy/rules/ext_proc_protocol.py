"""An external processor's cluster that does not speak HTTP/2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import processor_clusters
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find clusters without HTTP/2 options."""
    for cluster in processor_clusters(facts, context):
        if not cluster.http2:
            yield Finding(Severity.ERROR, f"{cluster.where}.typed_extension_protocol_options", "HTTP/1.1")


RULE = Rule(
    title="the ext_proc cluster speaks HTTP/1.1",
    why="ext_proc is gRPC, and gRPC needs HTTP/2: no message ever arrives.",
    fix="`explicit_http_config: {http2_protocol_options: {}}` in the cluster's HttpProtocolOptions.",
    check=check,
)
