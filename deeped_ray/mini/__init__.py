"""The mini encyclopedia that ships with deeped-ray: the demo's data and the tests' fixture, written for this project."""

from pathlib import Path
from typing import Any

MINI_DUMP = Path(__file__).parent / "miniwiki-pages-articles.xml"
MINI_DOCUMENTS = {split: Path(__file__).parent / f"{split}.tsv" for split in ("train", "dev", "test")}

MINI_CONFIG: dict[str, Any] = {
    "corpus": {"dimension": 100, "min_word_count": 2, "ppmi_window": 30, "shard_mb": 0.1},
    "vectors": {"shard_words": 20_000},
    "linker": {"epochs": 15, "documents_per_step": 2, "forms": "diagonal"},
}
"""Settings that suit it: 30,000 words carry neither 300 dimensions nor words seen 10 times, and 72 documents
need more epochs of smaller steps, and fewer weights, than AIDA's 946."""
