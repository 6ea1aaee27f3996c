"""First words, headlines, lower case, possessives and hyphens, on the mini encyclopedia: text, then its names."""

from pathlib import Path

import deeped_ray as deeped
from deeped_ray.knowledge.base import KnowledgeBase

ROWS = [
    line.split("\t") for line in (Path(__file__).parent / "hard_sentences.tsv").read_text(encoding="utf-8").splitlines()
]
MOST_MISSED = 3
"""Today two: `referee` is found, which the encyclopedia's documents annotate, and `Racing de Santander` is found in parts."""


def names_of(kb: deeped.KnowledgeBase, text: str) -> str:
    return "|".join(text[start:end] for start, end in kb.detect(text))


def test_names_are_found_where_rules_would_fail(mini_kb: KnowledgeBase) -> None:
    kb = deeped.open(str(mini_kb.root))
    missed = {text: names_of(kb, text) for text, names in ROWS if names_of(kb, text) != names}
    assert len(ROWS) >= 30
    assert len(missed) <= MOST_MISSED, missed
