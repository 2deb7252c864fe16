"""A machine with two GPUs, and a reader on it whose clock the test turns."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from warmroute.gpu_agent.metrics import AgentMetrics
from warmroute.gpu_agent.nvml import NvmlReader

if TYPE_CHECKING:
    from fleet.gpu.reading import NodeReading


def _load_fake() -> Any:
    """Tests import by path, so the module is loaded by path and once."""
    name = "tests_gpu_agent_fake_nvml"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("fake_nvml.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


fakes = _load_fake()


@dataclass
class Bench:
    """One machine, its reader, and time."""

    nvml: Any
    now: float = 1000.0
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.metrics = AgentMetrics.of(self.registry)
        self.reader = NvmlReader(lambda: self.nvml, lambda: self.now, self.metrics)

    def sample(self, after: float = 1.0) -> NodeReading:
        """Read everything, some seconds later."""
        self.now += after
        return self.reader.sample()

    def errors(self, name: str, error: str) -> float:
        """How often a field was unknown for a reason."""
        labels = {"field": name, "error": error}
        return self.registry.get_sample_value("warmroute_gpu_agent_field_errors_total", labels) or 0.0


@pytest.fixture
def bench() -> Bench:
    return Bench(
        fakes.FakeNvml(fakes.FakeGpu("GPU-a", "00000000:1A:00.0"), fakes.FakeGpu("GPU-b", "00000000:1B:00.0"))
    )


@pytest.fixture
def mig_class() -> Any:
    return fakes.FakeMig
