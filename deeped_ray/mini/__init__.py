"""The mini encyclopedia that ships with deeped-ray: the demo's data and the tests' fixture, written for this project."""

from pathlib import Path

MINI_DUMP = Path(__file__).parent / "miniwiki-pages-articles.xml"
MINI_TRAIN = Path(__file__).parent / "train.tsv"
MINI_DEV = Path(__file__).parent / "dev.tsv"
MINI_TEST = Path(__file__).parent / "test.tsv"
