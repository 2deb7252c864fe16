"""What holds for all tests: on a busy host, how long an example takes says nothing about the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from warmroute.demo.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

settings.register_profile("any_host", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_host")


@pytest.fixture(scope="session")
def unused_tcp_port_factory() -> Callable[[], int]:
    """Gives ports that no connection of this host will take meanwhile, as pytest-asyncio's own may be."""
    return free_port


@pytest.fixture
def unused_tcp_port(unused_tcp_port_factory: Callable[[], int]) -> int:
    """One of them."""
    return unused_tcp_port_factory()
