"""A small byte-level BPE tokenizer of the usual make, trained on the spot, and a chat template."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """The train leaves at nine, and the other one at ten. Which of the two is late today?
Nobody knows; the timetable says 12:05 and 13:45, as it always did in the old days.

def late(train):
    return train.minutes > 5  # as they say
"""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@cache
def tokenizer(*, split: bool = True) -> Tokenizer:
    """Without `split` words may join over spaces and lines, as some tokenizers do."""
    made = Tokenizer(models.BPE())
    if split:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=[AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([TEXT] * 5, trainer)
    return made


def files(folder: Path) -> tuple[Path, Path]:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    one, other = folder / "tokenizer.json", folder / "tokenizer_config.json"
    tokenizer().save(str(one))
    other.write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": {"content": "<|im_end|>"}}))
    return one, other
