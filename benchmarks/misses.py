"""What the sources of candidates miss, by kind: mentions whose gold entity is known and not among the kept candidates.

python benchmarks/misses.py --kb KB --dataset aida:testa.tsv.gz --dataset wned:ace2004

A miss is of the first kind that fits. Kinds are told by letters alone, so that a metonym, an old name and a nickname are all
`another name`.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from _harness import parser_of, write_json

from deeped_ray.embeddings.name_forms import acronym_of, fold, form_of, squeeze
from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking import retrieval
from deeped_ray.linking.candidates import MAX_KEPT, CandidateConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.running.console import table
from deeped_ray.text import bare_title
from deeped_ray.types import Document

LOST = "found, but others had better scores"
KINDS = (
    LOST,
    "a number or a date",
    "in lower case: a common noun",
    "an abbreviation that is not spelled by initials",
    "spelled otherwise: a transliteration or several typing errors",
    "shares a word with the title",
    "another name",
)
ALIKE = 0.7
"""Of the letters of both names, in order: `SequenceMatcher.ratio`."""


class Miss(NamedTuple):
    kind: str
    surface: str
    title: str


def kind_of(surface: str, title: str) -> str:
    """How a mention is written beside the title that no source found."""
    own, other = form_of(surface), form_of(title)
    if any(letter.isdigit() for letter in surface):
        return KINDS[1]
    if surface[:1].islower():
        return KINDS[2]
    if acronym_of(surface) and _comes_in(acronym_of(surface), squeeze(fold(title))):
        return KINDS[3]
    if SequenceMatcher(None, own.squeezed, squeeze(fold(bare_title(title)))).ratio() >= ALIKE:
        return KINDS[4]
    return KINDS[5] if {*own.words} & {*other.words} else KINDS[6]


def _comes_in(letters: str, name: str) -> bool:
    rest = iter(name)
    return all(letter in rest for letter in letters)


def misses_of(kb: KnowledgeBase, documents: Sequence[Document]) -> Iterator[Miss]:
    kept, pool = LinkerInputs(kb, CandidateConfig()), LinkerInputs(kb, _as_many_as_possible())
    for document in documents:
        lost = _lost(kept, document)
        found = _found_with_more(pool, document) if lost else set()
        for place, gold in lost.items():
            surface, title = document.surface(document.mentions[place]), kept.catalogue.title(gold)
            yield Miss(LOST if place in found else kind_of(surface, title), surface, title)


def _as_many_as_possible() -> CandidateConfig:
    by_prior = CandidateConfig().kept_by_prior
    return CandidateConfig(first_candidates=MAX_KEPT, kept_by_prior=by_prior, kept_by_context=MAX_KEPT - by_prior)


def _lost(inputs: LinkerInputs, document: Document) -> dict[int, int]:
    """Mentions without their gold entity among the candidates, though it is known: place -> entity."""
    lost = {}
    for window, encoded in inputs.encode(document):
        for place, is_answered, gold_place in zip(window.mentions, window.is_answered, encoded.gold, strict=True):
            gold = inputs.catalogue.find_gold(document.mentions[place])
            if is_answered and gold_place < 0 and gold is not None:
                lost[place] = gold
    return lost


def _found_with_more(inputs: LinkerInputs, document: Document) -> set[int]:
    usual = retrieval.CONSULTED
    retrieval.CONSULTED = MAX_KEPT
    try:
        windows = [*inputs.encode(document)]
    finally:
        retrieval.CONSULTED = usual
    return {
        place
        for window, encoded in windows
        for place, gold in zip(window.mentions, encoded.gold, strict=True)
        if gold >= 0
    }


def main(args: argparse.Namespace) -> None:
    kb = KnowledgeBase(args.kb)
    names = [spec.rstrip("/").rpartition("/")[2] for spec in args.dataset]
    documents = [read_dataset(spec, kb=kb) for spec in args.dataset]
    found = [[*misses_of(kb, each)] for each in documents]
    totals = [sum(len(document.mentions) for document in each) for each in documents]
    counts = [Counter(miss.kind for miss in misses) for misses in found]
    rows = [[kind, *(count[kind] for count in counts)] for kind in KINDS]
    rows += [["all", *map(len, found)], ["of mentions", *totals]]
    print(table(["misses", *names], rows), end="\n\n")
    for kind in KINDS:
        shown = dict.fromkeys((miss.surface, miss.title) for misses in found for miss in misses if miss.kind == kind)
        print(f"{kind}: {', '.join(f'{surface} ({title})' for surface, title in [*shown][: args.examples])}")
    write_json(args, misses=dict(zip(names, counts, strict=True)), mentions=dict(zip(names, totals, strict=True)))


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge base (default: kb/mini)")
    parser.add_argument("--dataset", action="append", required=True, help=SPECS)
    parser.add_argument("--examples", type=int, default=8, help="of every kind, at most (default: 8)")
    main(parser.parse_args())
