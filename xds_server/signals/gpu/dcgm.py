"""Reads the pages of DCGM exporters into GPU readings, the same type that the GPU agent sends.

Names and units: https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html. Memory is in
MiB, utilisation in percent, power in watts. DCGM encodes a missing value as a large number. The value of
DCGM_FI_DEV_XID_ERRORS is the last code, not a count: if a code occurs twice in a row, the page stays the
same, and the age of the code on the first page is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import xxhash
from prometheus_client import Counter

from fleet.gpu.fault_table import FaultClass
from fleet.gpu.faults import FaultLog, classify
from fleet.gpu.reading import GpuReading, MigSlice, NodeReading, RemappedRows, clocks_reasons
from fleet.service.turns import Turns
from xds_server.http1.client import FetchError
from xds_server.signals.scrape.aside import Aside, Cost
from xds_server.signals.scrape.fetch import PageFetcher
from xds_server.signals.scrape.page import PageError, PageReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.settings import LimitSettings, SignalSettings
    from xds_server.signals.gpu.reports import GpuBoard

logger = logging.getLogger(__name__)

BLANK_FROM: Final = 2_147_483_632.0
"""DCGM_INT32_BLANK. Numbers from here on mean that a value is missing, unsupported or not permitted, also in
64-bit and floating-point fields. The values of all fields in `FIELDS` are smaller."""
MIB: Final = 1024 * 1024
MAX_PAGE_GPUS: Final = 64

USED, FREE, RESERVED = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"
UTILISATION, UTILISATION_RATIO = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"
ENGINE_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
# DCGM 4.7 uses the second name of each pair.
TEMPERATURE = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS")
POWER = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS")
POWER_LIMITS = ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_POWER_MGMT_LIMIT")
CLOCKS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
XID = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR")
CORRECTED, UNCORRECTED = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
ROWS = (
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_PENDING",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
)
RETIRED_PENDING = "DCGM_FI_DEV_RETIRED_PENDING"
FIELDS: Final = frozenset(
    (
        *(USED, FREE, RESERVED, UTILISATION, UTILISATION_RATIO, ENGINE_ACTIVE),
        *(*TEMPERATURE, *POWER, *POWER_LIMITS, *CLOCKS, *XID),
        *(CORRECTED, UNCORRECTED, *ROWS, RETIRED_PENDING),
    )
)

_Fields = dict[str, float]


class _Gpu:
    """The lines of one GPU on a page."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.fields: _Fields = {}
        self.slices: dict[str, tuple[str, _Fields]] = {}
        """The profile and the fields of each MIG instance, by its id."""


class DcgmReader:
    """Reads the pages of one exporter in order: a change between two pages reveals a fault."""

    def __init__(self) -> None:
        self._pages = PageReader(FIELDS)
        self._logs: dict[str, FaultLog] = {}
        self._before: dict[str, tuple[float | None, float | None]] = {}
        """The last XID and the number of uncorrected errors, by UUID."""

    def read(self, page: bytes, now: float) -> NodeReading:
        """Convert a page into a reading; a field that cannot be parsed is unknown.

        Raises:
            PageError: the page has too many lines with fields of `FIELDS`.
        """
        lines = self._pages.read(page)
        gpu_of: dict[str, _Gpu] = {}
        for series, value in zip(lines.series, lines.values, strict=True):
            uuid = series.labels.get("UUID", "")
            if (
                not uuid
                or not 0 <= value < BLANK_FROM
                or (uuid not in gpu_of and len(gpu_of) >= MAX_PAGE_GPUS)
            ):
                continue
            gpu = gpu_of.setdefault(uuid, _Gpu(series.labels))
            instance = series.labels.get("GPU_I_ID", "")
            if instance:
                profile = series.labels.get("GPU_I_PROFILE", "")
                gpu.slices.setdefault(instance, (profile, {}))[1][series.name] = value
            else:
                gpu.fields[series.name] = value
        self._logs = {uuid: self._logs.get(uuid) or FaultLog() for uuid in gpu_of}
        self._before = {uuid: before for uuid, before in self._before.items() if uuid in gpu_of}
        gpus = tuple(self._gpu(uuid, gpu, now) for uuid, gpu in gpu_of.items())
        return NodeReading(now, gpus, "" if gpus else "the page has no GPU")

    def _gpu(self, uuid: str, gpu: _Gpu, now: float) -> GpuReading:
        # Under MIG, the exporter repeats some fields of the whole GPU at each slice.
        whole = {**(next(iter(gpu.slices.values()))[1] if gpu.slices else {}), **gpu.fields}
        used, total = _memory(gpu.fields)
        self._record_faults(uuid, whole, now)
        mask = _first(whole, CLOCKS)
        rows = [whole.get(name) for name in ROWS]
        pending = whole.get(RETIRED_PENDING)
        return GpuReading(
            uuid=uuid,
            index=_whole_number(gpu.labels.get("gpu", "")),
            name=gpu.labels.get("modelName"),
            memory_used_bytes=used,
            memory_total_bytes=total,
            utilisation_ratio=_utilisation(gpu),
            temperature_celsius=_first(whole, TEMPERATURE),
            power_watts=_first(whole, POWER),
            power_limit_watts=_first(whole, POWER_LIMITS),
            clocks_reasons=None if mask is None else clocks_reasons(int(mask)),
            ecc_corrected_total=_count(whole.get(CORRECTED)),
            ecc_uncorrected_total=_count(whole.get(UNCORRECTED)),
            remapped_rows=None
            if all(value is None for value in rows)
            else RemappedRows(int(rows[0] or 0), int(rows[1] or 0), bool(rows[2]), bool(rows[3])),
            retirement_pending=None if pending is None else pending > 0,
            mig_enabled=bool(gpu.slices) or None,
            mig_slices=tuple(
                MigSlice("", _whole_number(instance), profile or None, *_memory(fields))
                for instance, (profile, fields) in gpu.slices.items()
            ),
            faults=self._logs[uuid].events(),
        )

    def _record_faults(self, uuid: str, fields: _Fields, now: float) -> None:
        """Record a fault for each change since the last page.

        The code 0 means that no error has occurred since DCGM started. A change to 0 ends all faults.
        """
        xid, errors = _first(fields, XID), fields.get(UNCORRECTED)
        first = uuid not in self._before
        xid_before, errors_before = self._before.get(uuid, (None, None))
        log = self._logs[uuid]
        if xid == 0:
            if xid_before:
                log.clear()
        elif xid is not None and xid != xid_before:
            code = str(int(xid))
            # A code on the first page may be days old. It counts only if the fault lasts until a reset.
            if not first or classify("xid", code) is FaultClass.DRAINED:
                log.note("xid", code, now)
        if errors is not None and errors_before is not None and errors > errors_before:
            log.note("state", "ecc_uncorrected", now)
        # A missing field does not change the stored value.
        self._before[uuid] = (xid_before if xid is None else xid, errors_before if errors is None else errors)


def _memory(fields: _Fields) -> tuple[int | None, int | None]:
    used, free = fields.get(USED), fields.get(FREE)
    if used is None or free is None or used + free <= 0:
        return None, None
    in_use = used + fields.get(RESERVED, 0.0)
    return int(in_use * MIB), int((in_use + free) * MIB)


def _utilisation(gpu: _Gpu) -> float | None:
    """Return GPU_UTIL; under MIG, where it is missing or 0, the mean of the slices' active cycles."""
    if not gpu.slices:
        if (percent := gpu.fields.get(UTILISATION)) is not None:
            return percent / 100
        if (ratio := gpu.fields.get(UTILISATION_RATIO)) is not None:
            return ratio
    active = [fields[ENGINE_ACTIVE] for _, fields in gpu.slices.values() if ENGINE_ACTIVE in fields]
    return sum(active) / len(active) if active else gpu.fields.get(ENGINE_ACTIVE)


def _first(fields: _Fields, names: tuple[str, ...]) -> float | None:
    return next((fields[name] for name in names if name in fields), None)


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def _whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None


class DcgmPoller:
    """Reads the pages that endpoints name into a board. Endpoints that name the same page share one read."""

    def __init__(
        self,
        board: GpuBoard,
        signals: SignalSettings,
        limits: LimitSettings,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board = board
        self._signals = signals
        self._clock = clock
        self._failures = Counter(
            "warmroute_gpu_page_failures_total",
            "Reads of DCGM exporters' pages that failed, by kind",
            ["kind"],
            registry=registry,
        )
        self._tasks: dict[tuple[str, bool], asyncio.Task[None]] = {}
        """Keyed by URL and by whether only sources, not the settings, name it (see `Endpoint.screened`)."""
        self._fetcher = PageFetcher(limits.metrics_page_bytes)
        self._turns = Turns()
        self._aside = Aside()

    def reconfigure(self, signals: SignalSettings) -> None:
        """Apply changed settings from the next read of each page on."""
        self._signals = signals

    def update(self, membership: Membership) -> None:
        """Start and stop reads according to the membership. Call this inside the event loop."""
        screened: dict[str, bool] = {}
        for endpoint in membership.endpoints:
            if url := endpoint.gpu_metrics_url:
                screened[url] = screened.get(url, True) and endpoint.screened
        for key in self._tasks.keys() - screened.items():
            self._tasks.pop(key).cancel()
        for key in screened.items() - self._tasks.keys():
            self._tasks[key] = asyncio.create_task(self._poll(*key), name="DCGM page")
        self._board.keep_pages(set(screened))

    async def close(self) -> None:
        """Cancel all reads."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._fetcher.close()

    async def _poll(self, url: str, screened: bool) -> None:  # noqa: FBT001 - part of the key
        reader, cost, failing = DcgmReader(), Cost(), ""
        # The first reads are spread over the interval.
        await asyncio.sleep(xxhash.xxh32_intdigest(url.encode()) / 2**32 * min(0.25, self._interval()))
        while True:
            try:
                await self._turns.step()
                seconds = self._signals.scrape_timeout_seconds
                page = await self._fetcher.fetch(url, seconds, screened=screened)
                now = self._clock()
                reading = await self._aside.run(cost, len(page), partial(reader.read, page, now))
                self._board.take_page(url, reading)
                failing = ""
            except (FetchError, PageError) as error:
                kind = error.kind if isinstance(error, FetchError) else "too_large"
                self._failures.labels(kind).inc()
                if failing != kind:
                    logger.warning("a DCGM exporter's page cannot be read: %s", error)
                failing = kind
            pause = cost.pause(self._interval(), self._signals.stale_after_seconds)
            await asyncio.sleep(self._interval() + pause)

    def _interval(self) -> float:
        return self._signals.scrape_interval_seconds
