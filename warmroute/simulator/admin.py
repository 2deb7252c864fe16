"""Faults on demand, and counts of requests: the state behind the admin routes."""

from __future__ import annotations

import ipaddress
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from fleet.errors import WarmrouteError
from warmroute.simulator.metrics import Gauges

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmroute.simulator.driver import EngineDriver

FaultKind = Literal["none", "slow", "frozen", "status", "reset", "out_of_memory", "memory", "zeros", "jitter"]


class FaultError(WarmrouteError):
    """The requested fault is invalid."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault at a time; setting one heals the one before."""

    kind: FaultKind
    factor: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 10.0
    """For `slow`: the factor on the time of a step."""
    code: Annotated[int, msgspec.Meta(ge=400, le=599)] = 503
    """For `status`: the answer to every inference request."""
    ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.97
    """For `memory`: the KV cache use on the metrics page. For `jitter`: how far its gauges are off."""


NO_FAULT = Fault(kind="none")


def read_fault(body: bytes) -> Fault:
    """Read the body of POST /admin/fault; raise FaultError for an invalid one."""
    try:
        return msgspec.json.decode(body, type=Fault)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FaultError(str(error)) from error


def apply_fault(driver: EngineDriver, fault: Fault) -> None:
    """Bring the engine into the state that the fault means; `status` and `reset` are the server's matter."""
    driver.set_slowdown(fault.factor if fault.kind == "slow" else 1.0)
    driver.set_out_of_memory(out=fault.kind == "out_of_memory")
    driver.distort = _distortion(fault)
    if fault.kind == "frozen":
        driver.freeze()
    else:
        driver.thaw()


def _distortion(fault: Fault) -> Callable[[Gauges], Gauges] | None:
    if fault.kind == "memory":
        return lambda gauges: gauges._replace(kv_used_ratio=fault.ratio)
    if fault.kind == "zeros":
        return lambda _: Gauges(0, 0, 0.0)
    if fault.kind == "jitter":
        random = Random(0)
        return lambda gauges: Gauges(*(value * (1 + fault.ratio * random.uniform(-1, 1)) for value in gauges))
    return None


@dataclass(slots=True)
class RequestCounts:
    """What arrived, since the start or the last restart."""

    requests: int = 0
    """Inference requests, whatever became of them."""
    routed: int = 0
    """Those that carried the name of a picked endpoint."""
    honoured: int = 0
    """Requests with this engine as their picked endpoint."""
    finished: int = 0
    aborted: int = 0
    """Cut short by the client, a restart or a reset."""
    refused: int = 0
    """Answered with an error."""
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def arrive(self, picked: str | None, address: str) -> None:
        """Count a request; `picked`: the endpoint that it was meant for, `address`: our own."""
        self.requests += 1
        if picked is not None:
            self.routed += 1
            self.honoured += picked == address

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return asdict(self)


def is_loopback(remote: str | None) -> bool:
    """Whether a peer's address is this machine's own; a Unix socket's peer has none and counts as one."""
    if not remote:
        return True
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
