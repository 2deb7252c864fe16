"""An admin server that says what a test wants, in a thread of its own, because verbs have their own loops."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server(ThreadingHTTPServer):
    """A client that is killed is no fault of the test."""

    def handle_error(self, *_: Any) -> None:
        """Say nothing."""


class FakeAdmin:
    """Answers by path; a path that is not there is a 404, and a document that is a status is that status."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.token = ""
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, document = fake.answer(self.path, self.headers.get("authorization", ""))
                body = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                """Keep the tests' output clean."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, target: str, authorization: str) -> tuple[int, Any]:
        parts = urlsplit(target)
        self.requests.append((parts.path, parse_qs(parts.query)))
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {}
        document = self.documents.get(parts.path, 404)
        return (document, {}) if isinstance(document, int) else (200, document)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def admin() -> Iterator[FakeAdmin]:
    made = FakeAdmin()
    yield made
    made.stop()


@pytest.fixture
def endpoints() -> dict[str, Any]:
    """The document of /api/v1/endpoints for three endpoints in two pools."""
    return {
        "endpoints": [
            {
                "address": "10.0.0.1:8000",
                "pool": "chat",
                "state": "admitted",
                "source": "static",
                "weight": 300,
                "in_flight": 7,
                "reason": "idle",
                "load": {
                    "memory_used_ratio": 0.42,
                    "queue_depth": 0.0,
                    "running": 5.0,
                    "latency_p50_seconds": 0.05,
                    "latency_p99_seconds": 0.2341,
                    "prefix_hit_ratio": 0.9,
                    "error_ratio": 0.0,
                    "gpu_memory_used_ratio": 0.81,
                    "trust_ratio": 1.0,
                    "stalled": 0.0,
                },
            },
            {
                "address": "10.0.0.2:8000",
                "pool": "chat",
                "state": "admitted",
                "source": "static",
                "weight": 100,
                "in_flight": 31,
                "reason": "memory 0.97",
                "load": {
                    "memory_used_ratio": 0.97,
                    "queue_depth": 12.0,
                    "latency_p99_seconds": 3.4,
                    "error_ratio": 0.025,
                    "trust_ratio": 0.5,
                    "stalled": 1.0,
                    "gpu_health_score": 0.4,
                },
            },
            {
                "address": "10.0.0.3:8000",
                "pool": "code",
                "state": "probing",
                "source": "dns engines.example",
                "weight": None,
                "in_flight": 0,
                "load": None,
            },
        ]
    }


@pytest.fixture
def status() -> dict[str, Any]:
    return {
        "serving_last_good": [],
        "last_good_saved_at": None,
        "unknown_pools": [],
        "weight_updates": 4,
        "pushes": 9,
        "acks": 8,
        "nacks": 1,
        "picks": {"warm": 75, "cold": 20, "not_json": 5, "fault": 0},
    }
