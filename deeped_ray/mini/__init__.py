"""Two small wikis that ship with deeped-ray, written for this project: the demo's data and the tests' fixtures.

miniwiki    English, with annotated documents to train and test on
kleine      German, without any: its links teach the linker. Test documents only show how well
"""

from pathlib import Path
from typing import Any

MINI_DUMP = Path(__file__).parent / "miniwiki-pages-articles.xml"
MINI_DOCUMENTS = {split: Path(__file__).parent / f"{split}.tsv" for split in ("train", "dev", "test")}

_KLEINE = Path(__file__).parent / "kleine"
KLEINE_DUMP, KLEINE_TEST = (_KLEINE.with_name(f"kleine-{name}") for name in ("pages-articles.xml", "test.jsonl"))
KLEINE_CONFIG = _KLEINE.with_suffix(".yaml")
"""Settings that suit the German wiki."""

MINI_CONFIG: dict[str, Any] = {
    "corpus": {"dimension": 100, "min_word_count": 2, "ppmi_window": 30, "shard_mb": 0.1},
    "vectors": {"shard_words": 20_000},
    "linker": {"epochs": 15, "documents_per_step": 2, "forms": "diagonal"},
}
"""Settings that suit the English one: 30,000 words carry neither 300 dimensions nor words seen 10 times, and 72 documents
need more epochs of smaller steps, and fewer weights, than AIDA's 946."""

OWN_CONFIG: dict[str, Any] = {
    "corpus": {"dimension": 100, "min_word_count": 1, "ppmi_window": 30, "max_teaching_share": 0.5},
    "linker": MINI_CONFIG["linker"],
}
"""Settings that suit entities from a file without a dump: every word counts, and half of the examples teach."""
