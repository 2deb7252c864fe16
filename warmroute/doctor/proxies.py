"""The supported proxies. A new one is a folder next to `envoy` and a line here."""

from __future__ import annotations

from typing import Any, Final

from warmroute.doctor.envoy.ask import looked_at
from warmroute.doctor.envoy.read import read
from warmroute.doctor.envoy.rules import RULES
from warmroute.doctor.rule import Proxy

PROXIES: Final[dict[str, Proxy[Any]]] = {
    "envoy": Proxy(read=read, looked_at=looked_at, rules=RULES),
}
