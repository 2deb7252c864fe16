"""The kinds of engine whose metrics pages can be read: a new one is a file here and a line below."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from xds_server.signals.scrape.llama_cpp import LLAMA_CPP
from xds_server.signals.scrape.named import tables_with
from xds_server.signals.scrape.reader import AutoReader, TableReader
from xds_server.signals.scrape.sglang import SGLANG
from xds_server.signals.scrape.tei import TEI
from xds_server.signals.scrape.tensorrt_llm import TENSORRT_LLM
from xds_server.signals.scrape.tgi import TGI
from xds_server.signals.scrape.triton import TRITON
from xds_server.signals.scrape.vllm import NIM, VLLM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.settings import SignalSettings
    from xds_server.signals.scrape.named import Names
    from xds_server.signals.scrape.ranks import RankPage
    from xds_server.signals.scrape.rules import Table


class EngineReader(Protocol):
    """Reads one endpoint's pages, one after the other; it remembers what windows need."""

    malformed_lines: int
    """Lines of the newest page that carry a wanted name and could not be read."""
    second_page: str
    """Name of a second page that is fetched with the next one; empty: none."""
    ranks: RankPage
    """Of the newest page."""

    def read(self, page: bytes, now: float, second: bytes | None = None) -> Mapping[str, float]:
        """Return the numbers of a page by the name of their signal, without what cannot be read.

        `second` is the second page; None: it was not fetched.

        Raises:
            PageError: too many lines of it would be read.
        """
        ...


ENGINES: Final[dict[str, Table]] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "triton": TRITON,
    "tgi": TGI,
    "tei": TEI,
    "llama.cpp": LLAMA_CPP,
    "tensorrt-llm": TENSORRT_LLM,
    # Last, because its names have no prefix: a page that is another kind's may have them too.
    "nim": NIM,
}
"""Engine kind to the table of its metrics; kinds are tried in this order where the kind is `auto`."""


@lru_cache(maxsize=64)
def tables_of(kind: str, names: Names = ()) -> Mapping[str, Table]:
    """Return the tables that may read an endpoint's pages: those of `auto`, or of a kind of `ENGINES`."""
    tables = ENGINES if kind == "auto" else {kind: ENGINES[kind]}
    return tables_with(tables, names) if names else tables


def reader_of(kind: str, address: str, settings: SignalSettings, names: Names = ()) -> EngineReader:
    """Make a reader for an endpoint: `auto`, or a kind of `ENGINES`; `names` are those of the settings."""
    tables = tables_of(kind, names)
    if kind == "auto":
        return AutoReader(tables, address, settings)
    return TableReader(tables[kind], address, settings)
