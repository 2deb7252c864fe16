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
    from collections.abc import Sequence

RUN_BYTES: Final = 2048
MOST_RUNS: Final = 4096
_SIZE: Final = re.compile(r"[0-9]{1,12}")
_MOST_CHARS: Final = 20 + MOST_RUNS * 8 * 4 // 3


def run_blocks(block_bytes: int) -> int:
    """Return how many blocks of the prefix index make a run."""
    return max(1, RUN_BYTES // block_bytes)


def encode(text_bytes: int, blocks: Sequence[int], block_bytes: int) -> str:
    """Return a prompt of chained block hashes as text."""
    step = run_blocks(block_bytes)
    runs = np.array(blocks[step - 1 :: step][:MOST_RUNS], "<u8")
    return f"{text_bytes}:{b64encode(runs.tobytes()).decode()}"


def decode(text: str) -> tuple[int, list[int]]:
    """Return the prompt's bytes and the hash of each run.

    Raises:
        ValueError: the text has another form.
    """
    size, separator, runs = text.partition(":")
    if not separator or len(text) > _MOST_CHARS or not _SIZE.fullmatch(size):
        raise ValueError("no recorded prompt")
    return int(size), np.frombuffer(b64decode(runs, validate=True), "<u8").tolist()
