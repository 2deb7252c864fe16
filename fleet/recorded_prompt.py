"""A prompt as ext_proc passes it to the recording: its length, and the identity of its prefixes.

The identity is a chained hash for each run of about `RUN_BYTES`. xds_server hashes each once more with a salt
before it writes it, so a file of it shows equal prefixes and confirms no guess of a prompt.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUN_BYTES: Final = 2048
MOST_RUNS: Final = 4096
_SIZE: Final = re.compile(r"[0-9]{1,12}")
_MOST_CHARS: Final = 20 + MOST_RUNS * 8 * 4 // 3


def run_blocks(block_bytes: int) -> int:
    """Return how many of the prefix index's shortest blocks make a run."""
    return max(1, RUN_BYTES // block_bytes)


def encode(text_bytes: int, runs: NDArray[np.uint64]) -> str:
    """Return a prompt by its length and the chained hashes of its runs as text."""
    return f"{text_bytes}:{b64encode(runs[:MOST_RUNS].astype('<u8').tobytes()).decode()}"


def decode(text: str) -> tuple[int, list[int]]:
    """Return the prompt's bytes and the hash of each run.

    Raises:
        ValueError: the text has another form.
    """
    size, separator, runs = text.partition(":")
    if not separator or len(text) > _MOST_CHARS or not _SIZE.fullmatch(size):
        raise ValueError("no recorded prompt")
    return int(size), np.frombuffer(b64decode(runs, validate=True), "<u8").tolist()
