"""Entities embedded per second: the closed form against the paper's sampled steps, with what both are worth.

python benchmarks/embed_entities.py --kb KB --related kore:KORE.txt --related pairs:WikiSim-353.txt

The baseline is the reference method: blocks of entities in torch with a written-out gradient, 400 steps of 20 positives and
5 negatives each, one thread. Both embed the same entities; the closed form is timed with everything it needs (reading
evidence, and the share of the set-up that these entities have in the whole knowledge base), and again without set-up.
"""

import statistics
import time
from pathlib import Path

import numpy as np
import torch
from _harness import alternate, finish, parser_of, speeds

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings import closed_form, reference
from deeped_ray.embeddings.closed_form import ClosedFormConfig
from deeped_ray.embeddings.config import ReferenceConfig
from deeped_ray.embeddings.evidence import PAGE, PAGE_AND_LINKS, Evidence, EvidenceReader
from deeped_ray.embeddings.objective import exact_objective, noise_cdf
from deeped_ray.embeddings.validation import HeldOutLinks, Validation
from deeped_ray.embeddings.words import Words
from deeped_ray.evaluation.relatedness import Judgements
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.running.console import table

GAMMA, NUM_NEGATIVES = 0.1, 20_000
ROUNDS = 5


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, default=Path("kb/mini"), help="knowledge base (default: kb/mini)")
    parser.add_argument("--entities", type=int, default=2000, metavar="N", help="how many to embed (default: 2000)")
    parser.add_argument(
        "--related",
        action="append",
        default=[],
        metavar="SPEC",
        help="kore:FILE or pairs:FILE; embeds their entities too",
    )
    parser.add_argument("--link-steps", type=int, default=100, metavar="N", help="of the reference (default: 100)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kb = KnowledgeBase(args.kb)
    corpus, words = kb.open("corpus"), Words(kb.open("words"))
    catalogue, reader = Catalogue(corpus), EvidenceReader(corpus, words)
    judgements = [Judgements(spec, catalogue) for spec in args.related]
    heldout = HeldOutLinks(kb)
    entities = np.sort(np.random.default_rng(0).choice(len(reader), min(args.entities, len(reader)), replace=False))
    noise_words = noise_cdf(words.counts, alpha=0.6)
    word_matrix = torch.from_numpy(np.array(words.vectors))
    config = ReferenceConfig(link_steps=args.link_steps)

    def by_steps(ids: np.ndarray) -> np.ndarray:
        seeds = [int(each) for each in hashes_of([catalogue.title(int(entity)) for entity in ids])]
        return reference.embed(reader.read(ids), seeds, word_matrix, noise_words, config)

    start = time.process_time()
    noise = closed_form.noise_of(words.vectors, words.counts, alpha=0.6)
    contrasts = torch.from_numpy(closed_form.contrast(words.vectors, noise, ridge=ClosedFormConfig().ridge))
    setup_s = time.process_time() - start

    def in_closed_form(ids: np.ndarray) -> np.ndarray:
        return closed_form.embed(reader.read(ids), contrasts, ClosedFormConfig())

    ours, theirs = in_closed_form(entities), by_steps(entities)
    # the same number of words either way: a twentieth of the entities is enough to know the pace of the steps
    some = entities[::20]
    (ours_s, theirs_s) = alternate(
        lambda: in_closed_form(entities), lambda: by_steps(some), rounds=ROUNDS, clock=time.process_time
    )
    share_s = setup_s * len(entities) / len(reader)

    evidence = reader.read(entities)
    scores = {
        name: {"J": mean_objective(vectors, evidence, words, noise_words)}
        for name, vectors in (("closed form", ours), ("reference", theirs))
    }
    validations: list[Validation] = [*judgements, heldout] if len(heldout) < 500 else [*judgements]
    for each in validations:
        scores["closed form"][each.name] = each.score(in_closed_form(each.entities))
        scores["reference"][each.name] = each.score(by_steps(each.entities))
    print(table(["vectors", *scores["reference"]], [(name, *row.values()) for name, row in scores.items()]), "\n")
    median_s = statistics.median(ours_s)
    print(
        f"set-up for all {len(reader):,} entities: {setup_s:.1f} s. {len(entities):,} entities without it: {median_s:.3f} s"
        f" ({min(ours_s):.3f} to {max(ours_s):.3f}); if they alone paid for it: {median_s + setup_s:.1f} s\n"
    )
    finish(
        args,
        claim=f"embedding {len(entities):,} entities, d = {word_matrix.shape[1]}, processor time of one thread",
        unit="entities",
        ours=[len(entities) / (seconds + share_s) for seconds in ours_s],
        baseline=speeds(len(some), theirs_s),
        baseline_name="the paper's sampled steps, batched",
        setup_s=setup_s,
        scores=scores,
    )


def mean_objective(vectors: np.ndarray, evidence: Evidence, words: Words, noise_words: np.ndarray) -> float:
    """J at the paper's margin, exact over page words, on a fixed pool of negatives, over entities with a page."""
    pool = words.vectors[np.searchsorted(noise_words, (np.arange(NUM_NEGATIVES) + 0.5) / NUM_NEGATIVES)]
    rows = np.flatnonzero(np.isin(evidence.kinds, (PAGE, PAGE_AND_LINKS)))
    bags = [evidence.page.bag(int(row)) for row in rows]
    return float(
        np.mean(
            [
                exact_objective(vectors[row], words.vectors[bag], counts, pool, gamma=GAMMA)
                for row, (bag, counts) in zip(rows, bags, strict=True)
            ]
        )
    )


if __name__ == "__main__":
    main()
