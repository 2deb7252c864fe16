"""`python -m bench`: run every bench, or those named, and sum up which targets are met."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from warmroute.demo import report

if TYPE_CHECKING:
    from collections.abc import Sequence

BENCHES: Final = {
    "demo": "round robin, least request and Warmroute at the real Envoy, on requests of a real trace",
    "demo_knee": "what the demo's engines carry by each policy, in virtual time",
    "outage": "what requests feel when ext_proc, xds_server or an engine is killed or frozen",
    "chaos": "what fails while all parts are killed, rolled, drained, rotated, reloaded",
    "stability": "how weights move under noise, a load step, a load in step with the scrapes, zeros",
    "faults": "how much still goes to an engine that hangs, crawls or fails, and how soon it is back",
    "xds_scale": "what a weight change to many Envoys costs and takes, next to a bare gRPC server",
    "signal_to_ack": "from a changed signal to the real Envoy's ACK",
    "weights_honoured": "shares that engines see against pushed weights, by load balancing policy",
    "xds_churn": "what many thousand connections, subscriptions and cancellations leave behind",
    "resets": "what ext_proc keeps of streams that Envoy has reset, as it ends each",
    "skew": "how soon each kind of skew is reported, and false alarms in an hour of noise",
    "quiet": "pushes while signals stand still, and whether two servers send the same versions",
    "reuse": "how often connections are used again, to engines and to ext_proc, and Envoy's CPU",
    "handshake": "CPU and time of full and resumed TLS handshakes at the real Envoy",
    "scrape": "what reading an engine's metrics page costs, compared with prometheus_client's parser",
    "tick": "CPU of one tick over 1,000 endpoints, in parts, from numbers read to what workers are sent",
    "prediction": "forecasts of engines' loads against the last value, and what they add to a tick",
    "dashboards": "every query of dashboards and rules on a real Prometheus (docs/dashboards.md)",
    "trace": "a weight update's trace up to the real Envoy's ACK, read back from Phoenix",
    "affinity": "hit ratio and balance with several workers, shared and not, on real prompts",
    "replay": "every policy on real and generated workloads by `warmroute replay`, over seeds",
    "live_vs_replay": "the same agents' requests through the real Envoy and through replay",
    "uneven": "a slow engine among others, and a fleet that is full, under load",
    "abuse": "what attacks on each door cost honest requests: stalls, memory, failures, lost picks",
    "bodies": "the longest that one request body holds the loop, by families of hostile bodies",
    "partial_json": "the reader of cut bodies next to pydantic_core's parser for partial JSON",
    "pick": "what one pick costs, in parts, by endpoints and length of the prompt",
    "cost_model": "predicted times to first token against real ones, and against plain predictions",
    "request_cpu": "CPU of a request in ext_proc behind the real Envoy, next to a bare gRPC server",
    "own_work": "CPU of ext_proc's own work on one request, in parts, without a transport",
    "lane": "ext_proc by transport behind the real Envoy, next to a bare gRPC server; memory, idle wake-ups",
    "lane_core": "CPU of a request in the lane's core without a socket, next to hyper-h2 on the same bytes",
    "clients": "the official clients, curl, an offer of h2c and long agents: picks, and bytes at the engine",
    "peers": "Envoy with Warmroute next to other routers for LLM requests: latency, CPU, faulty engines",
    "engine_model": "the simulated engine against measured vLLM, on rows that its constants do not come from",
    "index": "bytes a block and look-ups a second of a full prefix index, compared with a plain dict of sets",
    "index_cost": "what the prefix index costs for each request, and how much memory it takes",
}
BY_NAME: Final = frozenset({"abuse", "clients", "dashboards", "lane", "peers", "replay", "trace"})
"""They take a quarter of an hour or hours, or run programs that `make` does not install: only if named."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benches one after the other; 1 when a target is not met or a bench did not end."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="BENCH",
        help=f"of {', '.join(BENCHES)}; default: all but those that take very long or need more",
    )
    parser.add_argument("--list", action="store_true", help="only say what there is")
    args = parser.parse_args(arguments)
    if unknown := set(args.names) - set(BENCHES):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    if args.list:
        for name, text in BENCHES.items():
            print(f"{name:16} python -m bench.{name} --json   {text}")
        return 0
    results = {name: run(name) for name in args.names or [name for name in BENCHES if name not in BY_NAME]}
    met = True
    for name, result in results.items():
        print(f"\n{name}: {BENCHES[name]}")
        if result is None:
            print("NOT MET  it did not come to its end")
            met = False
            continue
        if "wanted" not in result:
            print(json.dumps(result))
        targets = [
            report.Target(entry["name"], entry["value"], entry["wanted"], entry["met"])
            for entry in result.get("wanted", ())
        ]
        print("\n".join(report.lines(targets)))
        met = met and report.exit_code(targets) == 0
    return 0 if met else 1


def run(name: str) -> dict[str, Any] | None:
    """Run one bench in a process of its own; return the object it prints, or None without one."""
    report.progress(f"-- {name}")
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    return printed_object(done.stdout)


def printed_object(output: str) -> dict[str, Any] | None:
    """Return the JSON object that is the whole output or its last line; None when neither is one."""
    for text in (output, output.strip().rpartition("\n")[2]):
        try:
            result = json.loads(text)
        except ValueError:
            continue
        if isinstance(result, dict):
            return result
    return None


if __name__ == "__main__":
    sys.exit(main())
