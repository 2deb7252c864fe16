"""NVML's life cycle: start it, read every GPU, detect a lost GPU or driver, start it again.

Every call into NVML happens in `NvmlReader.sample` or `close`, which one thread runs. Nothing here is async.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from fleet.gpu.faults import MAX_REMEMBERED, FaultLog
from fleet.gpu.reading import GpuReading, NodeReading
from warmroute.gpu_agent.fields import Session, Surroundings, about_one_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmroute.gpu_agent.metrics import AgentMetrics

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 30.0
SURROUNDINGS_EVERY: Final = 30
"""Samples between two readings of `Surroundings`."""
MISMATCHES_BEFORE_RESTART: Final = 4
_NOTHING_AROUND: Final = Surroundings(None, None, None)


@dataclass
class _GpuState:
    """State of a GPU that outlives a session of NVML."""

    index: int
    log: FaultLog = field(default_factory=FaultLog)
    surroundings: Surroundings = _NOTHING_AROUND
    ecc_uncorrected: int | None = None
    recovery_action: str | None = None
    lost: bool = False

    def forget_faults(self) -> None:
        """Forget the faults: the GPU, or its driver, was away."""
        self.log.clear()
        self.ecc_uncorrected = self.recovery_action = None

    def notice(self, reading: GpuReading, now: float) -> GpuReading:
        """Add faults for values worse than in the last reading; return the reading with all faults."""
        if self.lost:
            self.lost = False
            self.forget_faults()
        action, errors = reading.recovery_action, reading.ecc_uncorrected_total
        if action == "none" and self.recovery_action not in {None, "none"}:
            self.log.clear()
        if action is not None:
            self.recovery_action = action
        if errors is not None:
            if self.ecc_uncorrected is not None and errors > self.ecc_uncorrected:
                self.log.note("state", "ecc_uncorrected", now)
            self.ecc_uncorrected = errors
        return replace(reading, faults=self.log.events())


class NvmlReader:
    """Reads all GPUs. An error makes a reading with fewer values, never an exception."""

    def __init__(self, load: Callable[[], Any], clock: Callable[[], float], metrics: AgentMetrics) -> None:
        """`load` imports pynvml, or a double."""
        self._load = load
        self._clock = clock
        self._metrics = metrics
        self._session: Session | None = None
        self._samples = 0
        self._gpus: dict[str, _GpuState] = {}
        self._cuda_errors: SimpleQueue[tuple[str, int]] = SimpleQueue()
        self._reason = ""
        self._retry_at = float("-inf")
        self._backoff = FIRST_BACKOFF_SECONDS
        self._driver_was_gone = False
        self._mismatches = 0

    @property
    def needs_restart(self) -> bool:
        """Whether only a new process can load the library that fits the driver, which was replaced."""
        return bool(self._gpus) and self._mismatches >= MISMATCHES_BEFORE_RESTART

    def note_cuda_error(self, uuid: str, code: int) -> None:
        """Queue a CUDA error that an engine has reported; from any thread."""
        self._cuda_errors.put((uuid, code))

    def sample(self) -> NodeReading:
        """Read all GPUs; blocks for as long as NVML does."""
        now = self._clock()
        self._take_cuda_errors(now)
        if self._session is not None and self._any_lost() and now >= self._retry_at:
            self._stop("a lost GPU may be back")
        if self._session is None and now >= self._retry_at:
            self._start(now)
        session = self._session
        if session is None:
            return self._without(now)
        try:
            return self._read(session, now)
        except session.nvml.NVMLError as error:
            self._driver_gone(session.nvml, error, now)
            return self._without(now)

    def close(self) -> None:
        """End NVML."""
        self._stop("the agent ends")

    def _start(self, now: float) -> None:
        """Begin a session, or set the reason and the time of the next try."""
        try:
            nvml = self._load()
        except ImportError as error:
            self._fails(f"the module pynvml cannot be loaded: {error}", now)
            return
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            mismatch = error.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
            self._mismatches = self._mismatches + 1 if mismatch else 0
            self._driver_gone(nvml, error, now)
            return
        self._session = session = Session(nvml, self._metrics)
        try:
            session.open()
        except nvml.NVMLError as error:
            self._driver_gone(nvml, error, now)
            return
        if not session.devices and not self._gpus:
            self._stop("")
            self._fails("the driver shows no GPU", now)
            return
        self._begun(session, now)

    def _begun(self, session: Session, now: float) -> None:
        if self._reason or not self._gpus:
            logger.info("NVML runs: driver %s, %d GPUs", session.driver_version, len(session.devices))
        for uuid, device in session.devices.items():
            state = self._gpus.setdefault(uuid, _GpuState(device.index))
            state.index = device.index
            if self._driver_was_gone:
                state.forget_faults()
        for uuid in self._gpus.keys() - session.devices.keys():
            self._gpus[uuid].lost = True
        self._reason, self._mismatches, self._samples, self._driver_was_gone = "", 0, 0, False
        if self._any_lost():
            self._delay(now)  # A lost GPU may return: NVML is restarted from time to time.
        else:
            self._backoff = FIRST_BACKOFF_SECONDS

    def _read(self, session: Session, now: float) -> NodeReading:
        for uuid, code in session.xids():
            if uuid in self._gpus:
                logger.warning("GPU %d: XID %d", self._gpus[uuid].index, code)
                self._gpus[uuid].log.note("xid", str(code), now)
        around = self._samples % SURROUNDINGS_EVERY == 0
        self._samples += 1
        gpus = tuple(self._gpu(session, uuid, now, around=around) for uuid in self._gpus)
        return NodeReading(now, gpus, "", session.driver_version)

    def _gpu(self, session: Session, uuid: str, now: float, *, around: bool) -> GpuReading:
        state, device = self._gpus[uuid], session.devices.get(uuid)
        if device is None:
            return _lost(uuid, state)
        try:
            if around:
                state.surroundings = session.fields.surroundings(device, session.devices)
            return state.notice(session.gpu(device, state.surroundings), now)
        except session.nvml.NVMLError as error:
            if not about_one_gpu(session.nvml, error):
                raise
            if not state.lost:
                logger.warning("GPU %d is lost: %s", state.index, error)
                state.lost = True
                self._delay(now)
            return _lost(uuid, state)

    def _any_lost(self) -> bool:
        return any(state.lost for state in self._gpus.values())

    def _take_cuda_errors(self, now: float) -> None:
        for _ in range(MAX_REMEMBERED):
            try:
                uuid, code = self._cuda_errors.get_nowait()
            except Empty:
                return
            if uuid in self._gpus:
                self._gpus[uuid].log.note("cuda", str(code), now)

    def _driver_gone(self, nvml: Any, error: Any, now: float) -> None:
        self._driver_was_gone = True
        if error.value == nvml.NVML_ERROR_DRIVER_NOT_LOADED:
            for state in self._gpus.values():
                state.lost = True
        self._stop(str(error))
        self._fails(f"NVML fails: {error}", now)

    def _stop(self, why: str) -> None:
        session, self._session = self._session, None
        if session is not None:
            if why:
                logger.info("NVML is shut down: %s", why)
            self._metrics.restarts.inc()
            session.close()

    def _fails(self, reason: str, now: float) -> None:
        if reason != self._reason:
            logger.warning("no GPU can be read: %s; this is tried again now and then", reason)
        self._reason = reason
        self._delay(now)

    def _delay(self, now: float) -> None:
        self._retry_at = now + self._backoff
        self._backoff = min(2 * self._backoff, MAX_BACKOFF_SECONDS)

    def _without(self, now: float) -> NodeReading:
        """Return a reading without a session: the lost GPUs, and the reason."""
        gpus = tuple(_lost(uuid, state) for uuid, state in self._gpus.items() if state.lost)
        return NodeReading(now, gpus, self._reason)


def _lost(uuid: str, state: _GpuState) -> GpuReading:
    name = state.surroundings.name
    return GpuReading(uuid, index=state.index, name=name, faults=state.log.events(), lost=True)
