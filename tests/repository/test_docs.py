"""The documents name only what exists, and all of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from ext_proc.pick import Reason
from fleet import names
from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.otlp_metrics import MetricPush
from fleet.service.telemetry import tracer_provider
from fleet.service.tls import Certificates
from fleet.service.watch import RESTART_ONLY, SettingsWatch
from fleet.settings import parse_settings
from fleet.settings.agents import AGENTS
from fleet.settings.load import ENVIRONMENT
from fleet.store import FleetStore
from warmroute.cli.main import VERBS
from warmroute.cli.worker_admin import WorkerAdmins
from warmroute.cli.workers import WORKERS_PATH, Workers
from xds_server.app import XdsServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fleet.settings import Settings

SETTINGS = "pools: [{name: a}]\nlisteners: [{name: l, address: '127.0.0.1:1', pool: a}]\n"


@pytest.fixture(scope="session")
def documents(root: Path) -> Mapping[Path, str]:
    """Every Markdown file."""
    paths = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return {path: path.read_text() for path in paths}


@pytest.fixture(scope="session")
def operations(root: Path) -> str:
    return (root / "docs" / "operations.md").read_text()


@pytest.fixture
def settings() -> Settings:
    return parse_settings(SETTINGS)


def prose(text: str) -> str:
    """Drop blocks of code, in which brackets mean something else."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(text: str) -> list[str]:
    return [
        link
        for link in re.findall(r"\]\(([^)\s]+)\)", prose(text))
        if not link.startswith(("http:", "https:"))
    ]


def test_links_between_documents_lead_somewhere(documents: Mapping[Path, str]) -> None:
    broken = []
    for path, text in documents.items():
        for link in links(text):
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_rows_of_tables_fit_their_headings(documents: Mapping[Path, str]) -> None:
    """As many cells in each row; in what `bench.abuse` and its like print, lines of one width."""
    unlike = []
    for path, text in documents.items():
        tables = re.findall(r"(?:^\|.*\n)+", prose(text), flags=re.MULTILINE)
        assert all(len(table.splitlines()) > 2 for table in tables), path
        printed = re.findall(r"^```\n(attack .*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        for rows in map(str.splitlines, tables):
            cells = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
            unlike += [
                f"{path.name}: {row}" for row, count in zip(rows, cells, strict=True) if count != cells[0]
            ]
        for rows in map(str.splitlines, printed):
            unlike += [f"{path.name}: {row}" for row in rows if len(row) != len(rows[0])]
    assert unlike == []


def test_every_document_can_be_reached_from_the_readme(root: Path, documents: Mapping[Path, str]) -> None:
    reached, waiting = set(), [root / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in reached or path not in documents:
            continue
        reached.add(path)
        waiting += [(path.parent / link.partition("#")[0]).resolve() for link in links(documents[path])]
    assert set(documents) - reached == set()


def test_the_changelog_has_each_entry_once(root: Path) -> None:
    """Two branches that rewrite the same entries leave both versions."""
    begins = re.findall(r"^- .{40}", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert [begin for begin in begins if begins.count(begin) > 1] == []


def test_commands_that_documents_name_exist(root: Path, documents: Mapping[Path, str]) -> None:
    targets = set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(), flags=re.MULTILINE))
    for path, text in documents.items():
        blocks = re.findall(r"^```.*?^```", text, flags=re.MULTILINE | re.DOTALL)
        code = "\n".join(re.findall(r"`([^`]+)`", prose(text)) + blocks)
        assert set(re.findall(r"\bmake ([a-z]+)", code)) <= targets, path
        assert set(re.findall(r"^\s*warmroute ([a-z-]+)", code, re.MULTILINE)) <= set(VERBS), path


def test_files_that_documents_name_exist(root: Path, documents: Mapping[Path, str]) -> None:
    """Paths in backticks that begin with a folder of ours."""
    folders = "fleet|xds_server|ext_proc|warmroute|testing|bench|proto|deploy|tests|docs"
    missing = {
        f"{path.name}: {named}"
        for path, text in documents.items()
        for named in re.findall(rf"`((?:{folders})/[\w./-]*)`", text)
        if not (root / named).exists()
    }
    assert missing == set()


def test_constants_that_documents_place_are_there(root: Path, documents: Mapping[Path, str]) -> None:
    """`NAME` in `path/to/file.py`, as the steps of CONTRIBUTING and the threat model have it."""
    stated = {
        (named, path)
        for text in documents.values()
        for named, path in re.findall(r"`([A-Z][A-Z_]{3,})` (?:in|of) `([\w/]+\.py)`", text)
    }
    assert len(stated) > 20
    assert {
        f"{named} in {path}"
        for named, path in stated
        if not re.search(rf"^{named}\b", (root / path).read_text(), flags=re.MULTILINE)
    } == set()


def test_examples_of_settings_in_documents_are_good(documents: Mapping[Path, str]) -> None:
    examples = [
        block
        for text in documents.values()
        for block in re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        if "pools" in (yaml.safe_load(block) or {})
    ]
    assert len(examples) >= 2
    for example in examples:
        parse_settings(example)


def test_environment_and_restart_rules_are_documented(root: Path) -> None:
    text = (root / "docs" / "settings.md").read_text()
    for variable, path in ENVIRONMENT.items():
        assert f"| `{variable}` | `{'.'.join(path)}` |" in text
    documented = text[text.index("## Reload") :]
    assert [f"{s}.{f}" for s, f in RESTART_ONLY if f"`{s}.{f}`" not in documented] == []


def test_every_name_shared_with_envoy_is_documented(operations: str) -> None:
    shared = {*names.UPSTREAM_HEADERS, *names.UPSTREAM_HEADERS.values(), *names.REMOVED_REQUEST_HEADERS}
    shared |= {names.DESTINATION_NAMESPACE, names.METADATA_NAMESPACE}
    assert {name for name in shared if f"`{name}`" not in operations} == set()


def test_every_reason_is_documented(operations: str) -> None:
    documented = dict(re.findall(r"^\| `([a-z_]+)` \| (no pick|picked): ", operations, flags=re.MULTILINE))
    assert set(documented) == {reason.value for reason in Reason}
    assert {reason for reason, what in documented.items() if what == "picked"} == names.PICKED_REASONS


def test_agents_and_their_session_names_are_documented(root: Path) -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (`.*`) \| (`.*`) \|$", (root / "docs/sessions.md").read_text(), re.MULTILINE
    )
    documented = {name: (headers, fields) for name, headers, fields in rows}
    assert documented == {
        name: tuple(", ".join(f"`{entry}`" for entry in entries) for entries in agent)
        for name, agent in AGENTS.items()
    }


def exposed(registry: CollectorRegistry) -> Iterator[str]:
    for metric in registry.collect():
        yield f"{metric.name}_total" if metric.type == "counter" else metric.name


async def test_every_metric_and_admin_path_is_documented(
    settings: Settings, root: Path, operations: str
) -> None:
    registry, store = CollectorRegistry(), FleetStore()
    provider = tracer_provider(settings.telemetry, "test", registry)
    parts: list[XdsServer | ExtProcServer] = [
        XdsServer(settings, store, registry, provider, control=True),
        ExtProcServer(settings, store, registry, provider, follow=True),
    ]
    SettingsWatch(root / "none.yaml", settings, parts[0].apply, registry)
    MetricPush(settings.telemetry, "test", registry)
    AdminServer(Access(""), registry, lambda: True, {})
    Workers(root / "none.yaml", settings, registry)
    WorkerAdmins((), None, registry)
    Certificates(registry)
    documented = set(re.findall(r"^\| `(warmroute_\w+)(?:\{[\w,]+\})?` \|", operations, flags=re.MULTILINE))
    assert documented == set(exposed(registry))
    paths = {path for part in parts for path in (*part.views(), *part.queries(), *part.actions())}
    paths |= {"/healthz", "/readyz", "/metrics", WORKERS_PATH}
    assert set(re.findall(r"^\| `(/[\w/]+)` \|", operations, flags=re.MULTILINE)) == paths


def test_files_that_recipes_write_are_ignored(root: Path) -> None:
    """A user who tries them sees no strange files in `git status`."""
    written = {
        "warmroute.yaml",
        *re.findall(r" > ([\w.-]+)$", (root / "docs" / "quickstart.md").read_text(), re.MULTILINE),
    }
    assert {"envoy.yaml", "envoy-2.yaml", "request.json"} <= written
    assert {f"/{name}" for name in written} <= set((root / ".gitignore").read_text().splitlines())
