"""The mini encyclopedia that ships with deeped-ray: the demo's data and the tests' fixture, written for this project."""

from pathlib import Path

MINI_DUMP = Path(__file__).parent / "miniwiki-pages-articles.xml"
MINI_DOCUMENTS = {split: Path(__file__).parent / f"{split}.tsv" for split in ("train", "dev", "test")}
