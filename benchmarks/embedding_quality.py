"""Claim: the default vectors are better than title words, centroids and the paper's own optimisation, at relating and at linking.

python benchmarks/embedding_quality.py --kb KB --related kore:KORE.txt --related pairs:WikiSim-353.txt \
    --dataset aida:testa.tsv.gz --dataset wned:wikilinks-dev.tar.gz [--reference]

Relatedness is Spearman's correlation (titles that are no entities by their words). Linking is the share of right answers by
log p(e|m) + b cos(e, mean context word), of mentions with two candidates or more and the right one among them, with the b
that is best for the row; the baseline, b = 0, is the prior. Only the entities that are needed are embedded.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from _harness import parser_of

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings import closed_form, reference
from deeped_ray.embeddings.closed_form import ClosedFormConfig
from deeped_ray.embeddings.config import ReferenceConfig
from deeped_ray.embeddings.evidence import Evidence, EvidenceReader
from deeped_ray.embeddings.objective import noise_cdf
from deeped_ray.embeddings.words import Words
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.evaluation.relatedness import Judgements
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.linking.candidates import CandidateConfig, KnownWords
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.running.console import table
from deeped_ray.text import content_words

WEIGHTS = (0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16)
Embed = Callable[[Evidence, list[str]], np.ndarray]


class Linking:
    """Ambiguous mentions of a data set, with their contexts."""

    def __init__(self, spec: str, kb: KnowledgeBase) -> None:
        self.name = spec
        inputs = LinkerInputs(kb, CandidateConfig(coreference="none"))
        self.mentions = []
        for document in read_dataset(spec):
            known = KnownWords(document.text, inputs.words)
            for mention, first in zip(document.mentions, inputs.first_candidates(document), strict=True):
                gold = inputs.catalogue.find(mention.gold) if mention.gold else None
                ids = [candidate.entity_id for candidate in first]
                context = known.around(mention, num_words=100)
                if gold in ids and len(ids) > 1 and len(context):
                    average = inputs.words.vectors[context].mean(axis=0)
                    prior = np.log([max(candidate.prior, 1e-3) for candidate in first])
                    self.mentions.append((np.array(ids), ids.index(gold), prior, average / np.linalg.norm(average)))
        self.entities = np.unique(np.concatenate([ids for ids, *_ in self.mentions]))

    def accuracy(self, vectors: np.ndarray, weight: float) -> float:
        right = 0
        for ids, gold, prior, context in self.mentions:
            cosines = vectors[np.searchsorted(self.entities, ids)] @ context
            right += int(np.argmax(prior + weight * cosines)) == gold
        return 100 * right / len(self.mentions)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, required=True)
    parser.add_argument("--related", action="append", default=[], metavar="SPEC")
    parser.add_argument("--dataset", action="append", default=[], metavar="SPEC")
    parser.add_argument("--reference", action="store_true", help="the paper's sampled steps too: ten entities a second")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kb = KnowledgeBase(args.kb)
    corpus, words = kb.open("corpus"), Words(kb.open("words"))
    catalogue, reader = Catalogue(corpus), EvidenceReader(corpus, words)
    judgements = [Judgements(spec, catalogue) for spec in args.related]
    linking = [Linking(spec, kb) for spec in args.dataset]
    noise = closed_form.noise_of(words.vectors, words.counts, alpha=0.6)
    matrix = torch.from_numpy(np.array(words.vectors))

    def closed(config: ClosedFormConfig) -> Embed:
        contrasts = torch.from_numpy(closed_form.contrast(words.vectors, noise, ridge=config.ridge))
        return lambda evidence, _: closed_form.embed(evidence, contrasts, config)

    def title_words(evidence: Evidence, _: list[str]) -> np.ndarray:
        return closed_form.embed(Evidence(evidence.title, evidence.title, evidence.title), matrix, ClosedFormConfig())

    def steps(evidence: Evidence, titles: list[str]) -> np.ndarray:
        seeds = [int(each) for each in hashes_of(titles)]
        cdf = noise_cdf(words.counts, alpha=0.6)
        return reference.embed(evidence, seeds, matrix, cdf, ReferenceConfig(link_steps=100))

    default = ClosedFormConfig()
    rows: dict[str, Embed] = {
        "title words": title_words,
        "centroid": closed(dataclasses.replace(default, ridge=float("inf"), title_share=0.0)),
        **({"the paper's steps": steps} if args.reference else {}),
        "default": closed(default),
        "ridge 3": closed(dataclasses.replace(default, ridge=3.0)),
        "ridge 0.05": closed(dataclasses.replace(default, ridge=0.05)),
        "no title words": closed(dataclasses.replace(default, title_share=0.0)),
        "page only": closed(dataclasses.replace(default, link_share=0.0)),
        "links only": closed(dataclasses.replace(default, page_share=1e-9, link_share=1.0)),
    }
    results = []
    for name, embed in rows.items():
        scores = []
        for each in judgements:
            texts = reader.texts([content_words(title) for title in each.unknown_titles])
            nothing = reader.texts([[] for _ in each.unknown_titles])
            unknown = embed(Evidence(nothing, nothing, texts), each.unknown_titles)
            titles = [catalogue.title(int(entity)) for entity in each.entities]
            scores.append(round(each.scores(embed(reader.read(each.entities), titles), unknown)["spearman"], 3))
        for task in linking:
            titles = [catalogue.title(int(entity)) for entity in task.entities]
            vectors = embed(reader.read(task.entities), titles)
            scores.append(round(max(task.accuracy(vectors, weight) for weight in WEIGHTS), 1))
        results.append((name, *scores))
        print(name, *scores, flush=True)
    prior = ["" for _ in judgements] + [
        round(task.accuracy(np.zeros((len(task.entities), 300)), 0), 1) for task in linking
    ]
    short = [
        name.rpartition("/")[2] for name in [*(each.name for each in judgements), *(task.name for task in linking)]
    ]
    print("\n" + table(["vectors", *short], [("prior alone", *prior), *results]))
    print(
        "\n".join(f"{task.name}: {len(task.mentions):,} mentions, {len(task.entities):,} entities" for task in linking)
    )


if __name__ == "__main__":
    main()
