"""Between readings of GPUs and the messages of `proto/warmroute/v1/gpu.proto`. Ages travel, clocks do not."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fleet.errors import PeerError
from fleet.gpu.faults import FAULT_KINDS, MAX_REMEMBERED, FaultEvent
from fleet.gpu.reading import (
    CLOCKS_EVENT_REASONS,
    GpuReading,
    MigSlice,
    NodeReading,
    NvLink,
    PeerLink,
    RemappedRows,
)
from fleet.wire import gpu_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

Part = MigSlice | NvLink | PeerLink | FaultEvent
P = TypeVar("P", MigSlice, NvLink, PeerLink, FaultEvent)

MAX_GPUS: Final = 64
"""Of one host; a report with more is refused."""
MAX_PARTS: Final = 64
"""MIG slices, NVLinks or peers of one GPU."""
MAX_TEXT: Final = 256
MAX_AGE_SECONDS: Final = 10 * 365 * 86_400.0

_PLAIN: Final = (
    "index",
    "name",
    "memory_used_bytes",
    "memory_total_bytes",
    "utilisation_ratio",
    "temperature_celsius",
    "power_watts",
    "power_limit_watts",
    "ecc_corrected_total",
    "ecc_uncorrected_total",
    "retirement_pending",
    "mig_enabled",
    "pcie_generation",
    "pcie_width",
    "recovery_action",
)
"""Optional fields that are alike on both sides."""
_REASONS: Final = frozenset(CLOCKS_EVENT_REASONS.values())
_SLICE: Final = ("instance", "name", "memory_used_bytes", "memory_total_bytes")


def encode_report(node: str, reading: NodeReading, now: float) -> gpu_pb2.GpuReport:
    """Encode a host's report, with ages as of `now`."""
    report = gpu_pb2.GpuReport(
        node=node, age_seconds=max(0.0, now - reading.sampled_at), unavailable=reading.unavailable[:MAX_TEXT]
    )
    if reading.driver_version is not None:
        report.driver_version = reading.driver_version
    for gpu in reading.gpus:
        _encode_gpu(gpu, report.gpus.add(), now)
    return report


def _encode_gpu(gpu: GpuReading, sent: gpu_pb2.Gpu, now: float) -> None:
    sent.uuid, sent.lost = gpu.uuid, gpu.lost
    _copy(gpu, sent, _PLAIN)
    if gpu.clocks_reasons is not None:
        sent.clocks_reasons.SetInParent()
        sent.clocks_reasons.reasons.extend(sorted(gpu.clocks_reasons))
    if (rows := gpu.remapped_rows) is not None:
        sent.remapped_rows.SetInParent()
        _copy(rows, sent.remapped_rows, ("correctable", "uncorrectable", "pending", "failed"))
    for mig in gpu.mig_slices:
        _copy(mig, sent.mig_slices.add(uuid=mig.uuid), _SLICE)
    if gpu.nvlinks is not None:
        sent.nvlinks.SetInParent()
        for link in gpu.nvlinks:
            _copy(link, sent.nvlinks.links.add(link=link.link), ("active", "peer"))
    if gpu.peers is not None:
        sent.peers.SetInParent()
        for peer in gpu.peers:
            sent.peers.peers.add(uuid=peer.uuid, link=peer.link)
    for fault in gpu.faults:
        sent.faults.add(
            kind=fault.kind, code=fault.code, count=fault.times, age_seconds=max(0.0, now - fault.at)
        )


def gpus_of(report: gpu_pb2.GpuReport) -> Sequence[gpu_pb2.Gpu]:
    """Return the GPUs of a report, for `decode_gpu`.

    Raises:
        PeerError: the report has more than `MAX_GPUS`.
    """
    if len(report.gpus) > MAX_GPUS:
        raise PeerError(f"{len(report.gpus)} GPUs, at most {MAX_GPUS} are taken")
    sent: Sequence[gpu_pb2.Gpu] = report.gpus
    return sent


def decode_report(report: gpu_pb2.GpuReport, gpus: Sequence[GpuReading], now: float) -> NodeReading:
    """Read the inverse of `encode_report`, with its GPUs; its times are on this process's clock, `now`.

    Raises:
        PeerError: a limit of this module is exceeded, an age is invalid, or a GPU occurs twice.
    """
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        raise PeerError("the same GPU twice")
    return NodeReading(
        sampled_at=now - _age(report.age_seconds),
        gpus=tuple(gpus),
        unavailable=_text(report.unavailable),
        driver_version=_optional(report, "driver_version"),
    )


def decode_gpu(sent: gpu_pb2.Gpu, now: float, parts: dict[Part, Part]) -> GpuReading:
    """Read one GPU, in half a millisecond at most.

    `parts` holds the slices, links, peers and faults of the report, each once: GPUs of a host have the same
    links and peers.

    Raises:
        PeerError: a limit of this module is exceeded, an age is invalid, or the UUID is missing.
    """
    if not sent.uuid:
        raise PeerError("a GPU without a UUID")
    most = max(len(sent.mig_slices), len(sent.nvlinks.links), len(sent.peers.peers), len(sent.faults))
    if most > max(MAX_PARTS, MAX_REMEMBERED):
        raise PeerError(f"a GPU with {most} parts of one kind")
    rows = sent.remapped_rows

    def once(part: P) -> P:
        return parts.setdefault(part, part)  # type: ignore[return-value] # Equal parts are of one type.

    return GpuReading(
        uuid=_text(sent.uuid),
        lost=sent.lost,
        clocks_reasons=_REASONS.intersection(sent.clocks_reasons.reasons)
        if sent.HasField("clocks_reasons")
        else None,
        remapped_rows=RemappedRows(rows.correctable, rows.uncorrectable, rows.pending, rows.failed)
        if sent.HasField("remapped_rows")
        else None,
        mig_slices=tuple(
            once(MigSlice(uuid=_text(mig.uuid), **{name: _optional(mig, name) for name in _SLICE}))
            for mig in sent.mig_slices
        ),
        nvlinks=tuple(
            once(NvLink(link.link, _optional(link, "active"), _optional(link, "peer")))
            for link in sent.nvlinks.links
        )
        if sent.HasField("nvlinks")
        else None,
        peers=tuple(once(PeerLink(_text(peer.uuid), _text(peer.link))) for peer in sent.peers.peers)
        if sent.HasField("peers")
        else None,
        faults=tuple(once(_decode_fault(fault, now)) for fault in sent.faults),
        **{name: _optional(sent, name) for name in _PLAIN},
    )


def _decode_fault(fault: gpu_pb2.GpuFault, now: float) -> FaultEvent:
    kind = next((kind for kind in FAULT_KINDS if kind == fault.kind), None)
    if kind is None:
        raise PeerError(f"a fault of kind {fault.kind[:20]!r}")
    return FaultEvent(kind, _text(fault.code), now - _age(fault.age_seconds), fault.count)


def _copy(source: object, target: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(source, name)
        if value is not None:
            setattr(target, name, value)


def _optional(message: Any, name: str) -> Any:
    """An optional field, None when unset; text is checked for its length, numbers for being finite."""
    if not message.HasField(name):
        return None
    value = getattr(message, name)
    if isinstance(value, float) and not isfinite(value):
        return None
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise PeerError(f"a text of {len(text)} characters, at most {MAX_TEXT} are taken")
    return text


def _age(seconds: float) -> float:
    if not 0 <= seconds <= MAX_AGE_SECONDS:
        raise PeerError(f"an age of {seconds:g} s")
    return seconds
